"""Block devices: the disk below a path, what lies below it, extents of files, disks by loop."""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import statistics
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pagecage.errors import HostError, PagecageError
from pagecage.linux.procfs import PROC, read_device, read_text
from pagecage.process import run
from pagecage.units import BLOCK_BYTES

SYS = Path("/sys")
_LOOKS = 16
"""Number of direct reads whose median time is a disk's latency."""
# File systems that are not on one local disk: systemd would set no limit, and report it only in the
# journal.
REFUSED = {
    "overlay": "an overlay of other file systems",
    **dict.fromkeys(("tmpfs", "ramfs"), "memory"),
    "zfs": "a ZFS pool",
    **dict.fromkeys(("nfs", "nfs4", "cifs", "9p", "virtiofs"), "another machine"),
    "fuse": "a user-space file system",
}
CGROUP_WRITEBACK = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs")
"""File systems whose writeback belongs to the cgroup that made the pages dirty (SB_I_CGROUPWB).

Those of ext4's driver lose it with data=journal, where the journal's thread writes the data.
"""
QUEUE_SETTINGS = (
    *("read_ahead_kb", "scheduler", "max_sectors_kb", "max_hw_sectors_kb", "nr_requests"),
    *("rotational", "optimal_io_size", "logical_block_size", "write_cache"),
)


@dataclass(frozen=True)
class Disk:
    """A disk. `stack` lists the devices between the file system and the disk, topmost first."""

    name: str
    maj_min: str
    node: str
    filesystem: str
    mount_point: str
    stack: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mount:
    """One line of /proc/self/mountinfo (proc_pid_mountinfo(5))."""

    maj_min: str
    mount_point: str
    filesystem: str
    source: str
    options: str = ""
    root: str = "/"

    @property
    def has_cgroup_writeback(self) -> bool:
        """True if buffered writes are charged to the cgroup of the writer when they are flushed."""
        is_journalled = "data=journal" in self.options.split(",")
        return not is_journalled and not {*self.filesystem.split("/")}.isdisjoint(CGROUP_WRITEBACK)


def parse_mountinfo(text: str) -> list[Mount]:
    """Return all mounts in order; a later mount hides an earlier one on the same mount point."""
    mounts = []
    # A mount point may contain characters that splitlines() treats as line ends.
    for line in text.split("\n"):
        left, _, right = line.partition(" - ")
        head, tail = left.split(" "), [*right.split(" "), ""]
        if len(head) > 4 and len(tail) > 2:
            root, mount_point = (
                re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)
                for word in head[3:5]
            )
            mounts.append(Mount(head[2], mount_point, tail[0], tail[1], tail[2], root))
    return mounts


def find_mount(directory: Path, mountinfo: str | None = None) -> Mount:
    """Return a directory's mount: the one with the longest mount point, the last of equals."""
    path = Path(os.path.realpath(directory))
    mounts = parse_mountinfo(read_mountinfo() if mountinfo is None else mountinfo)
    above = [m for m in mounts if f"{path}/".startswith(m.mount_point.rstrip("/") + "/")]
    if above:
        return max(reversed(above), key=lambda m: len(m.mount_point))
    # /proc/self/mountinfo lists only mounts within a chroot's root (proc_pid_mountinfo(5)). The
    # device number of a file system on one disk is the disk's.
    try:
        device = path.stat().st_dev
        done = run(["stat", "--file-system", "--format=%T", path], timeout_seconds=10)
    except (OSError, PagecageError):
        reason = f"{path} is on no known mount"
        raise HostError(reason, "name a directory on a local disk") from None
    return Mount(f"{os.major(device)}:{os.minor(device)}", "/", done.stdout.strip(), "")


def _btrfs_device(mount: Mount, sys: Path) -> str:
    """Return the device of a btrfs on one disk; its own device number is anonymous."""
    for members in sys.glob("fs/btrfs/*/devices"):
        names = [member.name for member in members.iterdir()]
        if Path(os.path.realpath(mount.source)).name in names:
            if len(names) > 1:
                reason = f"is btrfs on {len(names)} disks, where one limit cannot be placed"
                hint = "point --data-dir at a file system on one disk"
                raise HostError(f"{mount.mount_point} {reason}", hint)
            return (sys / "class/block" / names[0] / "dev").read_text().strip()
    reason = f"the disk of btrfs on {mount.mount_point} was not found"
    raise HostError(reason, "point --data-dir at ext4 or XFS")


