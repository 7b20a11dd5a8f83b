"""The demand of a trial for I/O, and the time that it would take under other caps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pagecage.model.cage import IO_STAT_KEY, enforced_limit
from pagecage.model.record import Record
from pagecage.units import KIB, format_bytes, format_seconds
from pagecage.verdicts.counters import Rows, disk_views, io_difference, measured_seconds
from pagecage.verdicts.limits import cap_buckets, is_io_cap, requested_caps
from pagecage.verdicts.verdict import Amplification, TimeFloor
from pagecage.verdicts.volume_account import rate_changes
from pagecage.verdicts.windows import (
    WAITING,
    BindingLimit,
    Window,
    binding_limit,
    windows_and_remainder,
)


def amplification(record: Record) -> Amplification:
    """Return the bytes that the disk delivered per requested byte and per distinct byte."""
    moved, end = io_difference(record, "rbytes"), record.workload.end or {}
    requested, distinct = end.get("bytes"), end.get("distinct_bytes")
    if moved is None or not (requested or distinct):
        return Amplification(
            "unknown", "The workload or the disk did not report how much was read."
        )
    of = f"{format_bytes(distinct)} of distinct data" if distinct else format_bytes(requested or 0)
    return Amplification(
        "known",
        f"The program requested {of}, and the disk delivered {format_bytes(moved)}.",
        moved / requested if requested else None,
        moved / distinct if distinct else None,
    )


def time_floor(record: Record) -> TimeFloor:
    """Return the larger of bytes / bandwidth cap and I/Os / IOPS cap, after burst credits.

    With several disks it is that of the slowest one. The verdict is `unknown` without caps.
    """
    views = disk_views(record)
    floors = {"": _disk_floor(record)}
    floors |= {f"On the disk {name}, ": _disk_floor(view) for name, view in views.items()}
    where, floor = max(floors.items(), key=lambda one: one[1].floor_seconds or 0.0)
    return replace(floor, reason=where + floor.reason)


def _disk_floor(record: Record) -> TimeFloor:
    seconds, caps = measured_seconds(record), requested_caps(record)
    moved = {name: io_difference(record, key) for name, key in IO_STAT_KEY.items() if name in caps}
    times: list[tuple[float, str]] = []
    for name, count in moved.items():
        if count is not None:
            sharing = next(
                (one.properties for one in cap_buckets(record) if name in one.properties), [name]
            )
            together = sum(moved.get(one) or 0.0 for one in sharing)
            times.append((least_seconds(record, name, together), name))
    if not seconds or not times:
        return TimeFloor(
            "unknown", "There is no least time without a measured part and an I/O cap."
        )
    least, name = max(times)
    reason = (
        f"{name} allows this I/O in {format_seconds(least)}; the trial took"
        f" {format_seconds(seconds)}."
    )
    return TimeFloor("known", reason, least, least / seconds)


def least_seconds(record: Record, name: str, moved: float) -> float:
    """Return the least time for this many bytes or I/Os under one cap.

    The cap's bucket holds the credits that it had when the trial began.
    """
    for one in cap_buckets(record):
        if name in one.properties:
            return one.bucket.least_seconds(moved)
    return moved / requested_caps(record)[name]


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
    """Return the traffic of windows, at least one, in one direction: `read` or `write`."""
    seconds, (bandwidth, iops) = sum(window.seconds for window in windows), _CAPS[direction]
    moved, ios = (
        sum(window.moved[IO_STAT_KEY[prop]] for window in windows) for prop in (bandwidth, iops)
    )

    def average_cap(prop: str) -> float | None:
        known = [(window.caps[prop], window.seconds) for window in windows if prop in window.caps]
        capped = sum(seconds for _, seconds in known)
        return sum(cap * seconds for cap, seconds in known) / capped if known else None

    return Traffic(
        bytes=moved,
        ios=ios,
        bytes_per_second=moved / seconds,
        ios_per_second=ios / seconds,
        bytes_per_io=moved / ios if ios else None,
        bandwidth_cap=average_cap(bandwidth),
        iops_cap=average_cap(iops),
    )


def traffic_of_others(windows: Sequence[Window]) -> dict[str, DiskTraffic]:
    """Return the traffic of each disk other than the data directory's, by name."""
    found = {}
    for name in windows[0].others if windows else ():
        seen = [window.others[name] for window in windows]
        found[name] = DiskTraffic(traffic("read", seen), traffic("write", seen))
    return found


def total(figure: str, windows: Sequence[Window]) -> float | None:
    """Return the sum of one figure over the windows; None if no window has it."""
    known = [value for window in windows if (value := getattr(window, figure)) is not None]
    return sum(known) if known else None


