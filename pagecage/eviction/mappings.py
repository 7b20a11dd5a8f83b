"""Processes that map files (proc_pid_maps(5)), and the pages that they can be made to give up."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.system.kernel_text import read_text
from pagecage.eviction.files import EvictedFile
from pagecage.process import PROC

_SYS_PROCESS_MADVISE = 440  # the same number on every architecture (kernel 5.10)
_MADV_PAGEOUT = 21
_LIBC = ctypes.CDLL(None, use_errno=True)
_LINE = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) \S{4} [0-9a-f]+ ([0-9a-f]+):([0-9a-f]+) ([0-9]+) +(/.*)$"
)
_DELETED = " (deleted)"
_LOCKED = re.compile(r"^Locked: +([0-9]+) kB$")

Identity = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True)
class FileMapping:
    """One address range in which a process maps a file."""

    start: int
    end: int
    identity: Identity
    path: str
    """Empty for a file that was removed: another one may have its name."""


@dataclass(frozen=True)
class PageHolder:
    """A process that maps a file, with the bytes of it that are locked in memory (mlock(2))."""

    pid: int
    name: str
    mappings: tuple[FileMapping, ...]
    locked_bytes: int = 0

    @property
    def description(self) -> str:
        """The process as a message names it."""
        locked = ", which has locked it in memory" if self.locked_bytes else ""
        return f"{self.name} (pid {self.pid}){locked}"


@dataclass(frozen=True)
class Holders:
    """The processes that map each file, and whether every process could be examined."""

    by_file: dict[Identity, tuple[PageHolder, ...]]
    complete: bool = True


class _Range(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


def parse_maps(text: str) -> Iterator[FileMapping]:
    """Yield the mappings of files in the text of /proc/PID/maps or smaps."""
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
    wanted = {(file.device, file.inode): (file.device, file.inode) for file in files}
    paths = {os.path.realpath(file.path): (file.device, file.inode) for file in files}
    found: dict[Identity, list[PageHolder]] = {}
    complete = True
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        text = read_text(entry / "maps")
        complete = complete and (text is not None or not entry.exists())
        mine: dict[Identity, list[FileMapping]] = {}
        for mapping in parse_maps(text or ""):
            identity = wanted.get(mapping.identity) or paths.get(mapping.path)
            if identity is not None:
                mine.setdefault(identity, []).append(mapping)
        for identity, mappings in mine.items():
            found.setdefault(identity, []).append(_holder(entry, mappings))
    return Holders({key: tuple(holders) for key, holders in found.items()}, complete)


def _holder(entry: Path, mappings: Iterable[FileMapping]) -> PageHolder:
    mappings = tuple(mappings)
    name = (read_text(entry / "comm") or "?").strip()
    locked = locked_bytes(read_text(entry / "smaps") or "", {one.start for one in mappings})
    return PageHolder(int(entry.name), name, mappings, locked)


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
    try:
        reasons = [_page_out_range(descriptor, one) for one in holder.mappings]
    finally:
        os.close(descriptor)
    return next((reason for reason in reasons if reason), None)


def _page_out_range(descriptor: int, mapping: FileMapping) -> str | None:
    where = _Range(mapping.start, mapping.end - mapping.start)
    done = _LIBC.syscall(
        _SYS_PROCESS_MADVISE,
        descriptor,
        ctypes.byref(where),
        ctypes.c_size_t(1),
        _MADV_PAGEOUT,
        0,
    )
    return None if done >= 0 else os.strerror(ctypes.get_errno())
