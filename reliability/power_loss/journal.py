"""The journal of a recorded disk, and the image that a power loss at any place of it leaves.

What a finished flush covers is on the disk. Of the later writes, any may be there or not, in any
order, and with some of its sectors alone.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEAD = struct.Struct("<cQQ")
_WRITE, _FLUSH = b"w", b"f"
_TORN_SHARE = 0.3
"""The share of the kept writes that are torn."""


def write_entry(offset: int, data: bytes) -> bytes:
    return _HEAD.pack(_WRITE, offset, len(data)) + data


def flush_entry(covers: int) -> bytes:
    return _HEAD.pack(_FLUSH, covers, 0)


@dataclass(frozen=True)
class Write:
    """A write whose entry ends at the byte `end` of the journal."""

    end: int
    offset: int
    data: memoryview


@dataclass(frozen=True)
class Flush:
    """A flush whose entry ends at the byte `end`, and which covers all writes until `covers`."""

    end: int
    covers: int


def read_journal(path: Path) -> tuple[Write | Flush, ...]:
    return tuple(_entries(memoryview(path.read_bytes())))


def _entries(content: memoryview) -> Iterator[Write | Flush]:
    end = 0
    while end < len(content):
        kind, number, length = _HEAD.unpack_from(content, end)
        begin = end + _HEAD.size
        end = begin + length
        yield Write(end, number, content[begin:end]) if kind == _WRITE else Flush(end, number)


@dataclass(frozen=True)
class Cut:
    """A power loss behind the byte `position` of the journal, after so many reports.

    Each write that no flush covers is kept with the probability `kept_share`.
    """

    number: int
    position: int
    reports: int
    sector_bytes: int
    kept_share: float


@dataclass(frozen=True)
class Loss:
    """Numbers of writes that no flush covered, of the kept ones and of the torn ones of these."""

    uncovered: int
    kept: int
    torn: int


class Disk:
    """The image of a disk at cuts, which are asked for in the order of their positions."""

    def __init__(self, base: Path, entries: tuple[Write | Flush, ...]) -> None:
        self._covered = bytearray(base.read_bytes())
        self._writes = [one for one in entries if isinstance(one, Write)]
        self._flushes = [one for one in entries if isinstance(one, Flush)]
        self._done = 0

    def after(self, cut: Cut, chooser: random.Random) -> tuple[bytearray, Loss]:
        """Return the image that a cut leaves, and what it lost."""
        covers = (one.covers for one in self._flushes if one.end <= cut.position)
        self._cover(max(covers, default=0))
        image = bytearray(self._covered)
        uncovered = [one for one in self._writes[self._done :] if one.end <= cut.position]
        kept = [one for one in uncovered if chooser.random() < cut.kept_share]
        chooser.shuffle(kept)
        torn = 0
        for write in kept:
            is_torn = len(write.data) > cut.sector_bytes and chooser.random() < _TORN_SHARE
            torn += is_torn
            for begin in range(0, len(write.data), cut.sector_bytes):
                if not is_torn or chooser.random() < 0.5:
                    sector = write.data[begin : begin + cut.sector_bytes]
                    at = write.offset + begin
                    image[at : at + len(sector)] = sector
        return image, Loss(len(uncovered), len(kept), torn)

    def _cover(self, end: int) -> None:
        while self._done < len(self._writes) and self._writes[self._done].end <= end:
            write = self._writes[self._done]
            self._covered[write.offset : write.offset + len(write.data)] = write.data
            self._done += 1
