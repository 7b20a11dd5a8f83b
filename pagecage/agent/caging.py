"""The cage of a trial: its cgroup or container with limits that were read back and proven."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pagecage.agent.collectors.sampler import Sampler
from pagecage.agent.data_files import sidecar_of
from pagecage.agent.disks import enforce_by_volumes, keep_disk_limits
from pagecage.agent.drivers.driver import Driver, ExternalLimits, LaunchContext
from pagecage.agent.drivers.registry import make_driver
from pagecage.agent.limits.fidelity import IoMaxController
from pagecage.agent.limits.simulated_volume import SimulatedVolume
from pagecage.agent.protocol import ask
from pagecage.agent.storage import OtherDisk, Storage
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.errors import PagecageError
from pagecage.linux.block_device import Disk
from pagecage.linux.cgroup import Cgroup, ancestors
from pagecage.linux.cgroup_files import counter_files, read_imposed_limits, read_limits
from pagecage.linux.processes import SupervisedProcesses
from pagecage.linux.systemd import unit_name
from pagecage.linux.trial_processes import CgroupProcesses, TrialProcesses
from pagecage.model.cage import Cage, cloud_to_json, expected_read_back, limits_not_in_force
from pagecage.model.requirements import Requirement
from pagecage.units import kernel_page_bytes


@dataclass(frozen=True)
class ProgramFiles:
    """The files that a program reads, and the disk that holds them."""

    paths: tuple[Path, ...]
    disk: Disk


@dataclass(frozen=True)
class Caged:
    """A trial's cage with everything in place but the workload.

    `controllers` rewrite io.max, one per disk whose limits need it. `disks` are the cage's other
    disks by name.
    """

    driver: Driver
    context: LaunchContext
    files: tuple[Path, ...]
    data_dir: Path
    sampler: Sampler
    controllers: tuple[IoMaxController, ...] = ()
    volume: SimulatedVolume | None = None
    disks: Mapping[str, OtherDisk] = field(default_factory=dict)

    @property
    def disk(self) -> Disk:
        """The disk that is measured and limited."""
        return self.context.disk

    @property
    def folders(self) -> Mapping[str, Path]:
        """The folder of each {disk.NAME}."""
        return self.context.folders


_START_SECONDS, _POLL_SECONDS = 60.0, 0.01
_INHERITED = ("HOME", "LANG", "PATH")


def prepare_driver(run: TrialRun) -> Driver:
    """Return the driver, ready to run the workload.

    Raises RequirementMissed if this host lacks what it needs. A container engine is started here,
    since its start would disturb the measurement.
    """
    session, name = run.session, run.trial.driver
    asks = partial(ask, session.stream, session.inbox)
    command = run.trial.workload.command
    image = command.image if command else None
    driver = make_driver(name, session.engines, asks, session.request.spool, image)
    run.keep("cage", driver={"name": name})
    try:
        run.sections["cage"]["driver"] |= driver.prepare()
    except PagecageError as error:
        raise RequirementMissed.of(Requirement.DRIVER, error.message, error.hint) from None
    return driver


def make_cage(
    run: TrialRun,
    driver: Driver,
    storage: Storage,
    files: ProgramFiles,
    *,
    inherits_environment: bool,
    is_gated: bool,
) -> LaunchContext:
    """Make the trial's slice with its limits, or prepare the supervisor of a trial without one.

    External limits are applied, and every limit is read back. Raises RequirementMissed. With
    `inherits_environment` the workload gets every variable of the agent's environment.
    """
    unit = unit_name(run.trial.trial_id, run.attempt)
    if driver.has_slice:
        processes = _make_slice(run, driver, storage, files, unit)
    else:
        processes = _make_supervised(run, files, unit)
    context = _context(run, unit, processes, storage, files)
    context = replace(
        context, environment=_variables(inherits_all=inherits_environment), is_gated=is_gated
    )
    run.cleanup.callback(driver.clear, context)
    _apply_external_limits(run, partial(driver.apply_external, context))
    if storage.volume:
        _apply_external_limits(run, partial(enforce_by_volume, run, storage.volume))
    enforce_by_volumes(run, storage.disks)
    return context


def _make_slice(
    run: TrialRun, driver: Driver, storage: Storage, files: ProgramFiles, unit: str
) -> TrialProcesses:
    trial, maker = run.trial, run.session.maker(run.trial.driver)
    slice_cage = driver.slice_cage(trial.cage.cgroup_part)
    run.cleanup.callback(maker.remove, unit)
    disks = {name: storage.disks[name].disk for name in slice_cage.disks}
    cgroup = maker.make(unit, slice_cage, files.disk, disks)
    run.keep(
        "cage",
        name=trial.cage.name,
        requested=dict(trial.cage.properties),
        slice=str(cgroup),
        hierarchy=cgroup.hierarchy,
        counter_files={} if cgroup.hierarchy == "v2" else counter_files(cgroup),
        expected=expected_read_back(slice_cage, kernel_page_bytes()),
        **_read_back(cgroup, files.disk.maj_min),
        **cloud_to_json(trial.cage),
        enforced_by=trial.cage.enforced_by,
        dilation=trial.cage.dilation,
    )
    cage = run.sections["cage"]
    # systemd starts a unit even when it could not apply a limit, and logs one line at most: ask the
    # kernel.
    _refuse(limits_not_in_force(cage["expected"], cage["read_back"], cage["ancestors"]))
    keep_disk_limits(run, storage.disks, cgroup)
    return CgroupProcesses(maker, unit, cgroup)


def _make_supervised(run: TrialRun, files: ProgramFiles, unit: str) -> TrialProcesses:
    """Keep the limits that the machine imposes, since the trial has no cgroup of its own."""
    cage, imposed = run.trial.cage, read_imposed_limits(files.disk.maj_min)
    none: dict[str, Any] = {"expected": {}, "read_back": {}}
    by_volume = {"enforced_by": cage.enforced_by, "dilation": cage.dilation, **cloud_to_json(cage)}
    run.keep(
        "cage",
        name=cage.name,
        slice=None,
        ancestors=imposed,
        requested=dict(cage.properties),
        **none,
        **(by_volume if cage.is_volume else {}),
    )
    return SupervisedProcesses(
        run.directory / "supervisor.json", f"{run.session.request.spool}:{unit}"
    )


def keep_imposed_limits(run: TrialRun, context: LaunchContext) -> None:
    """Keep the imposed limits again, which now count how often each was met."""
    if context.processes.cgroup is None:
        run.keep("cage", ancestors_after=read_imposed_limits(context.disk.maj_min))


def _context(
    run: TrialRun,
    unit: str,
    processes: TrialProcesses,
    storage: Storage,
    files: ProgramFiles,
) -> LaunchContext:
    trial, request = run.trial, run.session.request
    command, in_layer = trial.workload.command, trial.storage == "container_layer"
    sidecars = tuple(filter(Path.exists, map(sidecar_of, files.paths)))
    return LaunchContext(
        maker=run.session.maker(trial.driver),
        unit=unit,
        processes=processes,
        cage=trial.cage.cgroup_part,
        disk=files.disk,
        programs_dir=Path(request.programs_dir),
        spool=request.spool,
        data_dir=None if in_layer else storage.data_dir,
        directory=Path(command.directory) if command and command.directory else None,
        paths=() if in_layer else files.paths,
        files=(*files.paths, *sidecars) if in_layer else (),
        disks={name: other.disk for name, other in storage.disks.items()},
        folders=storage.folders,
    )


def _variables(*, inherits_all: bool) -> tuple[str, ...]:
    return tuple(name for name in sorted(os.environ) if inherits_all or name in _INHERITED)


def enforce_by_volume(run: TrialRun, volume: SimulatedVolume) -> ExternalLimits:
    """Put the I/O limits in force by the volume, with fresh credits and an empty account.

    Latencies are seeded by the repeat, so that equal trials of a run have different ones and a
    repeated run has the same.
    """
    return volume.enforce(run.trial.cage, run.trial.repeat)


def _apply_external_limits(run: TrialRun, apply: Callable[[], ExternalLimits | None]) -> None:
    try:
        external = apply()
    except PagecageError as error:
        raise RequirementMissed.of(Requirement.LIMITS, error.message, error.hint) from None
    if external is not None:
        run.keep("cage", external=external.to_json())
        wrong = {
            k: v for k, v in external.read_back.items() if run.trial.cage.properties.get(k) != v
        }
        _refuse([f"{external.by} holds {name} at {value}" for name, value in wrong.items()])


def _read_back(cgroup: Cgroup, maj_min: str) -> dict[str, Any]:
    return {
        "read_back": read_limits(cgroup, maj_min),
        "ancestors": {str(above): read_limits(above, maj_min) for above in ancestors(cgroup)},
    }


def require_unchanged_limits(run: TrialRun, caged: Caged) -> None:
    """Read the limits back again. Raises RequirementMissed if one changed since its proof."""
    if now := _read_back_again(run, caged):
        expected = {key: run.sections["cage"]["expected"].get(key, "max") for key in now[0]}
        wrong = limits_not_in_force(expected, *now)
        _refuse([f"after their proof, {sentence}" for sentence in wrong])


def keep_limits_after(run: TrialRun, caged: Caged) -> None:
    """Keep the limits as they are at the end of the measured part."""
    if now := _read_back_again(run, caged):
        run.keep("cage", read_back_after=now[0], ancestors_after=now[1])


def _read_back_again(
    run: TrialRun, caged: Caged
) -> tuple[dict[str, str], dict[str, dict[str, str]]] | None:
    """Return the requested limits of the cgroup that holds them, and those of its ancestors.

    Without io.max if burst credits rewrite it. None without a cgroup, or if a container's is gone.
    """
    cage, cgroup = run.sections["cage"], caged.context.processes.cgroup
    if cgroup is None:
        return None
    holder = (caged.driver.own_cgroup(caged.context) if "driver_cgroup" in cage else None) or cgroup
    found = _read_back(holder, caged.disk.maj_min)
    own = found if holder == cgroup else _read_back(cgroup, caged.disk.maj_min)
    slice_cage = caged.driver.slice_cage(run.trial.cage.cgroup_part)
    on_slice = expected_read_back(slice_cage, kernel_page_bytes())
    held = found["read_back"] | {key: own["read_back"].get(key, "missing") for key in on_slice}
    kept = [key for key in cage["expected"] if not (caged.controllers and "io.max" in key)]
    if not found["read_back"] or not all(key in held for key in kept):
        return None
    return {key: held[key] for key in kept}, found["ancestors"]


def _refuse(wrong: list[str], hint: str = "pagecage doctor") -> None:
    if wrong:
        raise RequirementMissed.of(
            Requirement.LIMITS, f"limits are not as asked: {'; '.join(wrong)}", hint
        )


def confirm_limits(
    run: TrialRun, caged: Caged, is_over: Callable[[], bool], patience_seconds: float = 0.0
) -> None:
    """Read back the limits that the driver itself has set, before the workload is let go.

    Raises RequirementMissed. A container engine that loses a limit reports nothing. Its runtime
    sets one limit after the other, so wait up to `patience_seconds` for a workload that does not
    wait for `go`.
    """
    cage, page_bytes = run.sections["cage"], kernel_page_bytes()
    asked = expected_read_back(run.trial.cage.cgroup_part, page_bytes)
    elsewhere = Cage("", cage.get("external", {}).get("read_back", {}))
    external = expected_read_back(elsewhere, page_bytes)
    own = {
        key: value
        for key, value in asked.items()
        if key not in cage["expected"] and key not in external
    }
    if not own:
        return
    name, until = run.trial.driver, time.monotonic() + patience_seconds
    cgroup = _driver_cgroup(caged, is_over)
    if cgroup is None:
        _refuse([f"{name} has made no cgroup of its own in the slice"])
        return
    of_slice = {key: cage["read_back"][key] for key in cage["expected"]}
    found = _read_when_set(
        cgroup, caged.disk.maj_min, own, lambda: is_over() or time.monotonic() >= until
    )
    cage |= {**found, "expected": cage["expected"] | own, "driver_cgroup": str(cgroup)}
    cage["read_back"] |= of_slice
    wrong = limits_not_in_force(cage["expected"], cage["read_back"], cage["ancestors"])
    _refuse(
        [f"{name} lost them: {'; '.join(wrong)}"] if wrong else [],
        "use --driver docker: limits on our own slice",
    )


def _read_when_set(
    cgroup: Cgroup, maj_min: str, own: Mapping[str, str], give_up: Callable[[], bool]
) -> dict[str, Any]:
    """Read the limits of the driver's cgroup until all are set.

    The last that were read before giving up.
    """
    found = _read_back(cgroup, maj_min)
    while not own.items() <= found["read_back"].items() and not give_up():
        time.sleep(_POLL_SECONDS)
        later = _read_back(cgroup, maj_min)
        found = later if later["read_back"] else found
    return found


def _driver_cgroup(caged: Caged, is_over: Callable[[], bool]) -> Cgroup | None:
    """Return the driver's own cgroup.

    A workload without a gate may enter it a moment after its start.
    """
    deadline = time.monotonic() + _START_SECONDS
    while (
        cgroup := caged.driver.own_cgroup(caged.context)
    ) is None and time.monotonic() < deadline:
        if is_over():
            return None
        time.sleep(_POLL_SECONDS)
    return cgroup
