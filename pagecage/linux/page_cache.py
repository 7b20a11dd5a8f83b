"""Pages of files in memory: counted, loaded and evicted, with their holders and lower caches."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import shlex
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from pagecage.errors import PagecageError
from pagecage.linux.block_device import SYS, Disk, find_mount, stack_names
from pagecage.linux.procfs import name_of, read_text
from pagecage.model.json_codec import Json
from pagecage.process import PROC
from pagecage.units import MIB, kernel_page_bytes, page_ceil_bytes

_SYS_CACHESTAT = 451  # the same number on every architecture (kernel 6.5, syscall table)
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_PROT_NONE = 0
_EVICT_TRIES = 6
_PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class Residency:
    """Resident bytes of a file at one instant, in whole pages, and the call that counted them.

    Pages that are `dirty` or in `writeback` are among them; None where mincore(2) counted.
    """

    resident_bytes: int
    file_bytes: int
    method: str
    dirty: int | None = None
    writeback: int | None = None

    @property
    def pages(self) -> int:
        return self.resident_bytes // kernel_page_bytes()

    @property
    def is_empty(self) -> bool:
        return self.resident_bytes == 0

    @property
    def is_full(self) -> bool:
        return self.resident_bytes >= page_ceil_bytes(self.file_bytes, kernel_page_bytes())


def cachestat_pages(descriptor: int, offset: int = 0, length: int = 0) -> int | None:
    """Return the resident pages in a range (length 0: to the end) by cachestat(2).

    Returns None before kernel 6.5. Raises PermissionError for a file that the user neither owns nor
    may write; mincore(2) reports it as all resident.
    """
    return next(iter(_cachestat(descriptor, offset, length)), None)


def _cachestat(descriptor: int, offset: int = 0, length: int = 0) -> list[int]:
    """Return the pages that are resident, dirty, and in writeback; empty before kernel 6.5."""
    where = (ctypes.c_uint64 * 2)(offset, length)
    # cache, dirty, writeback, evicted, recently evicted (include/uapi/linux/mman.h)
    found = (ctypes.c_uint64 * 5)()
    if _LIBC.syscall(_SYS_CACHESTAT, descriptor, where, found, 0) == 0:
        return found[:3]
    error = ctypes.get_errno()
    if error == errno.ENOSYS:
        return []
    raise OSError(error, os.strerror(error), "cachestat")


def mincore_pages(descriptor: int, size_bytes: int) -> int:
    """Return the resident pages of a file that the user owns or may write, by mincore(2)."""
    if size_bytes == 0:
        return 0
    address = _LIBC.mmap(None, size_bytes, _PROT_NONE, mmap.MAP_SHARED, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap for mincore failed")
    try:
        pages = ctypes.create_string_buffer(-(-size_bytes // kernel_page_bytes()))
        if _LIBC.mincore(address, size_bytes, pages) != 0:
            raise OSError(ctypes.get_errno(), "mincore failed")
        return sum(byte & 1 for byte in pages.raw)
    finally:
        _LIBC.munmap(address, size_bytes)


def measure_residency(path: Path) -> Residency:
    with path.open("rb") as file:
        size_bytes, method = os.fstat(file.fileno()).st_size, "cachestat"
        pages = cachestat_pages(file.fileno())
        if pages is None:
            if not os.access(path, os.W_OK):
                reason = "is not writable, so mincore(2) would report it as resident"
                raise PermissionError(f"{path} {reason}")
            pages, method = mincore_pages(file.fileno(), size_bytes), "mincore"
    return Residency(pages * kernel_page_bytes(), size_bytes, method)


def resident_bytes(path: Path) -> int:
    """Return 0 for a file that is gone, since a command may remove its files."""
    try:
        return measure_residency(path).resident_bytes
    except FileNotFoundError:
        return 0


def uptodate_bytes(path: Path) -> int:
    """Return the resident bytes without pages that are being read, which cachestat(2) counts."""
    with path.open("rb") as file:
        return mincore_pages(file.fileno(), os.fstat(file.fileno()).st_size) * kernel_page_bytes()


def evict(path: Path) -> Residency:
    with path.open("rb") as file:
        return _drop(file.fileno(), partial(measure_residency, path))


def _drop(descriptor: int, count: Callable[[], Residency]) -> Residency:
    """Drop pages; fsync only if dirty ones are left, which took 46 s for 20 000 files."""
    for attempt in range(_EVICT_TRIES):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        left = count()
        if left.is_empty:
            break
        with suppress(OSError):  # a file system without it, such as a read-only squashfs
            os.fsync(descriptor)
        time.sleep(_PAUSE_SECONDS * attempt)
    return left


def load(path: Path) -> Residency:
    """Read the whole file, which charges its pages to this process's cgroup, and measure it."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        buffer = bytearray(MIB)
        while file.readinto(buffer):
            pass
    return measure_residency(path)


