"""The sampler's series cut into windows long enough for blk-throttle's averages to mean something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pagecage.model.cage import IO_STAT_KEY
from pagecage.model.record import Record
from pagecage.verdicts.caps import caps_between, measured_caps
from pagecage.verdicts.counters import counter, difference, io_difference, measured_seconds, stalled_seconds

WINDOW_SECONDS = 0.5
"""A throttled reader moves a slice (100 ms) at a time; over five slices its rate is a rate."""
SHORTEST_REST_SECONDS = 0.01


@dataclass(frozen=True)
class Window:
    """What the slice did in one stretch of the measured part. Waits are seconds; None is not known."""

    start_seconds: float
    """Since `go`."""
    seconds: float
    moved: Mapping[str, float]
    """By io.stat key: rbytes rios wbytes wios."""
    caps: Mapping[str, float]
    """The I/O caps in force, by systemd property."""
    waited_io: float | None
    waited_memory: float | None
    waited_cpu: float | None
    refault_pages: float | None
    limit_hits: float | None
    """How often memory.max was met (memory.events: max)."""
    disk_busy: float | None
    cpu: float | None
    throttled: float | None


def windows(record: Record, series: Sequence[Mapping[str, Any]]) -> list[Window]:
    """Windows of the measured part; where the series is too coarse the whole of it, from the counters."""
    rows = _within(record, series)
    cut = [_from_rows(record, first, last) for first, last in _pairs(rows)]
    whole = _whole(record)
    return cut or ([whole] if whole else [])


def whole_part(record: Record, series: Sequence[Mapping[str, Any]]) -> list[Window]:
    """The windows, and as one more what they leave out of the measured part: its first and last moments."""
    cut, whole = windows(record, series), _whole(record)
    rest = _less(whole, cut) if whole and cut else None
    return [*cut, rest] if rest else cut


_FIGURES = (
    "waited_io", "waited_memory", "waited_cpu", "refault_pages", "limit_hits", "disk_busy", "cpu", "throttled",
)  # fmt: skip


def _less(whole: Window, cut: Sequence[Window]) -> Window | None:
    """The whole without its windows; None where next to nothing is left. Rounding leaves nothing below zero."""
    seconds = whole.seconds - sum(window.seconds for window in cut)
    if seconds < SHORTEST_REST_SECONDS:
        return None

    def left(name: str) -> float | None:
        known, told = getattr(whole, name), [getattr(window, name) for window in cut]
        return None if known is None or None in told else max(0.0, known - sum(told))

    moved = {key: max(0.0, count - sum(window.moved[key] for window in cut)) for key, count in whole.moved.items()}
    figures: dict[str, Any] = {name: left(name) for name in _FIGURES}
    return replace(whole, seconds=seconds, moved=moved, **figures)


def _within(record: Record, series: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows between `go` and `end`."""
    if not record.measured:
        return []
    start = record.measured["start_monotonic_seconds"]
    end = start + record.measured["seconds"]
    return [row for row in series if start <= row["t"] <= end]


def _pairs(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """First and last row of each window; a rest shorter than a window is left out."""
    first: Mapping[str, Any] | None = None
    for row in rows:
        if first is None:
            first = row
        elif row["t"] - first["t"] >= WINDOW_SECONDS:
            yield first, row
            first = row


def _grown(first: Mapping[str, Any], last: Mapping[str, Any], *path: str) -> float | None:
    for key in path:
        first, last = (first or {}).get(key), (last or {}).get(key)  # type: ignore[assignment]
    return None if first is None or last is None else float(last) - float(first)  # type: ignore[arg-type]


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _from_rows(record: Record, first: Mapping[str, Any], last: Mapping[str, Any]) -> Window:
    """A disk that the slice has not touched yet has an empty `io`."""
    assert record.measured is not None
    return Window(
        start_seconds=first["t"] - record.measured["start_monotonic_seconds"],
        seconds=last["t"] - first["t"],
        caps=caps_between(record, first["t"], last["t"]),
        moved={key: float(last["io"].get(key, 0) - first["io"].get(key, 0)) for key in IO_STAT_KEY.values()},
        waited_io=_scaled(_grown(first, last, "pressure", "io", "some"), 1e-6),
        waited_memory=_scaled(_grown(first, last, "pressure", "memory", "some"), 1e-6),
        waited_cpu=_scaled(_grown(first, last, "pressure", "cpu", "some"), 1e-6),
        refault_pages=_grown(first, last, "memory_stat", "workingset_refault_file"),
        limit_hits=_grown(first, last, "memory_events", "max"),
        disk_busy=_scaled(_grown(first, last, "disk", "io_ticks"), 1e-3),
        cpu=_scaled(_grown(first, last, "cpu", "usage_usec"), 1e-6),
        throttled=_scaled(_grown(first, last, "cpu", "throttled_usec"), 1e-6),
    )


def _whole(record: Record) -> Window | None:
    seconds = measured_seconds(record)
    if not seconds or counter(record, "after", "cgroup") is None:
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
        limit_hits=difference(record, "cgroup", "memory.events", "max"),
        disk_busy=_scaled(difference(record, "device", "io_ticks"), 1e-3),
        cpu=_scaled(difference(record, "cgroup", "cpu.stat", "usage_usec"), 1e-6),
        throttled=_scaled(difference(record, "cgroup", "cpu.stat", "throttled_usec"), 1e-6),
    )
