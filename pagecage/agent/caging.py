"""The cage of a trial: its cgroup or container with limits that were read back and proven."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pagecage.agent.collectors.sampler import Sampler
from pagecage.agent.data_files import sidecar_of
from pagecage.agent.drivers.driver import Driver, ExternalLimits, LaunchContext
from pagecage.agent.drivers.registry import make_driver
from pagecage.agent.limits.calibration import sound_account
from pagecage.agent.limits.fidelity import IoMaxController
from pagecage.agent.protocol import ask
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import TrialRun
from pagecage.errors import PagecageError
from pagecage.linux.block_device import Disk
from pagecage.linux.cgroup import Cgroup, ancestors
from pagecage.linux.cgroup_files import counter_files, read_imposed_limits, read_limits
from pagecage.linux.processes import SupervisedProcesses
from pagecage.linux.systemd import unit_name
from pagecage.linux.trial_processes import CgroupProcesses, TrialProcesses
from pagecage.model.cage import (
    DATA_DISK,
    Cage,
    cloud_to_json,
    expected_read_back,
    limits_not_in_force,
)
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.requirements import Requirement, RequirementMissed
from pagecage.process import wait_until
from pagecage.units import kernel_page_bytes

_START_SECONDS, _POLL_SECONDS = 60.0, 0.01
_INHERITED = ("HOME", "LANG", "PATH")
_SEED_STEP = 1000
"""Difference between the seeds of two volumes of a trial; repeats are far fewer."""


@dataclass(frozen=True)
class ProgramFiles:
    """The files that a program reads, and the disk that holds them."""

    paths: tuple[Path, ...]
    disk: Disk


def prepare_driver(run: TrialRun) -> tuple[Driver, Json]:
    """Return the driver, ready to run the workload, and what it has prepared.

    Raises RequirementMissed if this host lacks what it needs. A container engine is started here,
    since its start would disturb the measurement.
    """
    session, name, command = run.session, run.trial.driver, run.trial.workload.command
    asks = partial(ask, session.stream, session.inbox)
    image = command.image if command else None
    driver = make_driver(name, session.engines, asks, run.request.spool, image)
    run.keep("cage", driver={"name": name})
    try:
        provided = driver.prepare()
    except PagecageError as error:
        raise RequirementMissed.of(Requirement.DRIVER, error.message, error.hint) from None
    run.keep("cage", driver={"name": name, **provided})
    return driver, provided


class CageLimits:
    """The limits of a trial: set, read back, and proven again at each moment that counts.

    Every method raises RequirementMissed if a limit is not in force. The record keeps what was
    found before that.
    """

    def __init__(self, run: TrialRun, driver: Driver, storage: Storage) -> None:
        self._run, self._driver, self._cage = run, driver, run.trial.cage
        self._disks, self._disk = storage.disks, storage.data.disk
        # Equal trials of a run have different latencies, and a repeated run has the same.
        self._volumes = {
            name: (one.volume, run.trial.repeat + _SEED_STEP * number)
            for number, (name, one) in enumerate(storage.disks.items())
            if one.volume
        }
        self._external: dict[str, ExternalLimits] = {}
        self._expected: dict[str, str] = {}
        self._read_back: dict[str, str] = {}
        self._has_driver_cgroup = False

    def make_slice(self, unit: str) -> TrialProcesses:
        run, maker = self._run, self._run.session.maker(self._run.trial.driver)
        slice_cage = self._driver.slice_cage(self._cage.cgroup_part)
        run.cleanup.callback(maker.remove, unit)
        disks = {name: self._disks[name].disk for name in slice_cage.disks}
        cgroup = maker.make(unit, slice_cage, self._disk, disks)
        files = {} if cgroup.hierarchy == "v2" else counter_files(cgroup)
        run.keep("cage", hierarchy=cgroup.hierarchy, counter_files=files)
        # systemd starts a unit even when it could not apply a limit, and logs one line at most: ask
        # the kernel.
        self._expected, self._read_back = self._prove(DATA_DISK, cgroup, slice_cage)
        for name in self._cage.disks:
            self._prove(name, cgroup, self._cage.on_disk(name).cgroup_part)
        return CgroupProcesses(maker, unit, cgroup)

    def _prove(
        self, name: str, cgroup: Cgroup, asked: Cage
    ) -> tuple[dict[str, str], dict[str, str]]:
        expected, cage = expected_read_back(asked, kernel_page_bytes()), self._cage.on_disk(name)
        found = _read_back(cgroup, self._disks[name].disk.maj_min, only_io=name != DATA_DISK)
        self._run.keep(
            "cage",
            name,
            name=cage.name,
            requested=dict(cage.properties),
            slice=str(cgroup),
            expected=expected,
            **found,
            **cloud_to_json(cage),
            enforced_by=cage.enforced_by,
            dilation=cage.dilation,
        )
        wrong = limits_not_in_force(expected, found["read_back"], found["ancestors"])
        _refuse(wrong if name == DATA_DISK else [f"{name}: {sentence}" for sentence in wrong])
        return expected, found["read_back"]

    def keep_imposed(self, unit: str) -> TrialProcesses:
        """Keep the limits that the machine imposes on a trial without a cgroup of its own."""
        run, cage = self._run, self._cage
        by_volume = {"enforced_by": cage.enforced_by, "dilation": cage.dilation}
        run.keep(
            "cage",
            name=cage.name,
            slice=None,
            ancestors=read_imposed_limits(self._disk.maj_min),
            requested=dict(cage.properties),
            expected={},
            read_back={},
            **({**by_volume, **cloud_to_json(cage)} if cage.is_volume else {}),
        )
        return SupervisedProcesses(run.directory / "supervisor.json", f"{run.request.spool}:{unit}")

    def keep_imposed_again(self, context: LaunchContext) -> None:
        """Keep the imposed limits again, which now count how often each was met."""
        if context.processes.cgroup is None:
            found = read_imposed_limits(self._disk.maj_min)
            self._run.keep("cage", ancestors_after=found)

    def apply_external(self, context: LaunchContext) -> None:
        """Put in force the limits outside of the slice: the driver's, and those of volumes."""
        self._apply(DATA_DISK, partial(self._driver.apply_external, context))
        for name in self._volumes:
            self._apply(name, partial(self._enforce, name))

    def _enforce(self, disk: str) -> ExternalLimits:
        """Start clock, credits, events and account of a simulated volume anew."""
        volume, seed = self._volumes[disk]
        return volume.enforce(self._cage.on_disk(disk), seed)

    def _apply(self, disk: str, apply: Callable[[], ExternalLimits | None]) -> None:
        try:
            external = apply()
        except PagecageError as error:
            raise RequirementMissed.of(Requirement.LIMITS, error.message, error.hint) from None
        if external is not None:
            self._external[disk] = external
            self._run.keep("cage", disk, external=external.to_json())
            asked, held = self._cage.on_disk(disk).properties, external.read_back.items()
            _refuse([f"{external.by} holds {k} at {v}" for k, v in held if asked.get(k) != v])

    def renew_volumes(self) -> None:
        for name in self._volumes:
            if name == DATA_DISK:
                self._enforce(name)
            else:
                self._apply(name, partial(self._enforce, name))

    def keep_accounts(self) -> None:
        for name, (volume, _) in self._volumes.items():
            account = sound_account(volume)
            external = {**self._external[name].to_json(), "account": account}
            self._run.keep("cage", name, external=external)

    def confirm(
        self, context: LaunchContext, is_over: Callable[[], bool], patience_seconds: float = 0.0
    ) -> None:
        """Read back the limits that the driver itself has set, before the workload is let go.

        A container engine that loses a limit reports nothing. Its runtime sets one limit after the
        other, so wait up to `patience_seconds` for a workload that does not wait for `go`.
        """
        page_bytes, external = kernel_page_bytes(), self._external.get(DATA_DISK)
        elsewhere = Cage("", external.read_back if external else {})
        known = self._expected.keys() | expected_read_back(elsewhere, page_bytes).keys()
        asked = expected_read_back(self._cage.cgroup_part, page_bytes)
        own = {key: value for key, value in asked.items() if key not in known}
        if not own:
            return
        name, until = self._run.trial.driver, time.monotonic() + patience_seconds
        cgroup = self._await_driver_cgroup(context, is_over)
        if cgroup is None:
            _refuse([f"{name} has made no cgroup of its own in the slice"])
            return
        found = _read_back(cgroup, self._disk.maj_min)
        while not own.items() <= found["read_back"].items():
            if is_over() or time.monotonic() >= until:
                break
            time.sleep(_POLL_SECONDS)
            later = _read_back(cgroup, self._disk.maj_min)
            # Of a cgroup that goes away, some files are read and others are gone.
            found = later if later["read_back"].keys() >= found["read_back"].keys() else found
        of_slice = {key: self._read_back[key] for key in self._expected}
        self._read_back, self._has_driver_cgroup = found["read_back"] | of_slice, True
        self._expected = self._expected | own
        kept = {"read_back": self._read_back, "ancestors": found["ancestors"]}
        self._run.keep("cage", **kept, expected=self._expected, driver_cgroup=str(cgroup))
        wrong = limits_not_in_force(self._expected, *kept.values())
        _refuse(
            [f"{name} lost them: {'; '.join(wrong)}"] if wrong else [],
            "use --driver docker: limits on our own slice",
        )

    def _await_driver_cgroup(
        self, context: LaunchContext, is_over: Callable[[], bool]
    ) -> Cgroup | None:
        """Return the driver's own cgroup; a workload without a gate may enter it a moment later."""
        own = partial(self._driver.own_cgroup, context)
        wait_until(lambda: own() or is_over(), _START_SECONDS, _POLL_SECONDS)
        return own()

    def require_unchanged(self, context: LaunchContext, *, rewrites_io_max: bool) -> None:
        for held, above in self._read_again(context, rewrites_io_max=rewrites_io_max):
            expected = {key: self._expected.get(key, "max") for key in held}
            wrong = limits_not_in_force(expected, held, above)
            _refuse([f"after their proof, {sentence}" for sentence in wrong])

    def keep_after(self, context: LaunchContext, *, rewrites_io_max: bool) -> None:
        for held, above in self._read_again(context, rewrites_io_max=rewrites_io_max):
            self._run.keep("cage", read_back_after=held, ancestors_after=above)

    def _read_again(
        self, context: LaunchContext, *, rewrites_io_max: bool
    ) -> Iterator[tuple[dict[str, str], dict[str, dict[str, str]]]]:
        """Yield the requested limits and the ancestors'; nothing if there is no cgroup any more."""
        cgroup = context.processes.cgroup
        if cgroup is None:
            return
        own_cgroup = self._driver.own_cgroup(context) if self._has_driver_cgroup else None
        found = _read_back(own_cgroup or cgroup, self._disk.maj_min)
        of_slice = _read_back(cgroup, self._disk.maj_min) if own_cgroup else found
        slice_cage = self._driver.slice_cage(self._cage.cgroup_part)
        on_slice = expected_read_back(slice_cage, kernel_page_bytes())
        held = found["read_back"] | {
            key: of_slice["read_back"].get(key, "missing") for key in on_slice
        }
        kept = [key for key in self._expected if not (rewrites_io_max and "io.max" in key)]
        if found["read_back"] and all(key in held for key in kept):
            yield {key: held[key] for key in kept}, found["ancestors"]