def descend(maj_min: str, sys: Path = SYS) -> tuple[str, tuple[str, ...]]:
    """Walk from a block device to its disk: through single dm layers, then from partition to disk.

    Return the disk's maj:min and the device names passed on the way. Several lower devices (RAID)
    end the walk, unless all are partitions of one disk: the limit is then set on the md or dm
    device. systemd walks by the same rule (block_get_originating in src/shared/blockdev-util.c).
    """
    stack: list[str] = []
    while True:
        place = (sys / "dev/block" / maj_min).resolve()
        if not place.exists():
            reason = f"block device {maj_min} is not in sysfs"
            raise HostError(reason, "point --data-dir at a local disk")
        stack.append(place.name)
        slaves = sorted(slave.resolve() for slave in place.glob("slaves/*"))
        disks = {slave.parent if (slave / "partition").exists() else slave for slave in slaves}
        if len(disks) == 1:
            maj_min = (slaves[0] / "dev").read_text().strip()
        elif (place / "partition").exists():
            maj_min = (place.parent / "dev").read_text().strip()
        else:
            return maj_min, tuple(stack)


def read_mountinfo() -> str:
    return read_text(PROC / "self/mountinfo") or ""


def resolve_disk(directory: Path, sys: Path = SYS, mountinfo: str | None = None) -> Disk:
    """Return the disk behind a directory. Raises HostError unless it is one local disk."""
    mount = find_mount(directory, mountinfo)
    kind = "fuse" if mount.filesystem.startswith("fuse") else mount.filesystem.split(".")[0]
    is_anonymous = mount.maj_min.startswith("0:")
    if kind in REFUSED or (is_anonymous and kind != "btrfs"):
        what = ", which is on no local disk"
        if kind in REFUSED:
            what = f" ({REFUSED[kind]}), where I/O limits cannot bind"
        hint = "point --data-dir at a directory on ext4, XFS or single-disk btrfs"
        raise HostError(f"{directory} is on {mount.filesystem}{what}", hint)
    maj_min, stack = descend(_btrfs_device(mount, sys) if is_anonymous else mount.maj_min, sys)
    name = (sys / "dev/block" / maj_min).resolve().name
    return Disk(name, maj_min, f"/dev/{name}", mount.filesystem, mount.mount_point, stack)


def read_queue_settings(disk: Disk, sys: Path = SYS) -> dict[str, str]:
    queue = sys / "block" / disk.name / "queue"
    texts = {setting: read_text(queue / setting) for setting in QUEUE_SETTINGS}
    return {setting: text.strip() for setting, text in texts.items() if text is not None}


def layers_with_queue(disk: Disk, sys: Path = SYS) -> list[Disk]:
    """Return the disk and the layers above it; a partition has the queue of its disk."""
    names = [name for name in disk.stack if _has_queue(name, sys)]
    return [replace(disk, name=name) for name in dict.fromkeys([*names, disk.name])]


def stack_names(disk: Disk, sys: Path = SYS) -> tuple[str, ...]:
    """Return the layers and partitions above the disk, itself, and what it lies on, topmost first.

    Below a RAID are its members, and below a loop device is the disk of its file.
    """
    names = dict.fromkeys([*disk.stack, disk.name])
    below = [disk.name]
    while below:
        members = _members(below.pop(), sys)
        below += [name for name in members if name not in names]
        names.update(dict.fromkeys(members))
    return tuple(names)


def _members(name: str, sys: Path) -> list[str]:
    place = (sys / "class/block" / name).resolve()
    members = [member.name for member in sorted(place.glob("slaves/*"))]
    if (place / "partition").exists():
        members.append(place.parent.name)
    if backing := read_text(place / "loop/backing_file"):
        with suppress(OSError):
            device = Path(backing.strip()).stat().st_dev
            lower = sys / "dev/block" / f"{os.major(device)}:{os.minor(device)}"
            members += [lower.resolve().name] if lower.exists() else []  # FUSE lies on no disk
    return members


def read_lower_device(disk: Disk, sys: Path = SYS, proc: Path = PROC) -> dict[str, int] | None:
    """Return /proc/diskstats of the only disk below all layers; None if there is none."""
    names = stack_names(disk, sys)
    layers = [name for name in names if _has_queue(name, sys)]
    lowest = [name for name in names if not _members(name, sys)]
    if len(layers) < 2 or len(lowest) != 1:
        return None
    return read_device((read_text(sys / "block" / lowest[0] / "dev") or "").strip(), proc)


def _has_queue(name: str, sys: Path) -> bool:
    return (sys / "block" / name / "queue").exists()


def write_queue_setting(disk: Disk, setting: str, value: str, sys: Path = SYS) -> None:
    """Set a queue setting. Raises HostError if the kernel refuses it or stores another value."""
    path = sys / "block" / disk.name / "queue" / setting
    try:
        path.write_text(value)
        stored = path.read_text().strip()
    except OSError as error:
        reason = f"{path} cannot be set to {value}: {error.strerror}"
        raise HostError(reason, "run as root, or leave it out") from None
    if stored != value and f"[{value}]" not in stored:
        reason = f"{path} was set to {value} but reads {stored}"
        raise HostError(reason, "choose a value that the disk takes")


