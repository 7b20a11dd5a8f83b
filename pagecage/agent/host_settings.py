"""Settings of the host and of its disks that a trial changes, and puts back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagecage.agent.caging import ProgramFiles
from pagecage.agent.data_files import make_dataset
from pagecage.agent.facts import describe_disk
from pagecage.agent.limits.calibration import SCRATCH, Calibrator, remove_scratch
from pagecage.agent.limits.fidelity import Fidelity, count_as_provider, latency, not_shared_reason
from pagecage.agent.limits.simulated_volume import fidelity as volume_fidelity
from pagecage.agent.settings import OF_OURS, DirtyLimits, MemoryReservation, QueueSettingsJournal
from pagecage.agent.storage import OtherDisk, Storage
from pagecage.agent.trial_run import NotPrepared, RequirementMissed, TrialRun
from pagecage.agent.trial_storage import read_latency_us
from pagecage.errors import HostError
from pagecage.linux.block_device import Disk, layers_with_queue
from pagecage.model.cage import DATA_DISK, Cage
from pagecage.model.requirements import Requirement
from pagecage.model.trial import Dataset
from pagecage.units import MIB

_READ_FROM = Dataset(64 * MIB)


def require_distinct(storage: Storage, maj_min: str) -> None:
    """Raise RequirementMissed if two names are one disk, for which the kernel has one limit."""
    taken = {maj_min: DATA_DISK}
    for name, other in storage.disks.items():
        if taken.setdefault(other.disk.maj_min, name) != name:
            both = f"{name} and {taken[other.disk.maj_min]} are both {other.disk.node}"
            raise RequirementMissed.of(
                Requirement.OTHER_DISK,
                f"{both}, for which there is one limit",
                "put the files on different disks",
            )


def prepare_settings(run: TrialRun, storage: Storage) -> None:
    """Split requests as each disk's provider counts them, and keep all queue settings."""
    for name, other in storage.disks.items():
        cage = run.trial.cage.on_disk(name)
        if other.volume:
            kind, fidelity = "volume", volume_fidelity(cage, other.volume.path)
        else:
            kind, fidelity = "data", _disk_as_provider(run, cage, other)
        run.keep_of_disk(name, "device", **describe_disk(other.disk), storage=kind)
        if fidelity:
            run.keep_of_disk(name, "cage", fidelity=[one.to_json() for one in fidelity])


def _disk_as_provider(run: TrialRun, cage: Cage, other: OtherDisk) -> list[Fidelity]:
    found = []
    if cage.accounting is not None:
        journal = run.session.settings
        run.cleanup.callback(_restore_disk, run)
        reason = not_shared_reason(cage, run.session.facts)
        found = count_as_provider(cage.accounting, other.disk, journal, reason)
    if cage.latency is not None:
        obstacle = "a disk with a latency is made only for the data"
        found.append(latency(cage.latency, None, None, obstacle))
    return found


def _restore_disk(run: TrialRun) -> None:
    for sentence in run.session.settings.restore():
        run.add_error(sentence)


def calibrate_disks(run: TrialRun, storage: Storage) -> None:
    """Over-drive the limits of each disk, once per machine state, while the host is idle."""
    for name, other in storage.disks.items():
        cage = run.trial.cage.on_disk(name)
        read_from = _file_to_read(run, cage, other)
        run.cleanup.callback(remove_scratch, other.root)
        run.keep_of_disk(name, "cage", calibration=_calibrated(run, cage, other, read_from))


def _calibrated(
    run: TrialRun, cage: Cage, other: OtherDisk, read_from: Path | None
) -> dict[str, object]:
    session = run.session
    if other.volume is not None:
        scratch = other.root / SCRATCH
        return dict(session.volume_calibrator.calibrate(other.volume, cage, read_from, scratch))
    calibrator: Calibrator = session.calibrator(run.trial.driver).on(other.disk, other.root)
    return dict(calibrator.calibrate(cage, read_from))


def _file_to_read(run: TrialRun, cage: Cage, other: OtherDisk) -> Path | None:
    if not any("Read" in name for name in cage.properties):
        return None
    try:
        return make_dataset(
            _READ_FROM, other.root, Path(run.session.request.programs_dir) / "pcgen"
        )
    except HostError as error:
        raise NotPrepared(error.message) from None


