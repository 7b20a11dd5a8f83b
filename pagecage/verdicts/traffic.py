"""The traffic in each direction beside the caps: over a set of windows, and second by second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.model.cage import IO_STAT_KEY
from pagecage.verdicts.window_limit import BindingLimit, Window, binding_limit

_CAPS = {
    "read": ("IOReadBandwidthMax", "IOReadIOPSMax"),
    "write": ("IOWriteBandwidthMax", "IOWriteIOPSMax"),
}


@dataclass(frozen=True)
class Traffic:
    """The traffic in one direction over some time.

    The caps are the averages of those in force; None if the direction has no cap.
    """

    bytes: float
    ios: float
    bytes_per_second: float
    ios_per_second: float
    bytes_per_io: float | None
    bandwidth_cap: float | None
    iops_cap: float | None


@dataclass(frozen=True)
class DiskTraffic:
    """The traffic of one disk in both directions."""

    read: Traffic
    write: Traffic


@dataclass(frozen=True)
class TrafficSecond:
    """One second of the measured part: its binding limit and the traffic in each direction.

    `property` is the systemd property of the cap that bound, and `disk` its disk. `read` and
    `write` are those of the data directory's disk, `others` those of the cage's other disks.
    """

    start_seconds: float
    seconds: float
    bound_by: str
    property: str | None
    disk: str
    read: Traffic
    write: Traffic
    others: Mapping[str, DiskTraffic]
    waited_io_seconds: float | None
    waited_memory_seconds: float | None
    cpu_seconds: float | None


def traffic(direction: str, windows: Sequence[Window]) -> Traffic:
    """Return the traffic of one window or more in one direction, `read` or `write`."""
    bandwidth, iops = _CAPS[direction]
    seconds = sum(window.seconds for window in windows)
    moved = sum(window.moved[IO_STAT_KEY[bandwidth]] for window in windows)
    ios = sum(window.moved[IO_STAT_KEY[iops]] for window in windows)
    return Traffic(
        bytes=moved,
        ios=ios,
        bytes_per_second=moved / seconds,
        ios_per_second=ios / seconds,
        bytes_per_io=moved / ios if ios else None,
        bandwidth_cap=_average_cap(bandwidth, windows),
        iops_cap=_average_cap(iops, windows),
    )


def traffic_of_others(windows: Sequence[Window]) -> dict[str, DiskTraffic]:
    """Return the traffic of each disk beside the data directory's, by name."""
    names = windows[0].others if windows else ()
    on = {name: [window.others[name] for window in windows] for name in names}
    return {
        name: DiskTraffic(traffic("read", ones), traffic("write", ones))
        for name, ones in on.items()
    }


def _average_cap(prop: str, windows: Sequence[Window]) -> float | None:
    known = [(window.caps[prop], window.seconds) for window in windows if prop in window.caps]
    return (
        sum(cap * seconds for cap, seconds in known) / sum(s for _, s in known) if known else None
    )


def total(figure: str, windows: Sequence[Window]) -> float | None:
    """Return the sum of one figure over the windows; None if no window has it."""
    known = [value for window in windows if (value := getattr(window, figure)) is not None]
    return sum(known) if known else None


def second_by_second(
    windows: Sequence[Window], requested: Mapping[str, Any]
) -> tuple[TrafficSecond, ...]:
    """Return every second of the measured part, from the windows that begin in it."""
    groups: dict[int, list[Window]] = {}
    for window in windows:
        groups.setdefault(int(window.start_seconds), []).append(window)
    return tuple(_second(group, requested) for _, group in sorted(groups.items()))


def _second(group: Sequence[Window], requested: Mapping[str, Any]) -> TrafficSecond:
    limit = _longest_limit([(binding_limit(window, requested), window.seconds) for window in group])
    return TrafficSecond(
        start_seconds=group[0].start_seconds,
        seconds=sum(window.seconds for window in group),
        bound_by=limit.name,
        property=limit.property,
        disk=limit.disk,
        read=traffic("read", group),
        write=traffic("write", group),
        others=traffic_of_others(group),
        waited_io_seconds=total("waited_io", group),
        waited_memory_seconds=total("waited_memory", group),
        cpu_seconds=total("cpu", group),
    )


def _longest_limit(limits: Sequence[tuple[BindingLimit, float]]) -> BindingLimit:
    """Return the limit with the most seconds; the first of equal ones."""
    times: dict[BindingLimit, float] = {}
    for limit, seconds in limits:
        times[limit] = times.get(limit, 0.0) + seconds
    return max(times, key=lambda limit: times[limit])