_LVM_CACHES = {
    **dict.fromkeys(("cpool", "cdata", "cmeta", "cvol"), "dm-cache"),
    **dict.fromkeys(("vdata", "vpool"), "VDO"),
}
"""Last part of the dm/uuid of LVM's hidden volumes (lib/activate/dev_manager.c of LVM2)."""


def caches_below(disk: Disk, *, is_evicted: bool, sys: Path = SYS) -> list[Json]:
    """Return each layer of the disk's stack with a cache of its own: `{layer, kind}`.

    A loop device also has the `file` below it, its `file_bytes`, and its `resident_bytes`, which
    are null if it cannot be read. With `is_evicted`, its pages are dropped before they are counted.
    """
    found: list[Json] = []
    for name in stack_names(disk, sys):
        place = sys / "class/block" / name
        uuid = (read_text(place / "dm/uuid") or "").strip()
        lvm_cache = _LVM_CACHES.get(uuid.rpartition("-")[2]) if uuid.startswith("LVM-") else None
        if backing := read_text(place / "loop/backing_file"):
            file, file_bytes, resident = Path(backing.strip()), None, None
            if (read_text(place / "loop/dio") or "").strip() == "1":
                resident = 0  # it bypasses the page cache
            else:
                with suppress(OSError):
                    state = evict(file) if is_evicted else measure_residency(file)
                    file_bytes, resident = state.file_bytes, state.resident_bytes
            sizes = {"file_bytes": file_bytes, "resident_bytes": resident}
            found.append({"layer": name, "kind": "loop", "file": str(file), **sizes})
        elif (place / "bcache").exists():
            found.append({"layer": name, "kind": "bcache"})
        elif kind := "VDO" if uuid.startswith("VDO-") else lvm_cache:
            found.append({"layer": name, "kind": kind})
    return found


_IN_MEMORY = "whose files are the page cache itself"
_BY_KERNEL = "whose files the kernel makes up"
# File systems whose page cache cannot be dropped, or is not where the data are kept.
_REFUSED = {
    **dict.fromkeys(("tmpfs", "ramfs", "devtmpfs", "hugetlbfs"), _IN_MEMORY),
    **dict.fromkeys(("proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs"), _BY_KERNEL),
    "zfs": "which has a cache of its own (ARC) that cannot be counted",
}


@dataclass(frozen=True)
class EvictedFile:
    """A file: its path, its identity, and its file system."""

    path: Path
    device: int
    inode: int
    filesystem: str

    @property
    def identity(self) -> Identity:
        return self.device, self.inode


Identity = tuple[int, int]
"""Device and inode."""