def set_queue_settings(run: TrialRun, storage: Storage, files: ProgramFiles) -> None:
    """Set read-ahead and split requests as the provider counts them.

    Keep all queue settings and the read latency. In a stack of devices every layer is set, since a
    file's read-ahead is that of the topmost device.
    """
    wanted_kb, journal = run.trial.read_ahead_kb, run.session.settings
    if wanted_kb is not None:
        run.cleanup.callback(_restore_host, run, journal)
        for layer in layers_with_queue(files.disk):
            journal.set(layer, "read_ahead_kb", str(wanted_kb))
    if storage.volume:
        fidelity = volume_fidelity(run.trial.cage, storage.volume.path)
    else:
        fidelity = _as_provider(run, files.disk)
    found_us = read_latency_us(files.paths[0]) if files.paths else None
    run.keep(
        "device",
        **describe_disk(files.disk),
        storage=storage.kind,
        storage_latency_us=storage.latency_us,
        read_latency_us=found_us,
        own_disk=_file_of_own_disk(run, files.disk),
    )
    if run.trial.cage.latency and not storage.volume:
        fidelity.append(
            latency(run.trial.cage.latency, storage.latency_us, found_us, storage.no_floor_reason)
        )
    if fidelity:
        run.keep("cage", fidelity=[one.to_json() for one in fidelity])


def _file_of_own_disk(run: TrialRun, disk: Disk) -> str | None:
    """Return the file of the disk that the session made; None if another disk is measured."""
    own = run.session.request.own_disk
    return own["file"] if own and disk.maj_min == run.session.disk.maj_min else None


def _as_provider(run: TrialRun, disk: Disk) -> list[Fidelity]:
    cage, journal = run.trial.cage, run.session.settings
    if cage.accounting is None:
        return []
    run.cleanup.callback(_restore_host, run, journal)
    return count_as_provider(
        cage.accounting, disk, journal, not_shared_reason(cage, run.session.facts)
    )


def _restore_host(
    run: TrialRun, journal: QueueSettingsJournal | MemoryReservation | DirtyLimits
) -> None:
    """Restore settings.

    A failure goes into the record, since the disk or the host stays changed.
    """
    for sentence in journal.restore():
        run.add_error(sentence)


def calibrate(
    run: TrialRun, storage: Storage, disk: Disk, slice_cage: Cage, read_from: Path | None
) -> None:
    """Over-drive the limits, once per machine state and cage, while the host is idle."""
    session = run.session
    for tracer in (session.tracer, session.block_tracer):
        tracer.wait_until_attached()
    driver = run.trial.driver
    calibrator = session.calibrator(driver).on(disk)
    if storage.is_own:
        maker = session.maker(driver)
        calibrator = Calibrator(maker, disk, storage.data_dir, session.interruption)
    found = dict(calibrator.calibrate(slice_cage, read_from))
    if storage.volume:
        scratch = storage.data_dir / SCRATCH
        found |= session.volume_calibrator.calibrate(
            storage.volume, run.trial.cage, read_from, scratch
        )
    run.keep("cage", calibration=found)


def reserve_memory(run: TrialRun) -> None:
    """Leave the guest only as much memory as the trial says.

    Raises RequirementMissed outside of a guest.
    """
    wanted = run.trial.machine_memory_bytes
    if wanted is None:
        return
    memory = run.session.memory
    with _changing_guest(run, memory, Requirement.MACHINE_MEMORY, "memory is taken away only from"):
        run.keep("machine_memory", **memory.leave(wanted))


def limit_dirty_pages(run: TrialRun) -> None:
    """Set the dirty limits of a guest if the trial has any, and keep those in force.

    Raises RequirementMissed. On another machine the limits would slow down every other program that
    writes.
    """
    wanted, limits = dict(run.trial.dirty_limits), run.session.dirty_limits
    run.keep("dirty_limits", requested=wanted, in_force=limits.read())
    if not wanted:
        return
    with _changing_guest(run, limits, Requirement.DIRTY_LIMITS, "vm.dirty_bytes is set only in"):
        run.keep("dirty_limits", in_force=limits.set(wanted))


@contextmanager
def _changing_guest(
    run: TrialRun, journal: MemoryReservation | DirtyLimits, requirement: Requirement, refusal: str
) -> Iterator[None]:
    """Change a setting of the whole machine, to be restored after the trial.

    `refusal` begins the message.
    """
    if not OF_OURS.exists():
        reason = f"{refusal} a guest that pagecage made, and this machine is none"
        raise RequirementMissed.of(requirement, reason, "use HOST=vm")
    run.cleanup.callback(_restore_host, run, journal)
    try:
        yield
    except HostError as error:
        raise RequirementMissed.of(requirement, error.message, error.hint) from None
