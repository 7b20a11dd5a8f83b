"""Bytes of a file that must come from disk, by extents (Documentation/filesystems/fiemap.rst)."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

_FS_IOC_FIEMAP = 0xC020660B
_HEADER = struct.Struct(
    "=QQLLLL"
)  # start, length, flags, extents mapped, extents that fit, reserved
_EXTENT = struct.Struct("=QQQ2QL3L")  # logical, physical, length, reserved, flags, reserved
_EXTENTS_A_CALL = 128
_LAST = 0x1
# UNKNOWN, DELALLOC, ENCODED (compressed or encrypted), DATA_INLINE, DATA_TAIL, UNWRITTEN
# (include/uapi/linux/fiemap.h)
_TAKES_NO_REQUEST_OF_ITS_SIZE = 0x2 | 0x4 | 0x8 | 0x200 | 0x400 | 0x800
_WHOLE = (1 << 64) - 1


def on_disk_bytes(path: Path) -> int:
    """Return the bytes in written extents of equal length on disk and in the file.

    Returns 0 without support for FIEMAP.
    """
    with path.open("rb") as file:
        block_bytes = os.fstatvfs(file.fileno()).f_bsize
        size = -(-os.fstat(file.fileno()).st_size // block_bytes) * block_bytes
        total, start = 0, 0
        while extents := _extents(file.fileno(), start):
            total += sum(
                length for _, length, flags in extents if not flags & _TAKES_NO_REQUEST_OF_ITS_SIZE
            )
            offset, length, flags = extents[-1]
            if flags & _LAST:
                break
            start = offset + length
    return min(total, size)


def _extents(descriptor: int, start: int) -> list[tuple[int, int, int]]:
    """Return offset, length and flags of the extents from `start` that fit into one call."""
    room = _HEADER.size + _EXTENTS_A_CALL * _EXTENT.size
    asked = bytearray(
        _HEADER.pack(start, _WHOLE - start, 0, 0, _EXTENTS_A_CALL, 0).ljust(room, b"\0")
    )
    try:
        fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, asked)
    except OSError:  # EOPNOTSUPP: tmpfs, network file systems
        return []
    mapped = _HEADER.unpack_from(asked)[3]
    found = [_EXTENT.unpack_from(asked, _HEADER.size + n * _EXTENT.size) for n in range(mapped)]
    return [(one[0], one[2], one[5]) for one in found]
