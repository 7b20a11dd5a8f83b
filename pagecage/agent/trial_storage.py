"""File systems that are made for a trial: on a disk, in memory, on a simulated volume."""

from __future__ import annotations

import mmap
import os
import shutil
import statistics
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.volume_server import (
    CONTROL_SOCKET,
    PATHS,
    VolumeServer,
    await_device,
    choose_path,
    is_mounted,
    path_latency_us,
    send_command,
)
from pagecage.errors import HostError, PagecageError
from pagecage.linux.block_device import MAKE_EXT4, Disk, resolve_disk
from pagecage.linux.procfs import read_text
from pagecage.model.cage import DATA_DISK
from pagecage.model.json_codec import JsonView
from pagecage.process import find_tool, run
from pagecage.units import BLOCK_BYTES, GIB, MIB, format_bytes

NULL_BLK = Path("/sys/kernel/config/nullb/pagecage")
MAPPER = Path("/dev/mapper/pagecage-delay")
_SPARE_BYTES = 512 * MIB
"""More than a dataset must leave free; null_blk allocates memory only for written blocks."""
_LOOKS = 16
_MAX_SECTORS = 2560  # 1280 KiB, what the kernel gives other disks (BLK_DEF_MAX_SECTORS_CAP)


@dataclass(frozen=True)
class TrialStorage:
    """A disk and the mount point of its file system."""

    disk: Disk
    mount_point: Path


