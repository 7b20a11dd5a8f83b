"""Windows of the sampler's series, each long enough for an average rate under blk-throttle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pagecage.model.cage import IO_STAT_KEY, MEMORY_EVENT
from pagecage.model.record import Record
from pagecage.verdicts.caps import caps_between, measured_caps
from pagecage.verdicts.counters import (
    cpu_seconds,
    difference,
    io_difference,
    measured_seconds,
    stalled_seconds,
)
from pagecage.verdicts.disks.views import disk_views, series_on_disk
from pagecage.verdicts.window_limit import Window

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
