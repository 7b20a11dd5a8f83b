"""The content of a file made equal to another's: by shared extents, or by copying what differs."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_FICLONE = 0x40049409  # ioctl_ficlone(2)
_NO_REFLINK = (
    errno.EOPNOTSUPP,
    errno.ENOTTY,
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EPERM,
)
_PUNCH_HOLE, _ZERO_RANGE = 0x02 | 0x01, 0x10 | 0x01  # both with FALLOC_FL_KEEP_SIZE, fallocate(2)
_PIECE_BYTES = 256 * 1024
_SECTOR_BYTES = 512  # the unit of st_blocks, stat(2)
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def reflinks(source: Path, target: Path) -> bool:
    """Return whether files in directory `target` can share extents with files in `source`."""
    probes = [folder / f".pagecage-{os.getpid()}" for folder in (source, target)]
    try:
        probes[0].write_bytes(b"x" * 4096)
        with probes[0].open("rb") as one, probes[1].open("wb") as other:
            return clone(one.fileno(), other.fileno())
    except OSError:  # read-only, or full: a copy reports what is wrong
        return False
    finally:
        for probe in probes:
            with suppress(OSError):
                probe.unlink()


def clone(source: int, target: int) -> bool:
    """Make the target share all extents of the source; return False where that is not possible.

    It is emptied first, because btrfs would allocate a last block that is cut.
    """
    os.ftruncate(target, 0)
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NO_REFLINK:
            return False
        raise
    return True


Pieces = list[tuple[int, int]]
"""Offset and length of each part of a file, in order."""


def copy_differing(source: int, target: int) -> Pieces:
    """Write the pieces of the source that differ in the target; return them.

    Equal pieces keep their blocks on disk. Holes of the source become holes, and blocks that it has
    reserved are reserved: its blocks are allocated by the program or before it, as in the source.
    """
    status = os.fstat(source)
    os.ftruncate(target, status.st_size)
    is_reserved = status.st_blocks * _SECTOR_BYTES >= status.st_size
    written: Pieces = []
    for start, end, is_data in _ranges(source, status.st_size):
        if is_data:
            pieces = ((at, min(_PIECE_BYTES, end - at)) for at in range(start, end, _PIECE_BYTES))
            written += [piece for piece in pieces if _copy_piece(source, target, *piece)]
        elif _clear(target, start, end, is_reserved=is_reserved):
            written.append((start, end - start))
    for descriptor in (source, target):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return written


def _ranges(descriptor: int, size: int) -> Iterator[tuple[int, int, bool]]:
    """Yield start, end and whether they are data of the parts of a file, in order."""
    at = 0
    while at < size:
        data = _seek(descriptor, at, os.SEEK_DATA, size)
        if data > at:
            yield at, data, False
        if data < size:
            at = _seek(descriptor, data, os.SEEK_HOLE, size)
            yield data, at, True
        else:
            at = size


def _seek(descriptor: int, offset: int, whence: int, size: int) -> int:
    """Return the next data or hole from an offset on; `size` if there is none."""
    try:
        return min(size, os.lseek(descriptor, offset, whence))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return size


def _copy_piece(source: int, target: int, start: int, length: int) -> bool:
    """Return whether the piece had to be written."""
    wanted = os.pread(source, length, start)
    end = start + len(wanted)
    is_equal = os.pread(target, length, start) == wanted
    if is_equal and _seek(target, start, os.SEEK_HOLE, end) >= end:
        return False
    _write(target, wanted, start)
    return True


def is_on_disk(source: Path, target: Path, pieces: Pieces) -> bool:
    """Return whether these pieces of the target, read from the disk, equal the source's.

    The target must have been written back: its pages are dropped first.
    """
    with source.open("rb") as one, target.open("rb") as other:
        descriptors = (one.fileno(), other.fileno())
        os.posix_fadvise(descriptors[1], 0, 0, os.POSIX_FADV_DONTNEED)
        found = all(
            os.pread(descriptors[0], size, at) == os.pread(descriptors[1], size, at)
            for start, length in pieces
            for at in range(start, start + length, _PIECE_BYTES)
            for size in [min(_PIECE_BYTES, start + length - at)]
        )
        for descriptor in descriptors:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return found


def _write(descriptor: int, content: bytes, offset: int) -> None:
    while content:
        count = os.pwrite(descriptor, content, offset)
        content, offset = content[count:], offset + count


def _clear(descriptor: int, start: int, end: int, *, is_reserved: bool) -> bool:
    """Make a range read as zeros without data; return whether zeros had to be written."""
    if not is_reserved and _seek(descriptor, start, os.SEEK_DATA, end) >= end:
        return False
    mode, until = _ZERO_RANGE if is_reserved else _PUNCH_HOLE, end
    status = os.fstat(descriptor)
    if end == status.st_size and not is_reserved:  # only a whole block is freed, also the last one
        until = -(-end // status.st_blksize) * status.st_blksize
    if _LIBC.fallocate(descriptor, mode, start, until - start) == 0:
        return False
    error = ctypes.get_errno()
    if error not in (errno.EOPNOTSUPP, errno.ENOSYS):
        raise OSError(error, os.strerror(error))
    for at in range(start, end, _PIECE_BYTES):
        _write(descriptor, bytes(min(_PIECE_BYTES, end - at)), at)
    return True


def sync_file_system(path: Path) -> None:
    """Write back everything that is dirty on the file system of a directory (syncfs(2))."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _LIBC.syncfs(descriptor):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(path))
    finally:
        os.close(descriptor)
