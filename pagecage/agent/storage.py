"""The disk and folder of a trial's files: the data directory's, or a disk made for the trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagecage.agent.limits.fidelity import latency_floor_us, no_floor_reason
from pagecage.agent.limits.simulated_volume import SimulatedVolume
from pagecage.agent.protocol import ask
from pagecage.agent.settings import OF_OURS
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.agent.trial_storage import (
    bind_copies,
    make_storage,
    mount_volume,
    release_volume,
    remove_storage,
)
from pagecage.errors import HostError, PagecageError
from pagecage.linux.block_device import Disk, resolve_disk
from pagecage.model.cage import DATA_DISK
from pagecage.model.requirements import Requirement
from pagecage.model.trial import Trial


@dataclass(frozen=True)
class OtherDisk:
    """A disk of the cage beside the data directory's.

    `root` is the directory that was given for it. `folder` is the trial's own, empty at first.
    `volume` enforces the limits; None if the cgroup does.
    """

    disk: Disk
    root: Path
    folder: Path
    volume: SimulatedVolume | None = None


@dataclass(frozen=True)
class Storage:
    """The disk and data directory of a trial.

    `is_own` is False for the data directory's disk, which all trials of the session share.
    `no_floor_reason` is why the cage's latency floor is not provided; empty if it is, or if the
    cage has none. `volume` enforces the cage's I/O limits; None if the cgroup does. `disks` are the
    cage's other disks by name. `folders` has a folder for each of them, and for each that the
    workload names although the cage does not: that one is on the data directory's disk.
    """

    kind: str
    disk: Disk
    data_dir: Path
    latency_us: int | None = None
    is_own: bool = False
    no_floor_reason: str = ""
    volume: SimulatedVolume | None = None
    disks: Mapping[str, OtherDisk] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)


def prepare_storage(run: TrialRun) -> Storage:
    """Make the disk that the trial needs, or one with its cage's latency floor if possible.

    Raises RequirementMissed if this host cannot make the disk that the trial names.
    """
    kind = run.trial.storage
    if run.trial.cage.is_volume:
        return _on_volume(run)
    if kind == "container_layer":
        return _beside_layers(run)
    if kind == "data":
        return _with_latency_floor(run)
    try:
        return _made(run, kind, run.trial.storage_latency_us or 0)
    except (PagecageError, OSError) as error:
        reason = f"no {kind} here: {getattr(error, 'message', None) or error}"
        raise RequirementMissed.of(Requirement.STORAGE, reason) from None


def _shared(run: TrialRun, reason: str = "") -> Storage:
    return Storage(
        "data", run.session.disk, Path(run.session.request.data_dir), no_floor_reason=reason
    )


def _with_latency_floor(run: TrialRun) -> Storage:
    latency_us = latency_floor_us(run.trial.cage)
    if not latency_us:
        return _shared(run)
    if reason := no_floor_reason(run.trial, OF_OURS.exists()):
        return _shared(run, reason)
    try:
        return _made(run, "null_blk", latency_us)
    except (
        PagecageError,
        OSError,
    ) as error:  # the record says so, and the trial runs without the floor
        return _shared(run, getattr(error, "message", None) or str(error))


def _on_volume(run: TrialRun) -> Storage:
    """Return the data disk of our guest, which its controller serves, or a volume served here.

    A guest in a fleet has no such controller, and serves the volume itself.
    """
    try:
        volume = outer_volume(run)
        return replace(_shared(run), kind="volume", volume=volume) if volume else _own_volume(run)
    except (PagecageError, OSError) as error:
        reason = f"no simulated volume here: {getattr(error, 'message', None) or error}"
        hint = getattr(error, "hint", "")
        raise RequirementMissed.of(Requirement.VOLUME, reason, hint) from None


def outer_volume(run: TrialRun, disk: str = DATA_DISK) -> SimulatedVolume | None:
    """Return the volume of a disk if the controller serves it, else None."""
    session = run.session

    def command(command: Mapping[str, Any]) -> dict[str, Any]:
        details = {"command": dict(command), "disk": disk}
        return dict(ask(session.stream, session.inbox, "volume_wanted", details)["answer"])

    volume = SimulatedVolume(command)
    if not OF_OURS.exists():
        return None
    try:
        volume.free()
    except HostError:
        return None
    run.cleanup.callback(volume.free)
    return volume


def _own_volume(run: TrialRun) -> Storage:
    trial, spool = run.trial, run.session.request.spool
    data_dir = Path(run.session.request.data_dir)
    copies = list(dict.fromkeys(_copied_folders(trial, data_dir)))
    copied_bytes = sum(map(_tree_bytes, (data_dir / name for name in copies)))
    mounted = mount_volume(trial.dataset_bytes + trial.writes_bytes + copied_bytes, data_dir, spool)
    run.cleanup.callback(release_volume, mounted, spool)
    bind_copies(copies, data_dir, mounted)
    storage = mounted.storage
    volume = SimulatedVolume(mounted.server.command, mounted.path)
    return Storage("volume", storage.disk, storage.mount_point, is_own=True, volume=volume)


def _copied_folders(trial: Trial, data_dir: Path) -> Iterator[str]:
    """Yield the folders of the data directory that hold what a replay copied to this host."""
    command, data = trial.workload.command, trial.data
    paths = (command.directory if command else None, data.copied_to if data else None)
    for path in paths:
        if path is not None and Path(path).is_relative_to(data_dir) and Path(path) != data_dir:
            yield Path(path).relative_to(data_dir).parts[0]


def _tree_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _made(run: TrialRun, kind: str, latency_us: int) -> Storage:
    spool = run.session.request.spool
    run.cleanup.callback(remove_storage, spool)
    made = make_storage(kind, latency_us, run.trial.dataset_bytes + run.trial.writes_bytes, spool)
    return Storage(kind, made.disk, made.mount_point, latency_us, is_own=True)


def _beside_layers(run: TrialRun) -> Storage:
    """Return a folder on the engine's disk, from which files can be linked into a container."""
    folder = Path(run.sections["cage"]["driver"]["engine"]["data_root"]) / "pagecage-data"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return Storage("container_layer", resolve_disk(folder), folder, is_own=True)
    except PagecageError as error:
        raise RequirementMissed.of(Requirement.STORAGE, error.message, error.hint) from None