_FS_IOC_FIEMAP = 0xC020660B
# Start, length, flags, extents mapped, extents that fit, reserved.
_HEADER = struct.Struct("=QQLLLL")
_EXTENT = struct.Struct("=QQQ2QL3L")  # logical, physical, length, reserved, flags, reserved
_EXTENTS_A_CALL = 128
_LAST = 0x1
# UNKNOWN, DELALLOC, ENCODED (compressed or encrypted), DATA_INLINE, DATA_TAIL, UNWRITTEN
# (include/uapi/linux/fiemap.h)
_TAKES_NO_REQUEST_OF_ITS_SIZE = 0x2 | 0x4 | 0x8 | 0x200 | 0x400 | 0x800
_WHOLE = (1 << 64) - 1


def read_latency_us(path: Path) -> float | None:
    """Return the median time of direct reads of 4 KiB of a file; None if not supported."""
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


def on_disk_bytes(path: Path) -> int:
    """Return the bytes in written extents, as long on disk as in the file; 0 without FIEMAP."""
    with path.open("rb") as file:
        block_bytes = os.fstatvfs(file.fileno()).f_bsize
        size = -(-os.fstat(file.fileno()).st_size // block_bytes) * block_bytes
        total, start, flags = 0, 0, 0
        while not flags & _LAST:
            header = _HEADER.pack(start, _WHOLE - start, 0, 0, _EXTENTS_A_CALL, 0)
            asked = bytearray(header.ljust(_HEADER.size + _EXTENTS_A_CALL * _EXTENT.size, b"\0"))
            try:
                fcntl.ioctl(file, _FS_IOC_FIEMAP, asked)
            except OSError:  # EOPNOTSUPP: tmpfs, network file systems
                break
            mapped = _HEADER.unpack_from(asked)[3]
            if not mapped:
                break
            for n in range(mapped):
                extent = _EXTENT.unpack_from(asked, _HEADER.size + n * _EXTENT.size)
                offset, _, length, _, _, flags = extent[:6]
                total += 0 if flags & _TAKES_NO_REQUEST_OF_ITS_SIZE else length
                start = offset + length
    return min(total, size)


MAKE_EXT4 = (
    *("mke2fs", "-q", "-F", "-t", "ext4", "-m", "0"),
    *("-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"),
)
"""mke2fs(8) without work that a kernel thread would do later, in a measured part."""
_MOUNT_POINT = "disk"


@dataclass(frozen=True)
class LoopDisk:
    """A file that becomes a disk with room for `size_bytes`."""

    file: Path
    size_bytes: int

    def attach(self, spool: Path) -> Path:
        """Attach and mount the disk; return its mount point.

        The file is made if it is missing or too small, and made again if it cannot be mounted.
        Raises HostError if the kernel or the file system below cannot make a disk of it.
        """
        mount_point = spool / _MOUNT_POINT
        mount_point.mkdir(parents=True, exist_ok=True)
        try:
            if not self.file.is_file() or self.file.stat().st_size < self.size_bytes:
                self._make()
            try:
                _mount(self.file, mount_point)
            except PagecageError:
                self._make()
                _mount(self.file, mount_point)
        except (PagecageError, OSError) as error:
            detach_loop_disk(spool)
            reason = getattr(error, "message", None) or str(error)
            hint = "add --yes to change the settings of the disk below instead, or use --host vm"
            raise HostError(f"{self.file} cannot become a disk: {reason}", hint) from None
        return mount_point

    def _make(self) -> None:
        part = self.file.with_name(f".{self.file.name}.part")
        self.file.unlink(missing_ok=True)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, self.size_bytes)
            run([*MAKE_EXT4, part], timeout_seconds=300)
            part.replace(self.file)
        finally:
            part.unlink(missing_ok=True)


def _mount(file: Path, mount_point: Path) -> None:
    """Mount by mount(8), which leaves both or neither when killed; bypass the cache below."""
    run(["mount", "-t", "ext4", "-o", "loop,noatime", file, mount_point], timeout_seconds=60)
    node = Path(find_mount(mount_point).source)
    run(["losetup", "--direct-io=on", node], timeout_seconds=30)
    if (read_text(SYS / "block" / node.name / "loop/dio") or "").strip() != "1":
        raise HostError(f"{node} takes no direct I/O")


def detach_loop_disk(spool: Path) -> list[str]:
    mount_point = spool / _MOUNT_POINT
    if not mount_point.is_mount():
        return []
    node = find_mount(mount_point).source
    run(["umount", mount_point], timeout_seconds=60)
    return [node]
