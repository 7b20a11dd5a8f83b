"""What went through in each direction, beside what the caps allowed: for a stretch of windows, and second by second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.model.cage import IO_STAT_KEY
from pagecage.verdicts.binding import BindingLimit, bound
from pagecage.verdicts.windows import Window

_CAPS = {
    "read": ("IOReadBandwidthMax", "IOReadIOPSMax"),
    "write": ("IOWriteBandwidthMax", "IOWriteIOPSMax"),
}


@dataclass(frozen=True)
class Traffic:
    """One direction over some time; the caps are those in force, averaged over it, None where there is none."""

    bytes: float
    ios: float
    bytes_per_second: float
    ios_per_second: float
    bytes_per_io: float | None
    bandwidth_cap: float | None
    iops_cap: float | None


@dataclass(frozen=True)
class TrafficSecond:
    """One second of the measured part: what held it (for a cap its property too), and the traffic each way."""

    start_seconds: float
    seconds: float
    bound_by: str
    property: str | None
    read: Traffic
    write: Traffic
    waited_io_seconds: float | None
    waited_memory_seconds: float | None
    cpu_seconds: float | None


def traffic(direction: str, cut: Sequence[Window]) -> Traffic:
    """The traffic of some windows, at least one, in one direction: `read` or `write`."""
    bandwidth, iops = _CAPS[direction]
    seconds = sum(window.seconds for window in cut)
    moved = sum(window.moved[IO_STAT_KEY[bandwidth]] for window in cut)
    ios = sum(window.moved[IO_STAT_KEY[iops]] for window in cut)
    return Traffic(
        bytes=moved, ios=ios, bytes_per_second=moved / seconds, ios_per_second=ios / seconds,
        bytes_per_io=moved / ios if ios else None, bandwidth_cap=_cap(bandwidth, cut), iops_cap=_cap(iops, cut),
    )  # fmt: skip


def _cap(prop: str, cut: Sequence[Window]) -> float | None:
    known = [(window.caps[prop], window.seconds) for window in cut if prop in window.caps]
    return sum(cap * seconds for cap, seconds in known) / sum(s for _, s in known) if known else None


def total(key: str, cut: Sequence[Window]) -> float | None:
    """The sum of one of a window's figures; None where no window knows it."""
    known = [value for window in cut if (value := getattr(window, key)) is not None]
    return sum(known) if known else None


def second_by_second(cut: Sequence[Window], requested: Mapping[str, Any]) -> tuple[TrafficSecond, ...]:
    """Every second of the measured part, from the windows that begin in it."""
    groups: dict[int, list[Window]] = {}
    for window in cut:
        groups.setdefault(int(window.start_seconds), []).append(window)
    return tuple(_second(group, requested) for _, group in sorted(groups.items()))


def _second(group: Sequence[Window], requested: Mapping[str, Any]) -> TrafficSecond:
    held = _longest([(bound(window, requested), window.seconds) for window in group])
    return TrafficSecond(
        start_seconds=group[0].start_seconds, seconds=sum(window.seconds for window in group),
        bound_by=held.name, property=held.property, read=traffic("read", group), write=traffic("write", group),
        waited_io_seconds=total("waited_io", group), waited_memory_seconds=total("waited_memory", group),
        cpu_seconds=total("cpu", group),
    )  # fmt: skip


def _longest(held: Sequence[tuple[BindingLimit, float]]) -> BindingLimit:
    """What held for the longest; of equals the first."""
    times: dict[BindingLimit, float] = {}
    for one, seconds in held:
        times[one] = times.get(one, 0.0) + seconds
    return max(times, key=lambda one: times[one])
