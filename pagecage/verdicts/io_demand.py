"""The I/O and the own time of one trial, window by window: the basis of its predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pagecage.model.cage import IO_STAT_KEY, enforced_limit
from pagecage.model.record import Record
from pagecage.units import KIB
from pagecage.verdicts.caps import cap_change_count, is_io_cap
from pagecage.verdicts.window_limit import WAITING, Window, binding_limit
from pagecage.verdicts.windows import windows_and_remainder

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
        """The time of the window without limits."""
        return self.own_seconds + self.disk_seconds


@dataclass(frozen=True)
class IoDemand:
    """The windows of a trial.

    `used_share` is the share of a cap that the program used while one held it back; 1 if none did.
    `covered_share` is the share of the whole pass that the trial covered. `largest_request_bytes`
    is the disk's bound on one request; None if unknown.
    """

    windows: tuple[DemandWindow, ...]
    used_share: float = 1.0
    covered_share: float = 1.0
    largest_request_bytes: int | None = None

    @property
    def free_seconds(self) -> float:
        """The time of the whole pass without limits."""
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
        """The share of the trial's time in windows that a cap held back."""
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


def io_demand(record: Record, series: Sequence[Mapping[str, Any]]) -> IoDemand | str:
    """Return the demand of a trial, or the reason why nothing can be predicted from it."""
    if record.disks:
        return "the cage has several disks, and a prediction knows only one"
    windows = windows_and_remainder(record, series)
    if not windows:
        return "the measured part did not end"
    if _caps_varied(record):
        return "burst credits or a shared limit changed the cap while the trial ran"
    needs = [_demand_window(record, window) for window in windows]
    return IoDemand(
        tuple(needs),
        _used_share([pair for pair in zip(windows, needs, strict=True) if pair[1].is_capped]),
        record.response.get("covered_fraction") or 1.0,
        _largest_request_bytes(record),
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


def _largest_request_bytes(record: Record) -> int | None:
    largest_kb = (record.device.queue_settings or {}).get("max_sectors_kb")
    return int(largest_kb) * KIB if largest_kb else None


def _caps_varied(record: Record) -> bool:
    """Return whether credits could raise a cap, or a cap changed while the trial ran."""
    buckets = (record.cage.credits or {}).get("buckets") or ()
    return any(bucket["rate"] > bucket["base"] for bucket in buckets) or any(
        cap_change_count(record, name) for name in IO_STAT_KEY
    )


def _used_share(capped: Sequence[tuple[Window, DemandWindow]]) -> float:
    """Return the least time under the caps as a share of the time taken.

    A window whose time without caps is longer than that least time is left out: a slow disk near a
    cap explains it, and not the cap.
    """
    seconds, least = 0.0, 0.0
    for window, demand in capped:
        needed = seconds_under_io_max(window.moved, window.caps)
        if needed > demand.free_seconds:
            seconds, least = seconds + window.seconds, least + needed
    return min(1.0, least / seconds) if seconds else 1.0


def _demand_window(record: Record, window: Window) -> DemandWindow:
    is_capped = _is_capped(record, window)
    if is_capped and _limits_at_disk(record):
        window = _without_waits_at_limit(record, window)
    own, disk = _own_and_disk_seconds(window, is_capped)
    return DemandWindow(
        window.moved,
        window.seconds,
        is_capped,
        own,
        disk,
        max(0.0, (window.disk_busy or 0.0) - disk),
        window.disk_requests,
        window.disk_queued,
    )


def _is_capped(record: Record, window: Window) -> bool:
    """Return whether a cap held the window back.

    A program that awaits its reads asynchronously does not wait by pressure. Near a cap it is taken
    to wait if it is idle.
    """
    if window.cpu is not None:
        idle = window.seconds - window.cpu - (window.disk_busy or 0.0)
        if idle >= IDLE * window.seconds:
            window = replace(window, waited_io=window.seconds)
    return binding_limit(window, record.cage.requested or {}).property is not None


def _limits_at_disk(record: Record) -> bool:
    """Return whether the disk itself holds requests back, so that they wait in its queue."""
    driver = (record.cage.driver or {}).get("name")
    return record.cage.enforced_by == "volume" or driver == "qemu-throttle"


def _without_waits_at_limit(record: Record, window: Window) -> Window:
    """Return the window with the disk's work alone, at the latency of a single read."""
    alone = (window.disk_requests or 0.0) * (record.device.read_latency_us or 0.0) / 1e6
    return replace(
        window,
        disk_busy=min(window.disk_busy or 0.0, alone),
        disk_queued=min(window.disk_queued or 0.0, alone),
    )


def _own_and_disk_seconds(window: Window, is_capped: bool) -> tuple[float, float]:
    """Return the window's own time and its waits for the disk; together its time without caps.

    A window that no cap held keeps its whole length.
    """
    busy, waited = window.disk_busy or 0.0, min(window.waited_io or 0.0, window.seconds)
    if is_capped and waited < WAITING * window.seconds:
        # The program awaits its reads asynchronously, and pressure does not count that.
        own = min(window.seconds, window.cpu or 0.0)
        return own, min(window.seconds - own, busy)
    disk = min(busy, waited)
    return window.seconds - (waited if is_capped else disk), disk
