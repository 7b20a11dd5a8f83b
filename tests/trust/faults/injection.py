"""Points at which a fault can be injected, and the faults that make sense there."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass

from tests.trust.faults import system_calls as calls

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
        """True for a pipe or a socket."""
        return self.target in _STREAMS


@dataclass(frozen=True, order=True)
class Injection:
    """A fault at a point."""

    point: Point
    fault: str

    def __str__(self) -> str:
        point = self.point
        return f"{self.fault} at {point.role}'s {point.call} {point.target} #{point.occurrence}"


def faults_at(point: Point) -> Iterator[str]:
    """Yield the faults of a point, by what the kernel can answer to that call."""
    name = point.call
    yield KILLED
    if name in calls.WRITES:
        yield TORN
        yield "EINTR"
        yield from ("EPIPE", "EIO") if point.is_stream else ("EIO", "ENOSPC", DISK_FULL)
        yield from (CLOCK_BACK, CLOCK_AHEAD)
    elif name in calls.COPIES + calls.CHANGES:
        yield from ("EIO", "ENOSPC", "EACCES")
    elif name in calls.SYNCS:
        yield from ("EIO", "ENOSPC", "EINTR")
    elif name in calls.OPENS:
        yield from ("EIO", "ENOSPC", "EACCES", "EINTR")
    elif name in calls.RENAMES + calls.FOLDERS:
        yield from ("EIO", "ENOSPC", "EACCES")
    elif name in calls.REMOVALS:
        yield from ("EIO", "EACCES")
    elif name in calls.FORKS:
        yield "EAGAIN"
    elif name in calls.EXECS:
        yield from ("EACCES", "EIO")
    elif name in calls.MOUNTS + calls.SIGNALS:
        yield "EACCES"
    elif name in calls.LOCKS:
        yield "EINTR"
    elif name in calls.SOCKETS:
        yield from ("EINTR", "ECONNREFUSED")
