"""Settings of the host and of its disks that a trial changes, and puts back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagecage.agent.caging import ProgramFiles
from pagecage.agent.facts import describe_disk
from pagecage.agent.limits.calibration import SCRATCH, Calibrator, remove_scratch
from pagecage.agent.limits.fidelity import Fidelity, count_as_provider, latency, not_shared_reason
from pagecage.agent.limits.simulated_volume import SimulatedVolume
from pagecage.agent.limits.simulated_volume import fidelity as volume_fidelity
from pagecage.agent.settings import OF_OURS, DirtyLimits, MemoryReservation
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.agent.trial_storage import read_latency_us
from pagecage.errors import HostError
from pagecage.linux.block_device import Disk, layers_with_queue
from pagecage.model.cage import Cage
from pagecage.model.requirements import Requirement
from pagecage.model.trial import Dataset
from pagecage.units import MIB

_READ_FROM = Dataset(64 * MIB)


def set_queue_settings(run: TrialRun, storage: Storage, files: ProgramFiles) -> None:
    """Set read-ahead and split requests as the provider of each disk counts them.

    Keep all queue settings and the read latency. In a stack of devices every layer is set, since a
    file's read-ahead is that of the topmost device.
    """
    trial, own_disk = run.trial, run.request.own_disk
    if trial.read_ahead_kb is not None:
        run.restore_after(run.session.settings)
        for layer in layers_with_queue(files.disk):
            run.session.settings.set(layer, "read_ahead_kb", str(trial.read_ahead_kb))
    fidelity = _count_as_provider(run, trial.cage, files.disk, storage.volume)
    found_us = read_latency_us(files.paths[0]) if files.paths else None
    is_session_disk = files.disk.maj_min == run.session.disk.maj_min
    run.keep(
        "device",
        **describe_disk(files.disk),
        storage=storage.kind,
        storage_latency_us=storage.latency_us,
        read_latency_us=found_us,
        own_disk=own_disk["file"] if own_disk and is_session_disk else None,
    )
    if trial.cage.latency and not storage.volume:
        made_us, obstacle = storage.latency_us, storage.no_floor_reason
        fidelity.append(latency(trial.cage.latency, made_us, found_us, obstacle))
    if fidelity:
        run.keep("cage", fidelity=[one.to_json() for one in fidelity])
    for name, other in storage.disks.items():
        cage = trial.cage.on_disk(name)
        fidelity = _count_as_provider(run, cage, other.disk, other.volume)
        if cage.latency and not other.volume:
            obstacle = "a disk with a latency is made only for the data"
            fidelity.append(latency(cage.latency, None, None, obstacle))
        kind = "volume" if other.volume else "data"
        run.keep("device", name, **describe_disk(other.disk), storage=kind)
        if fidelity:
            run.keep("cage", name, fidelity=[one.to_json() for one in fidelity])


def _count_as_provider(
    run: TrialRun, cage: Cage, disk: Disk, volume: SimulatedVolume | None
) -> list[Fidelity]:
    if volume:
        return volume_fidelity(cage, volume.path)
    if cage.accounting is None:
        return []
    journal, reason = run.session.settings, not_shared_reason(cage, run.session.facts)
    run.restore_after(journal)
    return count_as_provider(cage.accounting, disk, journal, reason)


def calibrate(
    run: TrialRun, storage: Storage, disk: Disk, slice_cage: Cage, read_from: Path | None
) -> None:
    """Over-drive the limits of each disk, once per machine state and cage, on an idle host."""
    session, driver = run.session, run.trial.driver
    for tracer in (session.tracer, session.block_tracer):
        tracer.wait_until_attached()
    calibrator = session.calibrator(driver).on(disk)
    if storage.is_own:
        maker = session.maker(driver)
        calibrator = Calibrator(maker, disk, storage.data_dir, session.interruption)
    found = dict(calibrator.calibrate(slice_cage, read_from))
    by_volume, scratch = session.volume_calibrator.calibrate, storage.data_dir / SCRATCH
    if storage.volume:
        found |= by_volume(storage.volume, run.trial.cage, read_from, scratch)
    run.keep("cage", calibration=found)
    for name, other in storage.disks.items():
        cage, source = run.trial.cage.on_disk(name), None
        if any("Read" in prop for prop in cage.properties):
            source = run.make_dataset(_READ_FROM, other.root)
        run.cleanup.callback(remove_scratch, other.root)
        if other.volume:
            calibration = by_volume(other.volume, cage, source, other.root / SCRATCH)
        else:
            on_disk = session.calibrator(driver).on(other.disk, other.root)
            calibration = on_disk.calibrate(cage, source)
        run.keep("cage", name, calibration=dict(calibration))


def limit_memory(run: TrialRun) -> None:
    """Leave the guest only the trial's memory. Raises RequirementMissed outside of a guest."""
    wanted, memory = run.trial.machine_memory_bytes, run.session.memory
    if wanted is not None:
        refusal = "memory is taken away only from"
        with _changing_guest(run, memory, Requirement.MACHINE_MEMORY, refusal):
            run.keep("machine_memory", **memory.leave(wanted))


def limit_dirty_pages(run: TrialRun) -> None:
    """Set the dirty limits of a guest if the trial has any, and keep those in force.

    Raises RequirementMissed. On another machine the limits would slow down every other program that
    writes.
    """
    wanted, limits = dict(run.trial.dirty_limits), run.session.dirty_limits
    run.keep("dirty_limits", requested=wanted, in_force=limits.read())
    if wanted:
        refusal = "vm.dirty_bytes is set only in"
        with _changing_guest(run, limits, Requirement.DIRTY_LIMITS, refusal):
            run.keep("dirty_limits", in_force=limits.set(wanted))


@contextmanager
def _changing_guest(
    run: TrialRun, journal: MemoryReservation | DirtyLimits, requirement: Requirement, refusal: str
) -> Iterator[None]:
    if not OF_OURS.exists():
        reason = f"{refusal} a guest that pagecage made, and this machine is none"
        raise RequirementMissed.of(requirement, reason, "use HOST=vm")
    run.restore_after(journal)
    try:
        yield
    except HostError as error:
        raise RequirementMissed.of(requirement, error.message, error.hint) from None
