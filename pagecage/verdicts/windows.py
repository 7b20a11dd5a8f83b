"""Windows of a trial, and the limit that binds in each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pagecage.model.cage import DATA_DISK, IO_STAT_KEY, MEMORY_EVENT
from pagecage.model.record import Record
from pagecage.units import LEAST_PAGE_BYTES
from pagecage.verdicts.counters import (
    cpu_seconds,
    difference,
    disk_views,
    final_counter,
    io_difference,
    measured_seconds,
    series_on_disk,
    stalled_seconds,
)
from pagecage.verdicts.limits import caps_between, measured_caps
from pagecage.verdicts.verdict import BindingVerdict

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


WINDOW_SECONDS = 0.5
"""Five slices of blk-throttle: a throttled reader moves data once per slice of 100 ms."""
SHORTEST_REMAINDER_SECONDS = 0.01
_EVENTS = tuple(MEMORY_EVENT.values())


def windows_of(record: Record, series: Sequence[Mapping[str, Any]]) -> list[Window]:
    """Return the windows of the measured part.

    If the series is too coarse for one, the counters give a single window over the whole part.
    Empty if the part did not end. A window of a cage with several disks has one for each other
    disk.
    """
    rows = _measured_rows(record, series)
    windows = [_from_rows(record, first, last) for first, last in _window_rows(rows)]
    whole = _whole(record)
    found = windows or ([whole] if whole else [])
    by_disk = {
        name: windows_of(view, series_on_disk(series, name))
        for name, view in disk_views(record).items()
    }
    if any(len(ones) != len(found) for ones in by_disk.values()):
        return windows_of(record, ())  # a series that lacks a disk
    return [
        replace(window, others={name: ones[n] for name, ones in by_disk.items()})
        for n, window in enumerate(found)
    ]


def windows_and_remainder(record: Record, series: Sequence[Mapping[str, Any]]) -> list[Window]:
    """Return the windows, then one for the first and last moments that no window covers."""
    windows, whole = windows_of(record, series), _whole(record)
    remainder = _without(whole, windows) if whole and windows else None
    return [*windows, remainder] if remainder else windows


_FIGURES = (
    "waited_io",
    "waited_memory",
    "waited_cpu",
    "refault_pages",
    "limit_hits",
    "disk_busy",
    "cpu",
    "throttled",
    "disk_requests",
    "disk_queued",
)


def _without(whole: Window, windows: Sequence[Window]) -> Window | None:
    """Return the whole part less its windows; None if next to nothing remains.

    Rounding could make a figure negative, so each is at least zero.
    """
    seconds = whole.seconds - sum(window.seconds for window in windows)
    if seconds < SHORTEST_REMAINDER_SECONDS:
        return None

    def remaining(figure: str) -> float | None:
        total, parts = getattr(whole, figure), [getattr(window, figure) for window in windows]
        return None if total is None or None in parts else max(0.0, total - sum(parts))

    moved = {
        key: max(0.0, count - sum(window.moved[key] for window in windows))
        for key, count in whole.moved.items()
    }
    figures: dict[str, Any] = {figure: remaining(figure) for figure in _FIGURES}
    return replace(whole, seconds=seconds, moved=moved, **figures)


def _measured_rows(record: Record, series: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows between `go` and `end`."""
    if not record.measured:
        return []
    start = record.measured.start_monotonic_seconds
    end = start + record.measured.seconds
    return [row for row in series if start <= row["t"] <= end]


