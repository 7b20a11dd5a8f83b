"""The disks of a cage beside the data directory's, and the folders that a workload names."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pagecage.agent.limits.simulated_volume import SimulatedVolume
from pagecage.agent.storage import OtherDisk, Storage, outer_volume
from pagecage.agent.system.block_device import resolve_disk
from pagecage.agent.system.volume_storage import mount_volume, release_volume
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.errors import PagecageError
from pagecage.model.requirements import Requirement
from pagecage.units import MIB

_PLACE = re.compile(r"\{disk\.([a-z][a-z0-9]*)\}")
_SPARE_BYTES = 256 * MIB
"""Room on a simulated volume for the files that calibration makes."""


def prepare_disks(run: TrialRun, storage: Storage) -> Storage:
    """Return the storage with the cage's other disks, and an empty folder for each named disk.

    Raises RequirementMissed if this host cannot provide a disk.
    """
    disks = {name: _disk_of(run, name) for name in run.trial.cage.disks}
    beside = {
        name: storage.data_dir / _folder(name)
        for name in dict.fromkeys(_named(run))
        if name not in disks
    }
    folders = beside | {name: disk.folder for name, disk in disks.items()}
    for folder in folders.values():
        run.cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    return replace(storage, disks=disks, folders=folders)


def _named(run: TrialRun) -> Iterator[str]:
    """Yield the names of the disks in the arguments of the workload and of the setup step."""
    trial = run.trial
    before = trial.before.arguments if trial.before else ()
    for argument in (*trial.workload.arguments, *before):
        yield from _PLACE.findall(argument)


def _folder(name: str) -> str:
    return f"pagecage-{name}"


def _disk_of(run: TrialRun, name: str) -> OtherDisk:
    if run.trial.cage.is_volume:
        return _on_volume(run, name)
    root = Path(run.session.request.disks[name])
    try:
        root.mkdir(parents=True, exist_ok=True)
        return OtherDisk(resolve_disk(root), root, root / _folder(name))
    except (PagecageError, OSError) as error:
        reason = getattr(error, "message", None) or str(error)
        raise RequirementMissed.of(Requirement.OTHER_DISK, f"{name}: {reason}") from None


def _on_volume(run: TrialRun, name: str) -> OtherDisk:
    """Return a disk of our guest, which its controller serves, or a volume served here."""
    session = run.session
    try:
        if volume := outer_volume(run, name):
            root = Path(session.request.disks[name])
            return OtherDisk(resolve_disk(root), root, root / _folder(name), volume)
        mounted = mount_volume(
            run.trial.writes_bytes + _SPARE_BYTES,
            Path(session.request.data_dir),
            session.request.spool,
            name,
        )
    except (PagecageError, OSError, KeyError) as error:
        reason = f"no simulated volume {name} here: {getattr(error, 'message', None) or error}"
        hint = getattr(error, "hint", "")
        raise RequirementMissed.of(Requirement.VOLUME, reason, hint) from None
    run.cleanup.callback(release_volume, mounted, session.request.spool, name)
    root = mounted.storage.mount_point
    volume = SimulatedVolume(mounted.server.command, mounted.path)
    return OtherDisk(mounted.storage.disk, root, root / _folder(name), volume)
