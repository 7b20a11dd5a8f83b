"""Points at which a fault can be injected, and the faults that make sense there."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass

from reliability.faults import system_calls as calls

KILLED, TORN, CLOCK_BACK, CLOCK_AHEAD = "SIGKILL", "torn write", "clock back", "clock ahead"
NO_ANSWER, DISK_FULL = "no answer", "disk full"
NUMBERS = {
    name: getattr(errno, name)
    for name in ("EIO", "ENOSPC", "EINTR", "EACCES", "EPIPE", "EAGAIN", "ECONNREFUSED")
}
CLOCK_JUMPS = {CLOCK_BACK: -3600.0, CLOCK_AHEAD: 10 * 365 * 86400.0}
"""Seconds by which a fault sets the clock."""

_STREAMS = ("pipe", "socket", "/told", "/frames")
"""Targets whose reader may end; the last two are the files that take standard output here."""


@dataclass(frozen=True, order=True)
class Point:
    """A call of one kind of process (`role`) on one target; `occurrence` counts its like from 1."""

    role: str
    call: str
    target: str
    occurrence: int

    @property
    def is_stream(self) -> bool:
        return self.target in _STREAMS


@dataclass(frozen=True, order=True)
class Injection:
    point: Point
    fault: str

    def __str__(self) -> str:
        point = self.point
        return f"{self.fault} at {point.role}'s {point.call} {point.target} #{point.occurrence}"


_REFUSED = ("EIO", "ENOSPC", "EACCES")
_BY_CALL = {
    **dict.fromkeys(calls.COPIES + calls.CHANGES + calls.RENAMES + calls.FOLDERS, _REFUSED),
    **dict.fromkeys(calls.SYNCS, ("EIO", "ENOSPC", "EINTR")),
    **dict.fromkeys(calls.OPENS, (*_REFUSED, "EINTR")),
    **dict.fromkeys(calls.REMOVALS, ("EIO", "EACCES")),
    **dict.fromkeys(calls.FORKS, ("EAGAIN",)),
    **dict.fromkeys(calls.EXECS, ("EACCES", "EIO")),
    **dict.fromkeys(calls.MOUNTS + calls.SIGNALS, ("EACCES",)),
    **dict.fromkeys(calls.LOCKS, ("EINTR",)),
    **dict.fromkeys(calls.SOCKETS, ("EINTR", "ECONNREFUSED")),
}
_OF_WRITES = (TORN, "EINTR", "EIO", CLOCK_BACK, CLOCK_AHEAD)


def faults_at(point: Point) -> Iterator[str]:
    """Yield the faults of a point, by what the kernel can answer to that call."""
    yield KILLED
    if point.call in calls.WRITES:
        yield from _OF_WRITES
        yield from ("EPIPE",) if point.is_stream else ("ENOSPC", DISK_FULL)
    else:
        yield from _BY_CALL[point.call]