def make_storage(kind: str, latency_us: int, data_bytes: int, spool: Path) -> TrialStorage:
    size_bytes = data_bytes * 6 // 5 + _SPARE_BYTES
    node = make_null_blk(size_bytes, latency_us if kind == "null_blk" else 0)
    if kind == "dm_delay":
        node = _delay(node, latency_us // 1000)
    mount_point = spool / "storage"
    mount_point.mkdir(parents=True, exist_ok=True)
    run([*MAKE_EXT4, "-O", "^has_journal", node], timeout_seconds=300)
    return _mounted(node, mount_point)


def _mounted(node: Path, mount_point: Path) -> TrialStorage:
    run(["mount", "-o", "noatime", node, mount_point], timeout_seconds=60)
    return TrialStorage(resolve_disk(mount_point), mount_point)


def make_null_blk(size_bytes: int, latency_us: int, configfs: Path = NULL_BLK) -> Path:
    """Make a null_blk disk; return its node. Raises HostError if the kernel refuses."""
    run(["modprobe", "null_blk", "nr_devices=0"], timeout_seconds=30)
    settings = {
        "size": -(-size_bytes // MIB),
        "memory_backed": 1,
        "irqmode": 2 if latency_us else 1,
        "completion_nsec": latency_us * 1000,
        "hw_queue_depth": 256,
    }
    try:
        configfs.mkdir()
        for name, value in settings.items():
            (configfs / name).write_text(str(value))
        # 255 sectors would split 128 KiB into two I/Os of io.max. Some kernels lack the setting.
        with suppress(OSError):
            (configfs / "max_sectors").write_text(str(_MAX_SECTORS))
        (configfs / "power").write_text("1")
        index = (configfs / "index").read_text().strip()
    except OSError as error:
        reason = f"null_blk cannot be set up: {error.strerror} ({error.filename})"
        raise HostError(reason, "use HOST=vm") from None
    return _first_node(Path(f"/dev/nullb{index}"), Path("/dev") / configfs.name)


def _first_node(*names: Path) -> Path:
    """Return the node that appears: numbered, since Linux 6.11 named after its configfs folder."""
    missing = HostError(f"{names[0]} did not appear", "use HOST=vm")
    await_device(lambda: any(name.is_block_device() for name in names), missing)
    return next(name for name in names if name.is_block_device())


def _delay(node: Path, milliseconds: int) -> Path:
    if not find_tool("dmsetup"):
        raise HostError("dmsetup is not installed", "apt-get install dmsetup")
    run(["modprobe", "dm-delay"], timeout_seconds=30)
    sectors = int((read_text(Path("/sys/class/block") / node.name / "size") or "0").strip())
    table = f"0 {sectors} delay {node} 0 {milliseconds} {node} 0 0"
    run(["dmsetup", "create", MAPPER.name, "--table", table], timeout_seconds=30)
    return _first_node(MAPPER)


def remove_storage(spool: Path, configfs: Path = NULL_BLK, mapper: Path = MAPPER) -> list[str]:
    """Remove whatever make_storage made, even in part; return the names of what was there."""
    mount_point = spool / "storage"
    removed = []
    if mount_point.is_mount():
        run(["umount", mount_point], timeout_seconds=60)
        removed.append(str(mount_point))
    if mapper.exists():
        run(["dmsetup", "remove", "--retry", mapper.name], timeout_seconds=60)
        removed.append(mapper.name)
    if configfs.exists():
        _remove_null_blk(configfs)
        removed.append(f"null_blk {configfs.name}")
    if mount_point.exists():
        mount_point.rmdir()
    return removed


def _remove_null_blk(configfs: Path) -> None:
    try:
        (configfs / "power").write_text("0")
        configfs.rmdir()
    except OSError as error:
        reason = f"null_blk cannot be removed: {error.strerror}"
        raise PagecageError(reason, "restart the host") from None


def read_latency_us(path: Path) -> float | None:
    """Return the median time of a direct 4 KiB read; None if not supported."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return None
    try:
        blocks = os.fstat(descriptor).st_size // BLOCK_BYTES
        with mmap.mmap(-1, BLOCK_BYTES) as buffer:
            took = []
            for n in range(min(_LOOKS, blocks)):
                begin = time.perf_counter()
                os.preadv(descriptor, [buffer], n * blocks // _LOOKS * BLOCK_BYTES)
                took.append(time.perf_counter() - begin)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return statistics.median(took) * 1e6 if took else None


_UNMOUNT_SECONDS = 60.0
_NOT_REPAIRED = 4  # e2fsck(8): errors are left, or there is no file system


@dataclass(frozen=True)
class MountedVolume:
    """A served volume with its file system. `path` is described in docs/FORMAT.md."""

    server: VolumeServer
    storage: TrialStorage
    path: JsonView


def mount_volume(
    data_bytes: int, data_dir: Path, spool: Path, name: str = DATA_DISK
) -> MountedVolume:
    """Serve and mount a disk's volume; its files are kept. Raises PagecageError."""
    path = choose_path()
    file = data_dir / f"{_named('pagecage-volume', name)}.raw"
    is_new = _ensure_file(file, data_bytes * 6 // 5 + _SPARE_BYTES)
    folder = (spool / _named("volume", name)).resolve()  # as the kernel names it
    folder.mkdir(parents=True, exist_ok=True)
    _unmount(folder)
    server = path.serve(spool / "bin", file, folder)
    try:
        node = path.attach(server, folder)
        found = {"kind": path.name, "latency_us": path_latency_us(node, server.command)}
        return MountedVolume(server, _mount(node, folder, is_new=is_new), found)
    except BaseException:
        _unmount(folder)
        server.end()
        raise


def _mount(node: Path, folder: Path, *, is_new: bool) -> TrialStorage:
    # The last start may have been killed before there was a file system, or in the middle of it.
    if is_new or run(["e2fsck", "-f", "-p", node], check=False).status >= _NOT_REPAIRED:
        run([*MAKE_EXT4, node])
    mount_point = folder / "mounted"
    mount_point.mkdir(exist_ok=True)
    return _mounted(node, mount_point)


def _ensure_file(file: Path, size_bytes: int) -> bool:
    """Return whether the file was made, with its space reserved for writes at the same time."""
    if file.exists() and file.stat().st_size >= size_bytes:
        return False
    file.unlink(missing_ok=True)
    whole = -(-size_bytes // GIB) * GIB
    with file.open("wb") as volume:
        volume.truncate(whole)
    done = run(["fallocate", "--length", str(whole), file], check=False, timeout_seconds=600)
    if "No space left" in done.stderr:
        file.unlink()
        free = format_bytes(shutil.disk_usage(file.parent).free)
        reason = f"of the simulated volume do not fit in {file.parent} ({free} free)"
        hint = "choose a smaller --dataset or another --data-dir"
        raise HostError(f"{format_bytes(whole)} {reason}", hint)
    return True


def bind_copies(names: Iterable[str], data_dir: Path, mounted: MountedVolume) -> None:
    """Show the volume's copy of some folders of the data directory in their place.

    So a command finds the files that a replay copied to this host on the volume, under the paths
    that it was given. A copy that is as the original is kept.
    """
    mount_point = mounted.storage.mount_point
    for name in names:
        original, copy = data_dir / name, mount_point / name
        original.mkdir(exist_ok=True)
        if not copy.is_dir() or _tree(copy) != _tree(original):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(original, copy, symlinks=True)
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
