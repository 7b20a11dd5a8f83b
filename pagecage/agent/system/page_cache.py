"""The page cache of one file: measurement, eviction, loading.

Every change is followed by a measurement.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from pathlib import Path

from pagecage.units import MIB, kernel_page_bytes, page_ceil_bytes

_SYS_CACHESTAT = 451  # the same number on every architecture (kernel 6.5, syscall table)
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_PROT_NONE = 0
_EVICT_TRIES = 6


class _Range(ctypes.Structure):
    _fields_ = (("off", ctypes.c_uint64), ("len", ctypes.c_uint64))


class _CacheStat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("nr_cache", "nr_dirty", "nr_writeback", "nr_evicted", "nr_recently_evicted")
    )


@dataclass(frozen=True)
class CachedPages:
    """Pages of a file in the page cache; `dirty` and `writeback` are among the resident ones."""

    resident: int
    dirty: int
    writeback: int


@dataclass(frozen=True)
class Residency:
    """Resident bytes of a file at one instant, in whole pages, and the method that counted them."""

    resident_bytes: int
    file_bytes: int
    method: str

    @property
    def is_empty(self) -> bool:
        """True if no page of the file is resident."""
        return self.resident_bytes == 0

    @property
    def is_full(self) -> bool:
        """True if every page of the file is resident."""
        return self.resident_bytes >= page_ceil_bytes(self.file_bytes, kernel_page_bytes())


def cachestat_pages(descriptor: int, offset: int = 0, length: int = 0) -> int | None:
    """Return the resident pages in a range (length 0: to the end) by cachestat(2).

    Returns None before kernel 6.5. Raises PermissionError for a file that the user neither owns nor
    may write; mincore(2) reports it as all resident.
    """
    found = cachestat(descriptor, offset, length)
    return None if found is None else found.resident


def cachestat(descriptor: int, offset: int = 0, length: int = 0) -> CachedPages | None:
    """Return the pages of a file in the page cache, under the conditions of cachestat_pages()."""
    where, stat = _Range(offset, length), _CacheStat()
    if _LIBC.syscall(_SYS_CACHESTAT, descriptor, ctypes.byref(where), ctypes.byref(stat), 0) == 0:
        return CachedPages(int(stat.nr_cache), int(stat.nr_dirty), int(stat.nr_writeback))
    error = ctypes.get_errno()
    if error == 38:  # ENOSYS: before kernel 6.5
        return None
    raise OSError(error, os.strerror(error), "cachestat")


def mincore_pages(descriptor: int, size_bytes: int) -> int:
    """Return the resident pages of a file by mincore(2).

    Correct only for files that the user owns or may write.
    """
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
    """Measure how much of a file is in the page cache."""
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        pages = cachestat_pages(file.fileno())
        if pages is not None:
            return Residency(pages * kernel_page_bytes(), size_bytes, "cachestat")
        if not os.access(path, os.W_OK):
            raise PermissionError(
                f"{path} is not writable, so mincore(2) would report it as resident"
            )
        pages = mincore_pages(file.fileno(), size_bytes)
        return Residency(pages * kernel_page_bytes(), size_bytes, "mincore")


def resident_bytes(path: Path) -> int:
    """Return the resident bytes of a file.

    Returns 0 if it is gone, since a command may remove its files.
    """
    try:
        return measure_residency(path).resident_bytes
    except FileNotFoundError:
        return 0


def uptodate_bytes(path: Path) -> int:
    """Return the resident bytes without pages in flight.

    cachestat(2) counts pages that are still being read, mincore(2) does not.
    """
    with path.open("rb") as file:
        return mincore_pages(file.fileno(), os.fstat(file.fileno()).st_size) * kernel_page_bytes()


def evict(path: Path) -> Residency:
    """Write back and drop the file's pages; measure what is left.

    POSIX_FADV_DONTNEED drops only clean, unmapped pages (mm/fadvise.c), hence the measurement, and
    fsync if pages are left. Without a need, fsync costs a flush of the disk: 46 s for 20 000 files.
    """
    with path.open("rb") as file:
        for _ in range(_EVICT_TRIES):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            left = measure_residency(path)
            if left.is_empty:
                return left
            os.fsync(file.fileno())
    return left


def load(path: Path) -> Residency:
    """Read the whole file, which charges its pages to this process's cgroup, and measure it."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        buffer = bytearray(MIB)
        while file.readinto(buffer):
            pass
    return measure_residency(path)