def _read_back(cgroup: Cgroup, maj_min: str, *, only_io: bool = False) -> Json:
    found = {
        one: {k: v for k, v in read_limits(one, maj_min).items() if not only_io or "io.max" in k}
        for one in (cgroup, *ancestors(cgroup))
    }
    return {
        "read_back": found.pop(cgroup),
        "ancestors": {str(above): limits for above, limits in found.items()},
    }


def _refuse(wrong: list[str], hint: str = "pagecage doctor") -> None:
    if wrong:
        reason = f"limits are not as asked: {'; '.join(wrong)}"
        raise RequirementMissed.of(Requirement.LIMITS, reason, hint)


@dataclass(frozen=True)
class Caged:
    """A trial's cage with everything in place but the workload.

    `limits` were proven. `cache` is the evidence of the state of the page cache. `controllers`
    rewrite io.max, one per disk whose limits need it.
    """

    run: TrialRun
    driver: Driver
    context: LaunchContext
    storage: Storage
    files: tuple[Path, ...]
    limits: CageLimits
    cache: JsonView
    sampler: Sampler
    controllers: tuple[IoMaxController, ...] = ()

    @property
    def disk(self) -> Disk:
        return self.context.disk


def make_cage(
    run: TrialRun,
    driver: Driver,
    storage: Storage,
    files: ProgramFiles,
    *,
    inherits_environment: bool,
    is_gated: bool,
) -> tuple[LaunchContext, CageLimits]:
    """Make the trial's slice with its limits, or prepare the supervisor of a trial without one.

    External limits are applied, and every limit is read back. Raises RequirementMissed. With
    `inherits_environment` the workload gets every variable of the agent's environment.
    """
    trial, command = run.trial, run.trial.workload.command
    unit, in_layer = unit_name(trial.trial_id, run.attempt), trial.storage == "container_layer"
    limits = CageLimits(run, driver, storage)
    processes = limits.make_slice(unit) if driver.has_slice else limits.keep_imposed(unit)
    sidecars = tuple(filter(Path.exists, map(sidecar_of, files.paths)))
    names = (name for name in sorted(os.environ) if inherits_environment or name in _INHERITED)
    context = LaunchContext(
        maker=run.session.maker(trial.driver),
        unit=unit,
        processes=processes,
        cage=trial.cage.cgroup_part,
        disk=files.disk,
        programs_dir=Path(run.request.programs_dir),
        spool=run.request.spool,
        data_dir=None if in_layer else storage.data_dir,
        directory=Path(command.directory) if command and command.directory else None,
        paths=() if in_layer else files.paths,
        files=(*files.paths, *sidecars) if in_layer else (),
        environment=tuple(names),
        is_gated=is_gated,
        disks={name: storage.disks[name].disk for name in trial.cage.disks},
        folders=storage.folders,
    )
    run.cleanup.callback(driver.clear, context)
    limits.apply_external(context)
    return context, limits