def _window_rows(
    rows: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the first and last row of each whole window."""
    first: Mapping[str, Any] | None = None
    for row in rows:
        if first is None:
            first = row
        elif row["t"] - first["t"] >= WINDOW_SECONDS:
            yield first, row
            first = row


def _growth(first: Mapping[str, Any], last: Mapping[str, Any], *path: str) -> float | None:
    for key in path:
        first, last = (first or {}).get(key), (last or {}).get(key)  # type: ignore[assignment]
    return None if first is None or last is None else float(last) - float(first)  # type: ignore[arg-type]


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _hits(counts: Iterable[float | None]) -> float | None:
    """Return how often memory limits were met; older records do not count memory.high."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _from_rows(record: Record, first: Mapping[str, Any], last: Mapping[str, Any]) -> Window:
    """Return the window between two rows. `io` is empty until the slice touches the disk."""
    assert record.measured is not None
    return Window(
        start_seconds=first["t"] - record.measured.start_monotonic_seconds,
        seconds=last["t"] - first["t"],
        caps=caps_between(record, first["t"], last["t"]),
        moved={
            key: float(last["io"].get(key, 0) - first["io"].get(key, 0))
            for key in IO_STAT_KEY.values()
        },
        waited_io=_scaled(_growth(first, last, "pressure", "io", "some"), 1e-6),
        waited_memory=_scaled(_growth(first, last, "pressure", "memory", "some"), 1e-6),
        waited_cpu=_scaled(_growth(first, last, "pressure", "cpu", "some"), 1e-6),
        refault_pages=_growth(first, last, "memory_stat", "workingset_refault_file"),
        page_bytes=record.page_bytes,
        limit_hits=_hits(_growth(first, last, "memory_events", key) for key in _EVENTS),
        disk_busy=_scaled(_growth(first, last, "disk", "io_ticks"), 1e-3),
        cpu=_scaled(_growth(first, last, "cpu", "usage_usec"), 1e-6),
        throttled=_scaled(_growth(first, last, "cpu", "throttled_usec"), 1e-6),
        disk_requests=_sum(
            _growth(first, last, "disk", "reads"), _growth(first, last, "disk", "writes")
        ),
        disk_queued=_scaled(_growth(first, last, "disk", "weighted_io_ticks"), 1e-3),
    )


def _whole(record: Record) -> Window | None:
    seconds = measured_seconds(record)
    if not seconds or not record.counters.after:
        return None
    return Window(
        start_seconds=0.0,
        seconds=seconds,
        caps=measured_caps(record),
        moved={key: io_difference(record, key) or 0.0 for key in IO_STAT_KEY.values()},
        waited_io=stalled_seconds(record, "io"),
        waited_memory=stalled_seconds(record, "memory"),
        waited_cpu=stalled_seconds(record, "cpu"),
        refault_pages=difference(record, "cgroup", "memory.stat", "workingset_refault_file"),
        page_bytes=record.page_bytes,
        limit_hits=_hits(difference(record, "cgroup", "memory.events", key) for key in _EVENTS),
        disk_busy=_scaled(difference(record, "device", "io_ticks"), 1e-3),
        cpu=cpu_seconds(record),
        throttled=_scaled(difference(record, "cgroup", "cpu.stat", "throttled_usec"), 1e-6),
        disk_requests=_sum(
            difference(record, "device", "reads"), difference(record, "device", "writes")
        ),
        disk_queued=_scaled(difference(record, "device", "weighted_io_ticks"), 1e-3),
    )


_IN_WORDS = {
    "bandwidth": "a bandwidth cap",
    "iops": "an IOPS cap",
    "memory": "the memory limit",
    "device": "the disk itself",
    "cpu": "the CPU",
    "none": "no limit",
}


def judge_binding_limit(record: Record, windows: Sequence[Window]) -> BindingVerdict:
    """Return the limit that held the program back for most of the measured time."""
    kills = final_counter(record, "memory.events", "oom_kill")
    if kills:
        sentence = f"The memory limit ended the trial ({kills} OOM kill{'s' * (kills > 1)})."
        return BindingVerdict("memory", sentence, {"memory": 1.0})
    if not windows:
        return BindingVerdict(
            "none", "The limit is not known, because the measured part did not end.", {}
        )
    requested = record.cage.requested or {}
    found = [({binding_limit(window, requested).name}, window.seconds) for window in windows]
    shares = _shares(found, NAMES)
    name = max(NAMES, key=lambda n: shares.get(n, 0.0))
    held = [
        ({cap_name(limit) for limit in full_caps(window)}, window.seconds) for window in windows
    ]
    caps = _shares(held, cap_names(windows))
    return BindingVerdict(name, _sentence(name, shares, windows), shares, caps)


def cap_names(windows: Sequence[Window]) -> list[str]:
    """Return the names of the caps of all disks, those of the data's disk first."""
    disks = windows[0].by_disk if windows else (DATA_DISK,)
    limits = (BindingLimit("", prop, disk) for disk in disks for prop in IO_STAT_KEY)
    return [name for limit in limits if (name := cap_name(limit))]


def _shares(
    named: Sequence[tuple[Collection[str | None], float]], names: Sequence[str]
) -> dict[str, float]:
    """Return each name's share of the time, without names that have none."""
    total = sum(seconds for _, seconds in named)
    shares = {name: sum(s for found, s in named if name in found) / total for name in names}
    return {name: share for name, share in shares.items() if share}


def _sentence(name: str, shares: Mapping[str, float], windows: Sequence[Window]) -> str:
    seconds = sum(window.seconds for window in windows)

    def percent(figure: str) -> float:
        return 100 * sum(getattr(window, figure) or 0 for window in windows) / seconds

    counted = f"{seconds:.1f} s (in {len(windows)} window{'s' * (len(windows) > 1)})"
    waits = (
        f"for the disk {percent('waited_io'):.0f} % of the time and for memory"
        f" {percent('waited_memory'):.0f} %"
    )
    return (
        f"For {100 * shares.get(name, 0):.0f} % of {counted}, {_IN_WORDS[name]} held the program"
        f" back. It waited {waits}, and kept {percent('cpu') / 100:.2f} CPUs busy."
    )