def find_files(paths: Iterable[str]) -> list[EvictedFile]:
    """Return the regular files among and below the paths, each once; links below are skipped.

    Raises PagecageError for a path that does not exist, that cannot be read, that has no regular
    file, or whose file system keeps no page cache that can be dropped.
    """
    found: dict[Identity, EvictedFile] = {}
    kinds: dict[int, str] = {}
    for text in paths:
        if not text or "\0" in text:
            raise PagecageError(f"{text!r} is not a valid path", "name files or directories")
        path = Path(text)
        try:
            device = os.stat(path).st_dev  # noqa: PTH116 - Path.exists() hides the reason
        except OSError as error:
            _refuse(path, error)
        if device not in kinds:
            kinds[device] = _filesystem(path)
        files = list(_regular_files(path))
        if not files:
            raise PagecageError(f"{path} contains no regular file", f"ls -la {shlex.quote(text)}")
        for (device, inode), file in files:
            if device not in kinds:
                kinds[device] = _filesystem(file)
            found.setdefault((device, inode), EvictedFile(file, device, inode, kinds[device]))
    if not found:
        raise PagecageError("no file was given", "name files or directories")
    return list(found.values())


def _regular_files(path: Path) -> Iterator[tuple[Identity, Path]]:
    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # a directory that is gone by now
            _refuse(path, error)

    walked = (
        os.walk(path, onerror=refuse)
        if path.is_dir()
        else iter([(str(path.parent), list[str](), [path.name])])
    )
    for folder, folders, names in walked:
        folders.sort()
        for file in (Path(folder, name) for name in sorted(names)):
            try:
                status = file.stat(follow_symlinks=file == path)
            except FileNotFoundError:
                continue
            except OSError as error:
                _refuse(file, error)
            if stat.S_ISREG(status.st_mode):
                yield (status.st_dev, status.st_ino), file


def _refuse(path: Path, error: OSError) -> NoReturn:
    place = error.filename or path
    if isinstance(error, FileNotFoundError):
        hint = f"ls -la {shlex.quote(str(path.parent))}"
        raise PagecageError(f"{place} does not exist", hint) from None
    message = f"{place} cannot be read: {error.strerror}"
    raise PagecageError(message, "run as its owner or as root") from None


def _filesystem(file: Path) -> str:
    kind = find_mount(file).filesystem
    if reason := _REFUSED.get(kind):
        message = f"{file} is on {kind}, {reason}, so it cannot be made cold"
        raise PagecageError(message, "copy it to a disk with ext4, XFS or btrfs")
    return kind


def count_pages(file: EvictedFile) -> Residency:
    """Count a file's pages.

    Raises FileNotFoundError if the file is gone, and PagecageError if the kernel hides the pages of
    another user's file.
    """
    with _opened(file) as descriptor:
        return _count(file, descriptor)


def evict_pages(file: EvictedFile) -> Residency:
    """Write back and drop a file's pages; return what is left. Raises as count_pages()."""
    with _opened(file) as descriptor:
        return _drop(descriptor, partial(_count, file, descriptor))


@contextmanager
def _opened(file: EvictedFile) -> Iterator[int]:
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        _refuse(file.path, error)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _count(file: EvictedFile, descriptor: int) -> Residency:
    status = os.fstat(descriptor)
    is_visible = os.geteuid() in (0, status.st_uid) or os.access(file.path, os.W_OK)
    if not is_visible:  # mm/mincore.c: mincore(2) would report all pages as resident
        reason = "belongs to another user and is read-only, so the kernel hides its pages"
        raise PagecageError(f"{file.path} {reason}", "run as its owner or as root")
    # cachestat(2) sees no page on overlayfs: they are in the cache of the file below.
    found = [] if file.filesystem == "overlay" else _cachestat(descriptor)
    method, size_bytes = "cachestat" if found else "mincore", status.st_size
    pages, *states = found or [mincore_pages(descriptor, size_bytes)]
    return Residency(pages * kernel_page_bytes(), size_bytes, method, *states)


_SYS_PROCESS_MADVISE = 440  # the same number on every architecture (kernel 5.10)
_MADV_PAGEOUT = 21
_LINE = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) \S{4} [0-9a-f]+ ([0-9a-f]+):([0-9a-f]+) ([0-9]+) +(/.*)$"
)
_DELETED = " (deleted)"
_LOCKED = re.compile(r"^Locked: +([0-9]+) kB$")


