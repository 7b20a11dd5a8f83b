"""Queue settings of a cage's other disks, and the calibration of their limits."""

from __future__ import annotations

from pathlib import Path

from pagecage.agent.data_files import make_dataset
from pagecage.agent.limits.calibrate import SCRATCH, Calibrator, remove_scratch
from pagecage.agent.limits.fidelity import Fidelity, count_as_provider, latency, not_shared_reason
from pagecage.agent.limits.simulated_volume import fidelity as volume_fidelity
from pagecage.agent.storage import OtherDisk, Storage
from pagecage.agent.system.facts import describe_disk
from pagecage.agent.trial_run import NotPrepared, RequirementMissed, TrialRun
from pagecage.errors import HostError
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
            kind, fidelity = "data", _as_provider(run, cage, other)
        run.keep_of_disk(name, "device", **describe_disk(other.disk), storage=kind)
        if fidelity:
            run.keep_of_disk(name, "cage", fidelity=[one.to_json() for one in fidelity])


def _as_provider(run: TrialRun, cage: Cage, other: OtherDisk) -> list[Fidelity]:
    found = []
    if cage.accounting is not None:
        journal = run.session.settings
        run.cleanup.callback(_restore, run)
        reason = not_shared_reason(cage, run.session.facts)
        found = count_as_provider(cage.accounting, other.disk, journal, reason)
    if cage.latency is not None:
        obstacle = "a disk with a latency is made only for the data"
        found.append(latency(cage.latency, None, None, obstacle))
    return found


def _restore(run: TrialRun) -> None:
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
