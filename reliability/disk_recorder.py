"""A disk that keeps all writes: `python -m reliability.disk_recorder IMAGE JOURNAL FILE`.

It serves IMAGE through FUSE over the empty FILE, of which loop(4) makes a block device. Each write
and flush is in JOURNAL before it is answered. It ends when FILE is unmounted.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import select
import struct
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
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


_LIBC = ctypes.CDLL(None, use_errno=True)
_MS_NOSUID_NODEV = 2 | 4
_MOST_DATA_BYTES = 1 << 17
"""The longest read or write that is agreed on: 32 pages, the default of FUSE."""
_IN_HEADER_BYTES, _ARGUMENT_BYTES = 40, 40
_DATA_AT = _IN_HEADER_BYTES + _ARGUMENT_BYTES
_ASYNC_READ_AND_BIG_WRITES = 1 | 1 << 5
_DIRECT_IO = 1
_A_YEAR = 31_536_000
_REGULAR_FILE = 0o100_600


class _Opcode(IntEnum):
    """The requests about a single file (linux/fuse.h)."""

    FORGET = 2
    GETATTR = 3
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    FORGET_SEVERAL = 42


@dataclass(frozen=True)
class _Request:
    """A request. Of a flush, `covers` is the end in the journal of what was answered before it."""

    message: bytes
    covers: int

    @property
    def opcode(self) -> int:
        return int.from_bytes(self.message[4:8], sys.byteorder)

    @property
    def offset(self) -> int:
        return int.from_bytes(self.message[48:56], sys.byteorder)

    @property
    def length(self) -> int:
        return int.from_bytes(self.message[56:60], sys.byteorder)

    @property
    def data(self) -> bytes:
        return self.message[_DATA_AT : _DATA_AT + self.length]


class Recorder:
    """A server of an image through FUSE, which answers one request after another."""

    def __init__(self, image: Path, journal: Path, file: Path) -> None:
        self._image = os.open(image, os.O_RDWR)
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._bytes = os.fstat(self._image).st_size
        self._end = self._answered = 0
        self._waiting: deque[_Request] = deque()
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
        options = f"fd={self._device},rootmode=100000,user_id=0,group_id=0".encode()
        words = (b"recorder", os.fsencode(file), b"fuse", _MS_NOSUID_NODEV, options)
        if _LIBC.mount(*words):
            raise OSError(ctypes.get_errno(), "mount", str(file))

    def serve(self) -> None:
        """Answer until the file is unmounted.

        All that has arrived is received before an answer is sent. So a flush promises nothing about
        a write whose answer its sender did not have yet.
        """
        while self._is_mounted():
            request = self._waiting.popleft()
            error, body = self._act(request)
            if not self._receive():
                return
            if request.opcode not in (_Opcode.FORGET, _Opcode.FORGET_SEVERAL):
                self._reply(request, error, body)
            self._answered = self._end

    def _is_mounted(self) -> bool:
        """Wait for a request. Return False if the file was unmounted."""
        while not self._waiting:
            select.select([self._device], [], [])
            if not self._receive():
                return False
        return True

    def _receive(self) -> bool:
        """Receive what has arrived. Return False if the file was unmounted."""
        while True:
            try:
                message = os.read(self._device, _MOST_DATA_BYTES + 4096)
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return False
                if error.errno not in (errno.ENOENT, errno.EINTR):
                    raise
            else:
                self._waiting.append(_Request(message, self._answered))

    def _act(self, request: _Request) -> tuple[int, bytes]:
        match request.opcode:
            case _Opcode.INIT:
                return 0, _init_body(request.message)
            case _Opcode.GETATTR:
                return 0, _attributes(self._bytes)
            case _Opcode.OPEN:
                return 0, struct.pack("=QII", 0, _DIRECT_IO, 0)
            case _Opcode.READ:
                return 0, os.pread(self._image, request.length, request.offset)
            case _Opcode.WRITE:
                self._record(write_entry(request.offset, request.data))
                os.pwrite(self._image, request.data, request.offset)
                return 0, struct.pack("=II", request.length, 0)
            case _Opcode.FSYNC:
                self._record(flush_entry(request.covers))
                return 0, b""
            case _Opcode.STATFS:
                return 0, bytes(80)
            case _Opcode.RELEASE | _Opcode.FLUSH:
                return 0, b""
            case _:
                return errno.ENOSYS, b""

    def _record(self, entry: bytes) -> None:
        if os.write(self._journal, entry) != len(entry):
            raise OSError(errno.ENOSPC, "the journal is cut off")
        self._end += len(entry)

    def _reply(self, request: _Request, error: int, body: bytes) -> None:
        head = struct.pack("=Ii8s", 16 + len(body), -error, request.message[8:16])
        with suppress(FileNotFoundError):  # the request was interrupted
            os.write(self._device, head + body)


def _init_body(message: bytes) -> bytes:
    _, _, read_ahead, offered = struct.unpack_from("=IIII", message, _IN_HEADER_BYTES)
    flags = offered & _ASYNC_READ_AND_BIG_WRITES
    agreed = struct.pack("=IIIIHHII", 7, 31, read_ahead, flags, 64, 64, _MOST_DATA_BYTES, 1)
    return agreed.ljust(64, b"\0")


def _attributes(length: int) -> bytes:
    numbers = struct.pack("=8Q", _A_YEAR, 0, 1, length, length // 512, 0, 0, 0)
    return numbers + struct.pack("=10I", 0, 0, 0, _REGULAR_FILE, 1, 0, 0, 0, 4096, 0)


def main(words: list[str]) -> None:
    recorder = Recorder(*map(Path, words))
    print("ready", flush=True)
    recorder.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
