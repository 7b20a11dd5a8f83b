"""The rule that names the limit which held back one stretch of time, from counters alone.

The achieved rate alone does not decide. A synchronous reader that a cap holds back reaches 0.6 to
0.98 of the cap, because it waits for the next slice and then computes for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pagecage.model.cage import DATA_DISK, IO_STAT_KEY, MEMORY_EVENT
from pagecage.units import LEAST_PAGE_BYTES

NEAR_CAP = 0.6
"""Least share of its cap that a throttled synchronous reader was seen to reach."""
FULL_CAP = 0.95
"""From this share on, a cap holds the program back whatever the pressure figures are.

Pressure does not count a program that awaits asynchronous reads (io_uring, libaio) as waiting.
"""
WAITING = 0.1
"""Least share of a window in which a task must wait for the wait to count."""
REFAULT_SHARE = 0.1
"""Least share of the pages read that are read again when the memory limit costs reads."""
RECLAIMING = 0.5
"""Share of a window spent in reclaim. A sequential reader that is hardly slowed was seen at 0.3."""
DISK_BUSY = 0.9
DISK_WAITING = 0.5
"""The disk binds if it is nearly always busy and the reader mostly waits for it."""
CPU_BUSY = 0.8
"""CPUs used or waited for: one thread that would compute nearly all the time."""
NAMES = ("bandwidth", "iops", "memory", "device", "cpu", "none")


@dataclass(frozen=True)
class Window:
    """The slice's activity in one stretch of the measured part.

    Waits and CPU figures are in seconds. None means not known.
    """

    start_seconds: float
    """Seconds since `go`."""
    seconds: float
    moved: Mapping[str, float]
    """Bytes and I/Os by io.stat key: rbytes rios wbytes wios."""
    caps: Mapping[str, float]
    """I/O caps in force, by systemd property."""
    waited_io: float | None
    waited_memory: float | None
    waited_cpu: float | None
    refault_pages: float | None
    limit_hits: float | None
    """Times that memory.max or memory.high was met (`max` and `high` of memory.events)."""
    disk_busy: float | None
    cpu: float | None
    throttled: float | None
    disk_requests: float | None = None
    """Requests that the disk completed, after merging; those of other processes included."""
    disk_queued: float | None = None
    """Sum of the times that requests spent at the disk, which excludes waits at a limit."""
    page_bytes: int = LEAST_PAGE_BYTES
    others: Mapping[str, Window] = field(default_factory=dict)
    """The same stretch on each other disk of the cage, by name."""

    @property
    def by_disk(self) -> dict[str, Window]:
        """The window on each disk, the data directory's first."""
        return {DATA_DISK: self, **self.others}


@dataclass(frozen=True)
class BindingLimit:
    """The limit that held one window back: one of NAMES, and for a cap its systemd property.

    `disk` is the disk of a cap, or the one that was busy.
    """

    name: str
    property: str | None = None
    disk: str = DATA_DISK


def cap_name(limit: BindingLimit) -> str | None:
    """Return a cap's property, after the name of its disk unless that is the data directory's.

    None if the limit is no cap.
    """
    if limit.property is None or limit.disk == DATA_DISK:
        return limit.property
    return f"{limit.disk}.{limit.property}"


def full_caps(window: Window) -> list[BindingLimit]:
    """Return the caps that held a window back, the nearest of each disk, the fullest first."""
    found = [(*_nearest_cap(one), name) for name, one in window.by_disk.items()]
    waits = _share(window.waited_io, window) >= WAITING
    held = [one for one in found if one[0] >= FULL_CAP or (one[0] >= NEAR_CAP and waits)]
    return [
        BindingLimit("bandwidth" if "Bandwidth" in prop else "iops", prop, disk)
        for _, prop, disk in sorted(held, key=lambda one: one[0], reverse=True)
    ]


def binding_limit(window: Window, requested: Mapping[str, Any]) -> BindingLimit:
    """Return the limit of one window, by the first rule that applies: cap, memory, device, CPU."""
    if caps := full_caps(window):
        return caps[0]
    if requested.keys() & MEMORY_EVENT.keys() and (
        _suffers_from_reclaim(window) or _sleeps_above_high(window, requested)
    ):
        return BindingLimit("memory")
    busy, disk = max((_share(one.disk_busy, one), name) for name, one in window.by_disk.items())
    if busy >= DISK_BUSY and _share(window.waited_io, window) >= DISK_WAITING:
        return BindingLimit("device", disk=disk)
    computing = _share(window.cpu, window) + _share(window.waited_cpu, window)
    if _share(window.throttled, window) >= WAITING or computing >= CPU_BUSY:
        return BindingLimit("cpu")
    return BindingLimit("none")


def _share(value: float | None, window: Window) -> float:
    return 0.0 if value is None else value / window.seconds


def _nearest_cap(window: Window) -> tuple[float, str]:
    """Return the largest used share of any cap, and that cap's property."""
    used = (
        (window.moved[IO_STAT_KEY[prop]] / window.seconds / cap, prop)
        for prop, cap in window.caps.items()
    )
    return max(used, default=(0.0, ""))


def _suffers_from_reclaim(window: Window) -> bool:
    """Return whether the memory limit was met at a cost: pages read again, or tasks that waited."""
    if not window.limit_hits:
        return False
    read = sum(one.moved["rbytes"] for one in window.by_disk.values())
    reread_share = (window.refault_pages or 0) * window.page_bytes / max(read, 1)
    return reread_share >= REFAULT_SHARE or _share(window.waited_memory, window) >= RECLAIMING


def _sleeps_above_high(window: Window, requested: Mapping[str, Any]) -> bool:
    """Return whether memory.high held tasks asleep.

    A sleep lasts up to two seconds (MEMCG_MAX_HIGH_DELAY_JIFFIES), and only its begin is counted.
    """
    return "MemoryHigh" in requested and _share(window.waited_memory, window) >= RECLAIMING
