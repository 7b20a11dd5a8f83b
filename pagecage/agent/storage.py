"""The disks and folders of a trial's files: those of the host, or made for the trial."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pagecage.agent.data_files import SPARE_BYTES, leave_room
from pagecage.agent.limits.calibration import SimulatedVolume
from pagecage.agent.mounted_volume import (
    MountedVolume,
    bind_copies,
    mount_volume,
    release_volume,
)
from pagecage.agent.protocol import ask
from pagecage.agent.settings import OF_OURS
from pagecage.agent.trial_run import TrialRun
from pagecage.errors import HostError, PagecageError
from pagecage.linux.block_device import Disk, find_mount, resolve_disk
from pagecage.model.cage import DATA_DISK, Cage
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.requirements import MissedRequirement, Requirement, RequirementMissed
from pagecage.model.trial import Trial

_PLACE = re.compile(r"\{disk\.([a-z][a-z0-9]*)\}")


@dataclass(frozen=True)
class TrialDisk:
    """A disk of a trial, with the directory on it that was given, or the mount point.

    `is_own` is True if it was made for this trial. `volume` enforces the limits; None if the cgroup
    does.
    """

    kind: str
    disk: Disk
    directory: Path
    is_own: bool = False
    volume: SimulatedVolume | None = None


@dataclass(frozen=True)
class Storage:
    """The disks and folders of a trial.

    `disks` are those of the cage by name, the data directory's first. `folders` has a folder for
    each of the others, and for each that the workload names although the cage does not: that one
    is on the data directory's disk. `layers` are the directories of the image's layers.
    `data_directory` has the prepared data, if any.
    """

    disks: Mapping[str, TrialDisk]
    folders: Mapping[str, Path] = field(default_factory=dict)
    layers: tuple[Path, ...] = ()
    data_directory: Path | None = None

    @property
    def data(self) -> TrialDisk:
        return self.disks[DATA_DISK]

    @property
    def data_dir(self) -> Path:
        return self.data.directory

    def measured_on(self, disk: Disk) -> Storage:
        """Return the storage of a program whose files are on this disk."""
        return replace(self, disks={**self.disks, DATA_DISK: replace(self.data, disk=disk)})


def prepare_storage(run: TrialRun, provided: JsonView) -> Storage:
    """Find or make the trial's disks and folders. `provided` comes from the driver."""
    provider, cage, before = _Provider(run), run.trial.cage, run.trial.before
    disks = {DATA_DISK: provider.data_disk(provided)}
    disks |= {name: provider.other_disk(name) for name in cage.disks}
    words = (*run.trial.workload.arguments, *(before.arguments if before else ()))
    named = dict.fromkeys([*(name for word in words for name in _PLACE.findall(word)), *cage.disks])
    folders = {
        name: disks[name if name in cage.disks else DATA_DISK].directory / f"pagecage-{name}"
        for name in named
    }
    for folder in folders.values():
        run.cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    return Storage(disks, folders, tuple(map(Path, provided.get("image", {}).get("layers", ()))))


def _reason(error: Exception) -> str:
    return getattr(error, "message", None) or str(error)


class _Provider:
    """Provides the disks of one trial. Every method raises RequirementMissed."""

    def __init__(self, run: TrialRun) -> None:
        self._run, self._trial, self._data_dir = run, run.trial, run.data_dir
        self._spool = run.request.spool
        self._shared = TrialDisk("data", run.session.disk, self._data_dir)

    def data_disk(self, provided: JsonView) -> TrialDisk:
        """Return the disk of the host's data directory, or the one that the trial asks for."""
        if self._trial.cage.is_volume:
            return self._on_volume()
        if self._trial.storage == "container_layer":
            # On the engine's disk, from which files can be linked into a container.
            folder = Path(provided["engine"]["data_root"]) / "pagecage-data"
            folder.mkdir(parents=True, exist_ok=True)
            try:
                return TrialDisk("container_layer", resolve_disk(folder), folder, is_own=True)
            except PagecageError as error:
                raise RequirementMissed.of(Requirement.STORAGE, error.message, error.hint) from None
        return self._shared

    def _on_volume(self) -> TrialDisk:
        """Return our guest's data disk, which its controller serves, or a volume served here."""
        trial, data_dir = self._trial, self._data_dir
        try:
            if volume := self._outer_volume():
                return replace(self._shared, kind="volume", volume=volume)
            copies = list(dict.fromkeys(_copied_folders(trial, data_dir)))
            paths = (path for name in copies for path in (data_dir / name).rglob("*"))
            copied_bytes = sum(path.lstat().st_size for path in paths if not path.is_dir())
            needed_bytes = trial.dataset_bytes + trial.writes_bytes + copied_bytes
            mounted = self._mounted(needed_bytes)
            leave_room(mounted.mount_point, [trial], needed_bytes + SPARE_BYTES)
            bind_copies(copies, data_dir, mounted)
        except (PagecageError, OSError) as error:
            raise _no_volume("simulated volume", error) from None
        return _served(mounted)

    def _mounted(self, size_bytes: int, name: str = DATA_DISK) -> MountedVolume:
        mounted = mount_volume(size_bytes, self._data_dir, self._spool, name)
        self._run.cleanup.callback(release_volume, mounted, self._spool, name)
        return mounted

    def _outer_volume(self, disk: str = DATA_DISK) -> SimulatedVolume | None:
        session = self._run.session

        def command(command: JsonView) -> Json:
            details = {"command": dict(command), "disk": disk}
            return dict(ask(session.stream, session.inbox, "volume_wanted", details)["answer"])

        volume = SimulatedVolume(command)
        if not OF_OURS.exists():
            return None
        try:
            volume.free()
        except HostError:
            return None
        self._run.cleanup.callback(volume.free)
        return volume

    def other_disk(self, name: str) -> TrialDisk:
        """Return another disk of the cage: a volume, or the disk of the directory given for it."""
        given = self._run.request.disks
        if not self._trial.cage.is_volume:
            root = Path(given[name])
            try:
                root.mkdir(parents=True, exist_ok=True)
                return TrialDisk("data", resolve_disk(root), root)
            except (PagecageError, OSError) as error:
                reason = f"{name}: {_reason(error)}"
                raise RequirementMissed.of(Requirement.OTHER_DISK, reason) from None
        try:
            if volume := self._outer_volume(name):
                root = Path(given[name])
                return TrialDisk("volume", resolve_disk(root), root, volume=volume)
            return _served(self._mounted(self._trial.writes_bytes + SPARE_BYTES, name))
        except (PagecageError, OSError, KeyError) as error:
            raise _no_volume(f"simulated volume {name}", error) from None


