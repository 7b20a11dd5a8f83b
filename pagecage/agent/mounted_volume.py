"""The file system of a simulated volume that is served for a trial."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.volume_server import (
    CONTROL_SOCKET,
    PATHS,
    VolumeServer,
    choose_path,
    is_mounted,
    path_latency_us,
    send_command,
)
from pagecage.errors import HostError, PagecageError
from pagecage.linux.block_device import MAKE_EXT4, Disk, resolve_disk
from pagecage.model.cage import DATA_DISK
from pagecage.model.json_codec import JsonView
from pagecage.model.volume_model import volume_file_bytes
from pagecage.process import run
from pagecage.units import format_bytes

_UNMOUNT_SECONDS = 60.0
_NOT_REPAIRED = 4  # e2fsck(8): errors are left, or there is no file system


@dataclass(frozen=True)
class MountedVolume:
    """A served volume with its file system. `path` is described in docs/FORMAT.md."""

    server: VolumeServer
    disk: Disk
    mount_point: Path
    path: JsonView


def mount_volume(
    data_bytes: int, data_dir: Path, spool: Path, name: str = DATA_DISK
) -> MountedVolume:
    """Serve and mount a disk's volume; its files are kept. Raises PagecageError."""
    path = choose_path()
    file = data_dir / f"{_named('pagecage-volume', name)}.raw"
    is_new = _ensure_file(file, volume_file_bytes(data_bytes))
    folder = (spool / _named("volume", name)).resolve()  # as the kernel names it
    folder.mkdir(parents=True, exist_ok=True)
    _unmount(folder)
    server = path.serve(spool / "bin", file, folder)
    try:
        node = path.attach(server, folder)
        found = {"kind": path.name, "latency_us": path_latency_us(node, server.command)}
        mount_point = _mount(node, folder, is_new=is_new)
        return MountedVolume(server, resolve_disk(mount_point), mount_point, found)
    except BaseException:
        _unmount(folder)
        server.end()
        raise


def _mount(node: Path, folder: Path, *, is_new: bool) -> Path:
    # The last start may have been killed before there was a file system, or in the middle of it.
    if is_new or run(["e2fsck", "-f", "-p", node], check=False).status >= _NOT_REPAIRED:
        run([*MAKE_EXT4, node])
    mount_point = folder / "mounted"
    mount_point.mkdir(exist_ok=True)
    run(["mount", "-o", "noatime", node, mount_point], timeout_seconds=60)
    return mount_point


def _ensure_file(file: Path, size_bytes: int) -> bool:
    """Return whether the file was made, with its space reserved for writes at the same time."""
    if file.exists() and file.stat().st_size >= size_bytes:
        return False
    file.unlink(missing_ok=True)
    with file.open("wb") as volume:
        volume.truncate(size_bytes)
    done = run(["fallocate", "--length", str(size_bytes), file], check=False, timeout_seconds=600)
    if "No space left" in done.stderr:
        file.unlink()
        free = format_bytes(shutil.disk_usage(file.parent).free)
        reason = f"of the simulated volume do not fit in {file.parent} ({free} free)"
        hint = "choose a smaller --dataset or another --data-dir"
        raise HostError(f"{format_bytes(size_bytes)} {reason}", hint)
    return True


def bind_copies(names: Iterable[str], data_dir: Path, mounted: MountedVolume) -> None:
    """Show the volume's copy of some folders of the data directory in their place.

    So a command finds the files that a replay copied to this host on the volume, under the paths
    that it was given. A copy that is as the original is kept.
    """
    mount_point = mounted.mount_point
    for name in names:
        original, copy = data_dir / name, mount_point / name
        original.mkdir(exist_ok=True)
        if not copy.is_dir() or _tree(copy) != _tree(original):
            shutil.rmtree(copy, ignore_errors=True)
            run(["cp", "--archive", original, copy], timeout_seconds=600)
            run(["sync", "--file-system", mount_point], timeout_seconds=600)
        with (mount_point.parent / "bound").open("a") as noted:
            noted.write(f"{original.resolve()}\n")
        run(["mount", "--bind", copy, original], timeout_seconds=60)


def _tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in folder.rglob("*"):
        stat = path.lstat()
        size_bytes = 0 if path.is_dir() else stat.st_size
        found[str(path.relative_to(folder))] = (stat.st_mode, size_bytes, stat.st_mtime_ns)
    return found


def unmount_volume(spool: Path, name: str | None = None) -> list[str]:
    """Undo mount_volume for a disk (None: all), even in part; return what was there."""
    folders = sorted(spool.glob("volume*")) if name is None else [spool / _named("volume", name)]
    return [one for folder in folders for one in _unmount(folder)]


def release_volume(mounted: MountedVolume, spool: Path, name: str = DATA_DISK) -> None:
    """Undo mount_volume. Data that a paused or slow volume does not take in time are lost."""
    try:
        unmount_volume(spool, name)
    except PagecageError:
        mounted.server.end()  # the kernel fails what waits
        unmount_volume(spool, name)
    mounted.server.end()


def _named(word: str, disk: str) -> str:
    return word if disk == DATA_DISK else f"{word}-{disk}"


def _unmount(folder: Path) -> list[str]:
    folder, removed = folder.resolve(), []
    mount_point, bound = folder / "mounted", folder / "bound"
    for place in map(Path, bound.read_text().splitlines() if bound.exists() else ()):
        while is_mounted(place):
            run(["umount", "--lazy", place], timeout_seconds=_UNMOUNT_SECONDS)
            removed.append(str(place))
    bound.unlink(missing_ok=True)
    if is_mounted(mount_point):
        # Without limits, what is unwritten is soon. A killed server takes no command.
        with suppress(HostError):
            send_command(folder / CONTROL_SOCKET, {"configure": {}})
        run(["umount", "--lazy", "--force", mount_point], timeout_seconds=_UNMOUNT_SECONDS)
        removed.append(str(mount_point))
    return [*removed, *(one for path in PATHS for one in path.detach(folder))]