@dataclass(frozen=True)
class FileMapping:
    """One address range in which a process maps a file.

    `path` is empty for a file that was removed: another one may have its name.
    """

    start: int
    end: int
    identity: Identity
    path: str


@dataclass(frozen=True)
class PageHolder:
    """A process that maps a file, with the bytes of it that are locked in memory (mlock(2))."""

    pid: int
    name: str
    mappings: tuple[FileMapping, ...]
    locked_bytes: int = 0

    @property
    def description(self) -> str:
        locked = ", which has locked it in memory" if self.locked_bytes else ""
        return f"{self.name} (pid {self.pid}){locked}"


@dataclass(frozen=True)
class Holders:
    """The processes that map each file, and whether every process could be examined."""

    by_file: dict[Identity, tuple[PageHolder, ...]]
    complete: bool = True


def parse_maps(text: str) -> Iterator[FileMapping]:
    for line in text.split("\n"):
        if match := _LINE.match(line):
            device = os.makedev(int(match[3], 16), int(match[4], 16))
            path = "" if match[6].endswith(_DELETED) else match[6].replace("\\012", "\n")
            identity = device, int(match[5])
            yield FileMapping(int(match[1], 16), int(match[2], 16), identity, path)


def holders_of(files: Collection[EvictedFile], proc: Path = PROC) -> Holders:
    """Return the processes that map any of these files.

    A mapping is recognised by device and inode, or by its path: on btrfs and overlayfs the device
    in /proc/PID/maps is not that of stat(2).
    """
    wanted = {file.identity for file in files}
    paths = {os.path.realpath(file.path): file.identity for file in files}
    found: dict[Identity, tuple[PageHolder, ...]] = {}
    complete = True
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        text = read_text(entry / "maps")
        complete = complete and (text is not None or not entry.exists())
        mine: dict[Identity, list[FileMapping]] = {}
        for mapping in parse_maps(text or ""):
            is_known = mapping.identity in wanted
            identity = mapping.identity if is_known else paths.get(mapping.path)
            if identity is not None:
                mine.setdefault(identity, []).append(mapping)
        for identity, mappings in mine.items():
            smaps = read_text(entry / "smaps") or ""
            locked = locked_bytes(smaps, {one.start for one in mappings})
            name = name_of(entry.name, proc)
            holder = PageHolder(int(entry.name), name, tuple(mappings), locked)
            found[identity] = (*found.get(identity, ()), holder)
    return Holders(found, complete)


def locked_bytes(smaps: str, starts: Collection[int]) -> int:
    """Return the locked bytes of the mappings with these start addresses, from /proc/PID/smaps."""
    total, counts = 0, False
    for line in smaps.split("\n"):
        if match := re.match(r"^([0-9a-f]+)-[0-9a-f]+ ", line):
            counts = int(match[1], 16) in starts
        elif counts and (locked := _LOCKED.match(line)):
            total += 1024 * int(locked[1])
    return total


def page_out(holder: PageHolder) -> str | None:
    """Make a process give up its clean pages of a file, by process_madvise(2) with MADV_PAGEOUT.

    Pages that another process maps too, and locked pages, stay (mm/madvise.c). Returns why the
    kernel refused; None if it did not.
    """
    try:
        descriptor = os.pidfd_open(holder.pid)
    except OSError as error:
        return None if isinstance(error, ProcessLookupError) else error.strerror
    reason = None
    try:
        for one in holder.mappings:
            where = (ctypes.c_size_t * 2)(one.start, one.end - one.start)  # struct iovec
            arguments = where, ctypes.c_size_t(1), _MADV_PAGEOUT, 0
            if _LIBC.syscall(_SYS_PROCESS_MADVISE, descriptor, *arguments) < 0:
                reason = reason or os.strerror(ctypes.get_errno())
    finally:
        os.close(descriptor)
    return reason
