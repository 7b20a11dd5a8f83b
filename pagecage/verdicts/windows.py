"""Windows of a trial, and the limit that binds in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import median
from typing import Any

from pagecage.model.cage import DATA_DISK, IO_STAT_KEY, MEMORY_EVENT
from pagecage.model.record import Record
from pagecage.model.record_sections import Row
from pagecage.units import LEAST_PAGE_BYTES
from pagecage.verdicts.counters import (
    Rows,
    cpu_seconds,
    difference,
    disk_views,
    final_counter,
    growth,
    io_difference,
    measured_seconds,
    series_on_disk,
    stalled_seconds,
)
from pagecage.verdicts.limits import cap_changes, caps_between, measured_caps
from pagecage.verdicts.verdict import BindingVerdict

NEAR_CAP = 0.6
"""Least share of its cap that a throttled synchronous reader was seen to reach."""
FULL_CAP = 0.95
"""From this share on, a cap holds the program back whatever the pressure: that does not count a
program that awaits asynchronous reads (io_uring, libaio) as waiting."""
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
_IN_WORDS = {
    "bandwidth": "a bandwidth cap",
    "iops": "an IOPS cap",
    "memory": "the memory limit",
    "device": "the disk itself",
    "cpu": "the CPU",
    "none": "no limit",
}
NAMES = tuple(_IN_WORDS)


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
    steady_rates: Mapping[str, float] = field(default_factory=dict)
    """Rates over a longer stretch, by the property of a cap whose I/O arrives in large portions."""

    @property
    def by_disk(self) -> dict[str, Window]:
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


def _least_share(window: Window) -> float:
    return NEAR_CAP if _share(window.waited_io, window) >= WAITING else FULL_CAP


def full_caps(window: Window) -> list[BindingLimit]:
    """Return the caps that held a window back, the nearest of each disk, the fullest first.

    I/O that arrives in large portions is judged by its rate over several of them.
    """
    held = []
    for disk, one in window.by_disk.items():
        rates = {prop: one.moved[IO_STAT_KEY[prop]] / one.seconds for prop in one.caps}
        rates.update(one.steady_rates)
        used = ((rates[prop] / cap, prop) for prop, cap in one.caps.items())
        share, prop = max(used, default=(0.0, ""))
        if share >= _least_share(window):
            kind = "bandwidth" if "Bandwidth" in prop else "iops"
            held.append((share, BindingLimit(kind, prop, disk)))
    return [limit for _, limit in sorted(held, key=lambda one: one[0], reverse=True)]


def binding_limit(window: Window, requested: Mapping[str, object]) -> BindingLimit:
    """Return the limit of one window, by the first rule that applies: cap, memory, device, CPU."""
    if caps := full_caps(window):
        return caps[0]
    if requested.keys() & MEMORY_EVENT.keys() and _is_short_of_memory(window, requested):
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


def _is_short_of_memory(window: Window, requested: Mapping[str, object]) -> bool:
    """Return whether the memory limit was met at a cost: pages read again, or tasks that waited.

    memory.high holds tasks asleep for up to two seconds (MEMCG_MAX_HIGH_DELAY_JIFFIES), and only
    the begin of a sleep is counted.
    """
    read = sum(one.moved["rbytes"] for one in window.by_disk.values())
    reread_share = (window.refault_pages or 0) * window.page_bytes / max(read, 1)
    has_waited = _share(window.waited_memory, window) >= RECLAIMING
    if window.limit_hits:
        return has_waited or reread_share >= REFAULT_SHARE
    return has_waited and "MemoryHigh" in requested


WINDOW_SECONDS = 0.5
"""Five slices of blk-throttle: a throttled reader moves data once per slice of 100 ms."""
LARGE_PORTION = 1.25
"""A portion of I/O is large if it is more than this multiple of what its cap allows between two
samples. An even flow at the cap is one."""
SHORTEST_REMAINDER_SECONDS = 0.01
_WAITS = ("io", "memory", "cpu")


def windows_of(record: Record, series: Rows) -> list[Window]:
    """Return the windows of the measured part.

    If the series is too coarse for one, the counters give a single window over the whole part.
    Empty if the part did not end. A window of a cage with several disks has one for each other
    disk.
    """
    found = [_from_rows(record, first, last) for first, last in _window_rows(record, series)]
    found = _with_steady_rates(record, found, series)
    if not found and (whole := _whole(record)):
        found = [whole]
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


def windows_and_remainder(record: Record, series: Rows) -> list[Window]:
    """Return the windows, then one for the first and last moments that no window covers."""
    windows, whole = windows_of(record, series), _whole(record)
    seconds = whole.seconds - sum(window.seconds for window in windows) if whole else 0.0
    if not whole or not windows or seconds < SHORTEST_REMAINDER_SECONDS:
        return windows
    # Rounding could make a figure negative.
    moved = {
        key: max(0.0, count - sum(window.moved[key] for window in windows))
        for key, count in whole.moved.items()
    }
    left: dict[str, Any] = {"seconds": seconds, "moved": moved}
    for name in _FIGURES:
        total, parts = getattr(whole, name), [getattr(window, name) for window in windows]
        left[name] = None if None in (total, *parts) else max(0.0, total - sum(parts))
    return [*windows, replace(whole, **left)]


_FIGURES = [figure.name for figure in fields(Window) if figure.type == "float | None"]
"""Figures of a window that may be unknown."""


def _window_rows(record: Record, series: Rows) -> Iterator[tuple[Row, Row]]:
    """Yield the first and last row of each whole window between `go` and `end`."""
    within, first = record.measured, None
    if within is None:
        return
    for row in series:
        if not within.holds(row["t"]):
            continue
        if first is None:
            first = row
        elif row["t"] - first["t"] >= WINDOW_SECONDS:
            yield first, row
            first = row


def _with_steady_rates(record: Record, windows: Sequence[Window], series: Rows) -> list[Window]:
    """Return the windows, with steady rates where I/O arrives in large portions.

    cgroup v1 counts sequential reads in portions of up to 5 MiB, so that at a cap of 20 MB/s a
    window counts half of the cap or one and a half times as much. The stretch around each window is
    so long that one portion more or less does not decide whether the cap was full. A cap that
    changes, as with burst credits, has portions of different sizes, and no such stretch.
    """
    if not windows or not (within := record.measured) or cap_changes(record):
        return list(windows)
    rows = [row for row in series if within.holds(row["t"])]
    pairs = list(zip(rows, rows[1:]))  # noqa: B905, RUF007 - of Python 3.10
    period, portions = median([b["t"] - a["t"] for a, b in pairs] or [0.0]), dict[str, float]()
    for prop, key in IO_STAT_KEY.items():
        grown = [b["io"].get(key, 0) - a["io"].get(key, 0) for a, b in pairs]
        portions[prop] = median([count for count in grown if count > 0] or [0.0])

    def steady(number: int, window: Window) -> dict[str, float]:
        rates = {}
        for prop, cap in window.caps.items():
            if portions[prop] > LARGE_PORTION * cap * period:
                wanted, reach = portions[prop] / cap / (1 - _least_share(window)), 0
                near: Sequence[Window] = [window]
                while sum(one.seconds for one in near) < wanted and len(near) < len(windows):
                    reach += 1
                    near = windows[max(0, number - reach) : number + reach + 1]
                moved = sum(one.moved[IO_STAT_KEY[prop]] for one in near)
                rates[prop] = moved / sum(one.seconds for one in near)
        return rates

    return [replace(one, steady_rates=steady(n, one)) for n, one in enumerate(windows)]


def _window(read: Callable[..., float | None], **known: Any) -> Window:
    """Return a window; `read` returns figures by their path in a row of the sampler."""
    reads, writes = read("disk", "reads"), read("disk", "writes")
    hits = [n for key in MEMORY_EVENT.values() if (n := read("memory_events", key)) is not None]
    return Window(
        refault_pages=read("memory_stat", "workingset_refault_file"),
        limit_hits=sum(hits) if hits else None,
        disk_busy=_scaled(read("disk", "io_ticks"), 1e-3),
        throttled=_scaled(read("cpu", "throttled_usec"), 1e-6),
        disk_requests=None if reads is None or writes is None else reads + writes,
        disk_queued=_scaled(read("disk", "weighted_io_ticks"), 1e-3),
        **known,
    )


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _from_rows(record: Record, first: Row, last: Row) -> Window:
    """Return the window between two rows. `io` is empty until the slice touches the disk."""
    assert record.measured is not None

    def read(*path: str) -> float | None:
        return _scaled(growth(first, last, *path), 1.0)

    return _window(
        read,
        start_seconds=first["t"] - record.measured.start_monotonic_seconds,
        seconds=last["t"] - first["t"],
        caps=caps_between(record, first["t"], last["t"]),
        moved={
            key: float(last["io"].get(key, 0) - first["io"].get(key, 0))
            for key in IO_STAT_KEY.values()
        },
        cpu=_scaled(read("cpu", "usage_usec"), 1e-6),
        page_bytes=record.page_bytes,
        **{f"waited_{one}": _scaled(read("pressure", one, "some"), 1e-6) for one in _WAITS},
    )


_IN_RECORD = {
    "memory_stat": ("cgroup", "memory.stat"),
    "memory_events": ("cgroup", "memory.events"),
    "cpu": ("cgroup", "cpu.stat"),
    "disk": ("device",),
}
"""Place in a record's counters of the figures of a sampler's row."""


def _whole(record: Record) -> Window | None:
    seconds = measured_seconds(record)
    if not seconds or not record.counters.after:
        return None
    return _window(
        lambda table, key: difference(record, *_IN_RECORD[table], key),
        start_seconds=0.0,
        seconds=seconds,
        caps=measured_caps(record),
        moved={key: io_difference(record, key) or 0.0 for key in IO_STAT_KEY.values()},
        cpu=cpu_seconds(record),
        page_bytes=record.page_bytes,
        **{f"waited_{one}": stalled_seconds(record, one) for one in _WAITS},
    )


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
    requested, disks = record.cage.requested or {}, windows[0].by_disk
    shares = _shares([([binding_limit(w, requested).name], w.seconds) for w in windows], NAMES)
    held = [([cap_name(limit) for limit in full_caps(w)], w.seconds) for w in windows]
    caps = [cap_name(BindingLimit("", prop, disk)) for disk in disks for prop in IO_STAT_KEY]
    name, seconds = max(NAMES, key=lambda n: shares.get(n, 0.0)), sum(w.seconds for w in windows)
    io, memory, cpu = (
        100 * sum(getattr(window, figure) or 0 for window in windows) / seconds
        for figure in ("waited_io", "waited_memory", "cpu")
    )
    sentence = (
        f"For {100 * shares.get(name, 0):.0f} % of {seconds:.1f} s (in {len(windows)}"
        f" window{'s' * (len(windows) > 1)}), {_IN_WORDS[name]} held the program back. It waited"
        f" for the disk {io:.0f} % of the time and for memory {memory:.0f} %, and kept"
        f" {cpu / 100:.2f} CPUs busy."
    )
    return BindingVerdict(name, sentence, shares, _shares(held, caps))


def _shares(
    named: Sequence[tuple[Sequence[str | None], float]], names: Sequence[str | None]
) -> dict[str, float]:
    total = sum(seconds for _, seconds in named)
    shares = {name: sum(s for found, s in named if name in found) / total for name in names if name}
    return {name: share for name, share in shares.items() if share}
