"""The commands of a trial, for `pagecage plan` and `--dry-run`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagecage.agent.drivers.driver import Driver, LaunchContext
from pagecage.agent.drivers.engine import ContainerEngines
from pagecage.agent.drivers.process import ProcessDriver
from pagecage.agent.drivers.registry import make_driver
from pagecage.agent.programs.command import disk_places, fill_all
from pagecage.agent.programs.gated_process import gated
from pagecage.agent.programs.registry import PROGRAMS
from pagecage.linux.block_device import Disk
from pagecage.linux.cgroup import CgroupMaker
from pagecage.linux.cgroupfs import Cgroupfs
from pagecage.linux.processes import SupervisedProcesses
from pagecage.linux.systemd import Systemd, unit_name
from pagecage.linux.trial_processes import CgroupProcesses, TrialProcesses
from pagecage.model.trial import CGROUPFS, ImageSpec, Trial
from pagecage.process import replay


def trial_commands(trial: Trial, user: bool) -> Iterator[str]:
    """Return the commands that the host will run for one trial. The host resolves DISK and DIR.

    The first trial makes the data that the host has not; KEY stands for the key of the data.
    """
    if trial.data and trial.data.prepare and trial.position == 0:
        yield replay(_preview_words(trial, trial.data.prepare, seed=trial.data.seed))
    systemd, unit = Systemd(user, 257), unit_name(trial.trial_id)
    spool = Path("SPOOL")
    engines, image = ContainerEngines(systemd, spool, Path("DIR")), _image(trial)
    driver = make_driver(trial.driver, engines, _no_answer, spool, image)
    maker: CgroupMaker = Cgroupfs(spool) if trial.driver == CGROUPFS else systemd
    context, argv = _preview_context(trial, maker, unit, driver), _preview_argv(trial)
    if not driver.has_slice:
        yield from _collector_commands(trial)
        yield from map(replay, driver.preview_commands(context, argv))
        yield from _load_commands(trial, context)
        return
    cage = driver.slice_cage(trial.cage.cgroup_part)
    nodes = {name: f"DISK-{name}" for name in cage.disks}
    yield from map(replay, maker.make_commands(unit, cage, "DISK", nodes))
    yield from _collector_commands(trial)
    yield from map(replay, driver.preview_commands(context, argv))
    yield from _load_commands(trial, context)
    yield from map(replay, maker.remove_commands(unit))


def _collector_commands(trial: Trial) -> Iterator[str]:
    """Yield the commands of the definition's own collectors, which run outside the cage."""
    for collector in trial.own_collectors:
        words = _preview_words(trial, collector.command)
        if collector.is_script:
            words = ["bpftrace", "-f", "json", *words, "CGROUP_ID", "DISK_NUMBER"]
        yield replay(words)


def _load_commands(trial: Trial, context: LaunchContext) -> Iterator[str]:
    """Yield the command that runs a service's load outside the cage."""
    if trial.workload.service is None:
        return
    processes = SupervisedProcesses(context.spool / "load.json", f"{context.spool}:load")
    outside = replace(context, processes=processes, is_gated=False)
    argv = gated(_preview_words(trial, trial.workload.service.load))
    yield from map(replay, ProcessDriver(context.spool).preview_commands(outside, argv))


def _image(trial: Trial) -> ImageSpec | None:
    return trial.workload.command.image if trial.workload.command else None


def _no_answer(_question: str, _details: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def _preview_context(trial: Trial, maker: CgroupMaker, unit: str, driver: Driver) -> LaunchContext:
    """Return the part of the trial's context that is known before there is a host."""
    command, in_layer = trial.workload.command, trial.storage == "container_layer"
    disk = Disk("DISK", "0:0", "DISK", "ext4", "DIR")
    processes: TrialProcesses = SupervisedProcesses(Path("SPOOL/supervisor.json"), f"SPOOL:{unit}")
    if driver.has_slice:
        processes = CgroupProcesses(maker, unit, maker.cgroup(unit))
    return LaunchContext(
        maker,
        unit,
        processes,
        trial.cage.cgroup_part,
        disk,
        Path("SPOOL/bin"),
        Path("SPOOL"),
        None if in_layer else Path("DIR"),
        Path(command.directory) if command and command.directory else None,
        is_gated=PROGRAMS[trial.workload.kind].is_gated,
    )


def _preview_argv(trial: Trial) -> list[str]:
    argv = _preview_words(trial, (trial.workload.program, *trial.workload.arguments))
    return gated(argv) if PROGRAMS[trial.workload.kind].is_gated and not _image(trial) else argv


def _preview_words(trial: Trial, words: Iterable[str], **more: object) -> list[str]:
    if trial.workload.command is not None and trial.workload.command.is_literal:
        return [*words]
    files = [Path("DIR") / dataset.file_name for dataset in trial.datasets]
    file = files[0] if files else "DIR"
    values = {
        "file": file,
        "sidecar": f"{file}.json",
        "data_dir": "DIR",
        "max_seconds": trial.max_seconds,
        **disk_places({name: Path(f"DIR-{name}") for name in trial.cage.disks}),
        "programs": "SPOOL/programs",
        "data": "DIR/prepared/KEY/data",
        **more,
    }
    return fill_all(words, values, files)