def second_by_second(
    windows: Sequence[Window], requested: Mapping[str, object]
) -> tuple[TrafficSecond, ...]:
    """Return every second of the measured part, from the windows that begin in it.

    The limit of a second is the one with the most time, the first of equal ones.
    """
    groups: dict[int, list[Window]] = {}
    for window in windows:
        groups.setdefault(int(window.start_seconds), []).append(window)
    seconds = []
    for _, group in sorted(groups.items()):
        times: dict[BindingLimit, float] = {}
        for window in group:
            limit = binding_limit(window, requested)
            times[limit] = times.get(limit, 0.0) + window.seconds
        limit = max(times, key=lambda limit: times[limit])
        second = TrafficSecond(
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
        seconds.append(second)
    return tuple(seconds)


IDLE = 0.5
"""Least share of a window without computing and without work of the disk that counts as idle."""


@dataclass(frozen=True)
class DemandWindow:
    """One window of a trial: the I/O that it needs under any limits, and its time without them.

    `seconds` is its measured length. `own_seconds` is the time in which no task waited for the
    disk, `disk_seconds` that in which tasks waited for the disk itself and not at a limit,
    `hidden_seconds` that in which the disk worked beside the program. `requests` are those of the
    disk after merging, `queued_seconds` the sum of their times there; both are None if unknown.
    """

    moved: Mapping[str, float]
    seconds: float
    is_capped: bool
    own_seconds: float
    disk_seconds: float
    hidden_seconds: float
    requests: float | None = None
    queued_seconds: float | None = None

    @property
    def free_seconds(self) -> float:
        return self.own_seconds + self.disk_seconds


@dataclass(frozen=True)
class IoDemand:
    """The windows of a trial.

    `used_share` is the share of a cap that the program used while one held it back; 1 if none did.
    `covered_share` is the share of the whole pass that the trial covered. `largest_request_bytes`
    is the disk's bound on one request; None if unknown. If `is_emulated`, the program's own time is
    several times that of a real CPU.
    """

    windows: tuple[DemandWindow, ...]
    used_share: float = 1.0
    covered_share: float = 1.0
    largest_request_bytes: int | None = None
    is_emulated: bool = False

    @property
    def free_seconds(self) -> float:
        return sum(window.free_seconds for window in self.windows) / self.covered_share

    def total(self, key: str) -> float:
        """Return the bytes or I/Os of the whole pass, by key of io.stat."""
        return sum(window.moved[key] for window in self.windows) / self.covered_share

    @property
    def request_bytes(self) -> float:
        """The average size of an I/O; 0 without any."""
        ios = self.total("rios") + self.total("wios")
        return (self.total("rbytes") + self.total("wbytes")) / ios if ios else 0.0

    @property
    def capped_share(self) -> float:
        seconds = sum(window.seconds for window in self.windows)
        return sum(window.seconds for window in self.windows if window.is_capped) / seconds

    @property
    def latency_seconds(self) -> float | None:
        """The average time of a request at the disk; None if unknown."""
        known = [window for window in self.windows if window.requests and window.queued_seconds]
        requests = sum(window.requests or 0.0 for window in known)
        return sum(window.queued_seconds or 0.0 for window in known) / requests if known else None

    @property
    def depth(self) -> float | None:
        """The average number of requests at the disk while it was busy; None if unknown."""
        busy = sum(window.disk_seconds + window.hidden_seconds for window in self.windows)
        queued = sum(window.queued_seconds or 0.0 for window in self.windows)
        return max(1.0, queued / busy) if busy and queued else None

    @property
    def unmerged_share(self) -> float:
        """Requests at the disk per I/O of the trial, at most 1: the kernel merges neighbours."""
        ios = sum(window.moved["rios"] + window.moved["wios"] for window in self.windows)
        known = [window.requests for window in self.windows if window.requests is not None]
        return min(1.0, sum(known) / ios) if ios and len(known) == len(self.windows) else 1.0


def io_demand(record: Record, series: Rows) -> IoDemand | str:
    """Return the demand of a trial, or the reason why nothing can be predicted from it."""
    if record.disks:
        return "the cage has several disks, and a prediction knows only one"
    windows = windows_and_remainder(record, series)
    if not windows:
        return "the measured part did not end"
    has_credits = any(one.bucket.rate > one.bucket.base for one in cap_buckets(record))
    # A limit that reads and writes share is divided by their use, which the windows' caps follow.
    if has_credits or rate_changes(record):
        return "burst credits changed the cap while the trial ran"
    needs = [_demand_window(record, window) for window in windows]
    largest_kb = (record.device.queue_settings or {}).get("max_sectors_kb")
    return IoDemand(
        tuple(needs),
        _used_share([pair for pair in zip(windows, needs, strict=True) if pair[1].is_capped]),
        record.response.get("covered_fraction") or 1.0,
        int(largest_kb) * KIB if largest_kb else None,
        bool(record.emulated),
    )


def undilated(demand: IoDemand, dilation: float) -> IoDemand:
    """Return the demand on a disk that is as many times faster as the trial's was dilated."""

    def faster(window: DemandWindow) -> DemandWindow:
        queued = window.queued_seconds
        return replace(
            window,
            disk_seconds=window.disk_seconds / dilation,
            hidden_seconds=window.hidden_seconds / dilation,
            queued_seconds=None if queued is None else queued / dilation,
        )

    return replace(demand, windows=tuple(map(faster, demand.windows)))


def seconds_under_io_max(moved: Mapping[str, float], caps: Mapping[str, float]) -> float:
    """Return the least time in which the kernel lets this I/O through under caps by property."""
    kernel_caps = {name: enforced_limit(name, cap) for name, cap in caps.items() if is_io_cap(name)}
    return max((moved[IO_STAT_KEY[name]] / cap for name, cap in kernel_caps.items()), default=0.0)


def _used_share(capped: Sequence[tuple[Window, DemandWindow]]) -> float:
    """Return the least time under the caps as a share of the time, without slow windows."""
    seconds, least = 0.0, 0.0
    for window, demand in capped:
        needed = seconds_under_io_max(window.moved, window.caps)
        if needed > demand.free_seconds:
            seconds, least = seconds + window.seconds, least + needed
    return min(1.0, least / seconds) if seconds else 1.0


def _demand_window(record: Record, window: Window) -> DemandWindow:
    """Return what a window needs. One that no cap held keeps its whole length."""
    busy, queued = window.disk_busy or 0.0, window.disk_queued
    near = window
    if window.cpu is not None and window.seconds - window.cpu - busy >= IDLE * window.seconds:
        # Pressure does not count a program that awaits its reads asynchronously.
        near = replace(window, waited_io=window.seconds)
    is_capped = binding_limit(near, record.cage.requested or {}).property is not None
    driver = (record.cage.driver or {}).get("name")
    if is_capped and (record.cage.enforced_by == "volume" or driver == "qemu-throttle"):
        # Requests that the disk itself holds back wait in its queue, for longer than it works.
        alone = (window.disk_requests or 0.0) * (record.device.read_latency_us or 0.0) / 1e6
        busy, queued = min(busy, alone), min(queued or 0.0, alone)
    waited = min(window.waited_io or 0.0, window.seconds)
    disk = min(busy, waited)
    own = window.seconds - (waited if is_capped else disk)
    if is_capped and waited < WAITING * window.seconds:
        own = min(window.seconds, window.cpu or 0.0)
        disk = min(window.seconds - own, busy)
    return DemandWindow(
        *(window.moved, window.seconds, is_capped, own, disk, max(0.0, busy - disk)),
        requests=window.disk_requests,
        queued_seconds=queued,
    )


@dataclass(frozen=True)
class Prediction:
    """The predicted time of the whole pass under other caps; None if there is no prediction.

    `reason` explains the value. `held_share` is the share of that time in which a cap would hold
    the program back. The rest is the program's own time, which is uncertain under a tight cap.
    """

    seconds: float | None
    reason: str
    held_share: float | None = None


def predict(record: Record, series: Rows, caps: Mapping[str, float]) -> Prediction:
    """Predict the time under these I/O caps, by systemd property; an absent one has no cap.

    A window takes its time without limits or the time that the caps need, whichever is longer:
    they overlap, because blk-throttle grants tokens while a program computes. The cost of memory
    stays as measured: refaults under another MemoryMax are not known.
    """
    demand = io_demand(record, series)
    if isinstance(demand, str):
        return Prediction(None, demand)
    times = [
        (window.free_seconds, seconds_under_io_max(window.moved, caps) / demand.used_share)
        for window in demand.windows
    ]
    held = sum(needed for free, needed in times if needed > free)
    seconds = sum(map(max, times)) / demand.covered_share
    reason = (
        f"without caps the program would need {format_seconds(demand.free_seconds)}, and it uses"
        f" {demand.used_share:.0%} of a cap"
    )
    return Prediction(seconds, reason, held / demand.covered_share / seconds)


GAIN = 0.10
"""A higher limit pays if the best time above it is shorter by more than this share."""


@dataclass(frozen=True)
class Knee:
    """The least limit above which a higher one does not pay.

    `value` is None if there is no such limit. `reason` explains the value.
    """

    value: float | None
    reason: str


def find_knee(points: Sequence[tuple[float, float]], more_is_better: str | None = None) -> Knee:
    """Return the knee of (limit, time) points.

    With `more_is_better`, the figures are of a metric of this name, of which more is better. Noise
    can make a higher limit measure worse; that does not count as a gain of the lower one.
    """
    ordered = sorted(points)
    name, figure, verb, gain = "the time", "a time", "falls", GAIN
    if more_is_better:
        name, figure, verb = f"the metric {more_is_better}", "a figure", "rises"
        gain = 1 / (1 - GAIN) - 1
        ordered = [(limit, 1 / value if value else math.inf) for limit, value in ordered]
    if len(ordered) < 2:
        return Knee(None, f"fewer than two values have {figure}")
    times = [seconds for _, seconds in ordered]
    pays = [seconds * (1 - GAIN) > min(times[index:]) for index, seconds in enumerate(times)]
    index = pays.index(False)
    limit = f"{ordered[index][0]:,.0f}"
    if index == len(ordered) - 1:
        return Knee(None, f"{name} still {verb} at {limit}, the largest value")
    if index == 0:
        return Knee(
            None,
            f"{name} is the same from {limit} upwards, the least value: this limit does not bind",
        )
    return Knee(ordered[index][0], f"above {limit} {name} {verb} by {gain:.0%} at most")
