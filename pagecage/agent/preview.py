"""The commands of a trial, for `--dry-run`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pagecage.agent.drivers.driver import Driver, LaunchContext
from pagecage.agent.drivers.engine import ContainerEngines
from pagecage.agent.drivers.process import ProcessDriver
from pagecage.agent.drivers.registry import make_driver
from pagecage.agent.programs.command import disk_places, fill_all
from pagecage.agent.programs.gated_process import gated
from pagecage.agent.programs.registry import PROGRAMS
from pagecage.linux.block_device import Disk
from pagecage.linux.cgroupfs import Cgroupfs
from pagecage.linux.processes import SupervisedProcesses
from pagecage.linux.systemd import Systemd, unit_name
from pagecage.linux.trial_processes import CgroupMaker, CgroupProcesses, TrialProcesses
from pagecage.model.trial import CGROUPFS, Trial
from pagecage.process import replay


def trial_commands(trial: Trial, user: bool) -> Iterator[str]:
    """Return the commands that the host will run for one trial. The host resolves DISK and DIR.

    The first trial makes the data that the host has not; KEY stands for the key of the data.
    """
    if trial.data and trial.data.prepare and trial.position == 0:
        yield replay(_words(trial, trial.data.prepare, seed=trial.data.seed))
    systemd, unit, spool = Systemd(user, 257), unit_name(trial.trial_id), Path("SPOOL")
    image = trial.workload.command.image if trial.workload.command else None
    engines = ContainerEngines(systemd, spool, Path("DIR"))
    driver = make_driver(trial.driver, engines, lambda *_: {}, spool, image)
    maker: CgroupMaker = Cgroupfs(spool) if trial.driver == CGROUPFS else systemd
    context = _context(trial, maker, unit, driver)
    argv = _words(trial, (trial.workload.program, *trial.workload.arguments))
    if context.is_gated and not image:
        argv = gated(argv)
    if driver.has_slice:
        cage = driver.slice_cage(trial.cage.cgroup_part)
        nodes = {name: f"DISK-{name}" for name in cage.disks}
        yield from map(replay, maker.make_commands(unit, cage, "DISK", nodes))
    for collector in trial.own_collectors:
        words = _words(trial, collector.command)
        script = ["bpftrace", "-f", "json", *words, "CGROUP_ID", "DISK_NUMBER"]
        yield replay(script if collector.is_script else words)
    yield from map(replay, driver.preview_commands(context, argv))
    if trial.workload.service is not None:  # its load runs outside the cage
        processes = SupervisedProcesses(spool / "load.json", f"{spool}:load")
        outside = replace(context, processes=processes, is_gated=False)
        load = gated(_words(trial, trial.workload.service.load))
        yield from map(replay, ProcessDriver(spool).preview_commands(outside, load))
    if driver.has_slice:
        yield from map(replay, maker.remove_commands(unit))


def _context(trial: Trial, maker: CgroupMaker, unit: str, driver: Driver) -> LaunchContext:
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


def _words(trial: Trial, words: Iterable[str], **more: object) -> list[str]:
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