def _served(mounted: MountedVolume) -> TrialDisk:
    volume = SimulatedVolume(mounted.server.command, mounted.path)
    return TrialDisk("volume", mounted.disk, mounted.mount_point, is_own=True, volume=volume)


def _no_volume(what: str, error: Exception) -> RequirementMissed:
    hint = getattr(error, "hint", "")
    return RequirementMissed.of(Requirement.VOLUME, f"no {what} here: {_reason(error)}", hint)


def _copied_folders(trial: Trial, data_dir: Path) -> Iterator[str]:
    """Yield the folders of the data directory that hold what a replay copied to this host."""
    command, data = trial.workload.command, trial.data
    for path in (command.directory if command else None, data.copied_to if data else None):
        if path is not None and Path(path).is_relative_to(data_dir) and Path(path) != data_dir:
            yield Path(path).relative_to(data_dir).parts[0]


def check_disks(facts: JsonView, cage: Cage) -> list[MissedRequirement]:
    """Return why the cage's other disks cannot be those of a host.

    The kernel keeps one limit per disk, so that two names of one disk would share it. Volumes that
    are simulated need no disk.
    """
    if cage.is_volume:
        return []
    found, taken = facts.get("disks") or {}, {facts["disk"].get("maj_min"): DATA_DISK}
    missed = []
    for name in cage.disks:
        disk = found.get(name) or {"error": f"this host has no disk {name!r}"}
        reason = disk.get("error")
        if reason is None and (other := taken.get(disk["maj_min"])):
            reason = f"{name} and {other} are both {disk['node']}, for which there is one limit"
        taken[disk.get("maj_min")] = name
        if reason:
            reason = f"{cage.name} limits a disk {name!r} of its own, but {reason}"
            hint = f"use --host vm, or name a directory on another disk: --disk {name}=DIR"
            missed.append(MissedRequirement(Requirement.OTHER_DISK, reason, hint))
    return missed


def require_distinct(storage: Storage) -> None:
    """Raise RequirementMissed if two names are one disk, for which the kernel has one limit."""
    taken: dict[str, str] = {}
    for name, one in storage.disks.items():
        if (other := taken.setdefault(one.disk.maj_min, name)) != name:
            both = f"{name} and {other} are both {one.disk.node}"
            reason = f"{both}, for which there is one limit"
            hint = "put the files on different disks"
            raise RequirementMissed.of(Requirement.OTHER_DISK, reason, hint)


def require_cgroup_writeback(cage: Cage, storage: Storage) -> None:
    """Raise RequirementMissed if a limit on writes would not hold for buffered writes to a disk.

    Its limit reads back well, and direct writes and the program's own fsync keep it. The kernel's
    flusher does not: its writes are charged to the root cgroup
    (Documentation/admin-guide/cgroup-v2.rst, "Writeback").
    """
    limits = cage.cgroup_part.by_disk
    limited = ((storage.disks[name].disk, one.properties) for name, one in limits.items())
    for reason in unlimited_writes(limited):
        hint = "put the data on ext4 (without data=journal), XFS or btrfs, or remove these limits"
        raise RequirementMissed.of(Requirement.LIMITS, reason, hint)


def unlimited_writes(
    limited: Iterable[tuple[Disk, Mapping[str, int]]], mountinfo: str | None = None
) -> Iterator[str]:
    """Yield a sentence per disk with a limit on writes and without writeback by cgroup."""
    for disk, properties in limited:
        names = [name for name in properties if name.startswith("IOWrite")]
        mount_point = Path(disk.mount_point)
        if names and not find_mount(mount_point, mountinfo).has_cgroup_writeback:
            yield (
                f"{disk.mount_point} is {disk.filesystem} with writeback outside of the trial's"
                f" cgroup, where {' and '.join(names)} would not hold for buffered writes"
            )
