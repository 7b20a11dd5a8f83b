"""The walk of a trial's windows over the meters of a volume.

Each window takes the longest of the program's time without limits and the times that the meters
need. Buckets drain and refill in continuous time, so a burst may end within the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagecage.cloud.io_meters import LIMITS, Count, IoMeter, Scope, counted, scopes
from pagecage.model.cage import IoAccounting
from pagecage.verdicts.io_demand import DemandWindow, IoDemand

LATENCY, PROGRAM = "latency", "program"
"""Causes of a window's time beside the limits."""
_EMPTY = 1e-9
"""Share of a bucket's capacity that is an error of rounding."""


@dataclass(frozen=True)
class ErrorFactors:
    """Factors on the parts of a predicted time.

    `held` is for time under a limit. `free` is for the program's own time and `disk` for its waits
    for the disk, both in windows that no cap held; `capped` is for both in the other windows. Waits
    at a latency that is given take `disk`. `serial` is the share of the program's own time that may
    not overlap with time under a limit, in windows that no cap held: they do not show it.
    """

    held: float = 1.0
    disk: float = 1.0
    free: float = 1.0
    capped: float = 1.0
    serial: float = 0.0


@dataclass(frozen=True)
class Assumptions:
    """One set of answers to what the run and the catalogue leave open.

    `latency` is the time of a read and of a write at the disk in seconds; None is that of the run.
    With `is_shallow`, a window that a cap held had one request in flight: blk-throttle releases
    requests in batches, so the queue at the disk looks deeper than it is.
    """

    count: Count
    combined: bool
    latency: tuple[float, float] | None = None
    is_shallow: bool = False
    errors: ErrorFactors = ErrorFactors()


@dataclass(frozen=True)
class Cause:
    """The cause of a window's time.

    `limit` is `IOPS`, `bandwidth`, `latency` or `program`, `by` the layer that sets it.
    """

    limit: str
    by: str = ""


@dataclass(frozen=True)
class WindowNeed:
    """The needs of one window: its time without limits, and the I/O that the meters count.

    `serial_seconds` are added to time under a limit, as far as that is longer.
    """

    own_seconds: float
    disk_seconds: float
    serial_seconds: float
    amounts: Mapping[tuple[str, Scope], float]


@dataclass(frozen=True)
class WalkedTime:
    """The time of a walk, its parts by cause, and the moments at which credits were used up."""

    seconds: float
    parts: Mapping[Cause, float]
    drained: Mapping[Cause, float]


def window_needs(
    demand: IoDemand, rules: IoAccounting, given: Assumptions
) -> tuple[WindowNeed, ...]:
    """Return the needs of every window of the whole pass.

    A pass that was covered in part is stretched, so that its phases stay in order.
    """
    return tuple(_need(window, demand, rules, given) for window in demand.windows)


def _need(
    window: DemandWindow, demand: IoDemand, rules: IoAccounting, given: Assumptions
) -> WindowNeed:
    whole, errors = 1 / demand.covered_share, given.errors
    used = errors.held * whole / demand.used_share
    amounts = {
        (limit, scope): used * counted(limit, scope, window, demand, rules, given.count)
        for limit in LIMITS
        for scope in scopes(combined=given.combined)
    }
    own = window.own_seconds * whole * (errors.capped if window.is_capped else errors.free)
    disk = _disk_seconds(window, given) * whole
    serial = 0.0 if window.is_capped else errors.serial * own
    return WindowNeed(own, disk, serial, amounts)


def _disk_seconds(window: DemandWindow, given: Assumptions) -> float:
    """Return the waits for the disk, at the latency of the volume.

    The number of requests in flight stays, and so does the work that the disk did unnoticed.
    """
    errors, busy = given.errors, window.disk_seconds + window.hidden_seconds
    if given.latency is None or not window.requests or not window.queued_seconds or not busy:
        return window.disk_seconds * (errors.capped if window.is_capped else errors.disk)
    depth = max(1.0, window.queued_seconds / busy)
    if given.is_shallow and window.is_capped:
        depth = 1.0
    ios = window.moved["rios"] + window.moved["wios"]
    writes = window.moved["wios"] / ios if ios else 0.0
    latency = given.latency[0] * (1 - writes) + given.latency[1] * writes
    return errors.disk * max(0.0, window.requests * latency / depth - window.hidden_seconds)


def walk(needs: Sequence[WindowNeed], meters: Sequence[IoMeter], volume: str) -> WalkedTime:
    """Return the time of the windows one after the other; `volume` names what sets the latency."""
    now, parts, drained = 0.0, dict[Cause, float](), dict[Cause, float]()
    buckets = [meter.bucket for meter in meters]
    for need in needs:
        seconds = need.own_seconds + need.disk_seconds
        cause = Cause(LATENCY, volume) if need.disk_seconds > need.own_seconds else Cause(PROGRAM)
        for meter, bucket in zip(meters, buckets, strict=True):
            amount = need.amounts[meter.limit, meter.scope]
            needed = bucket.least_seconds(amount) + min(need.serial_seconds, amount / bucket.rate)
            if needed > seconds:
                seconds, cause = needed, Cause(meter.limit, meter.by)
        for number, meter in enumerate(meters):
            if meter.bucket.capacity:
                before, used = buckets[number], need.amounts[meter.limit, meter.scope]
                buckets[number] = before.after(used, seconds)
                if before.credits > buckets[number].credits <= _EMPTY * meter.bucket.capacity:
                    moment = now + before.credits / (before.rate - before.base)
                    drained.setdefault(Cause(meter.limit, meter.by), min(moment, now + seconds))
        now += seconds
        parts[cause] = parts.get(cause, 0.0) + seconds
    return WalkedTime(now, parts, drained)
