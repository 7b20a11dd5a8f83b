"""Prediction of a run's time on another volume, by a walk through its demand for I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pagecage.cloud.catalogue import Provider, VolumeType, distributions
from pagecage.cloud.formulas import FULLNESS
from pagecage.cloud.profile import LimitProfile
from pagecage.model.cage import IoAccounting, TokenBucket
from pagecage.model.volume_model import latency_at_size, mean_us_at_size
from pagecage.verdicts.io_demand import DemandWindow, IoDemand

Count = Literal["fewest", "expected", "most"]
"""Bounds of what the provider may count for the same requests, and the expected number."""
_DIRECTIONS = {"read": ("rios", "rbytes"), "write": ("wios", "wbytes")}
LIMITS = {"IOPS": "iops", "bandwidth": "bandwidth"}
"""Limits by name, with the quantities of a profile."""
Scope = tuple[str, ...]
"""The directions that a limit counts together."""


def scopes(*, combined: bool) -> tuple[Scope, ...]:
    """Return the scope of each limit; if `combined`, reads and writes share it."""
    each = tuple(_DIRECTIONS)
    return (each,) if combined else tuple((one,) for one in each)


@dataclass(frozen=True)
class IoMeter:
    """One limit of one layer. `limit` is `IOPS` or `bandwidth`, `by` the layer's name.

    The bucket is as full as at the start.
    """

    limit: str
    by: str
    scope: Scope
    bucket: TokenBucket


def io_meters(profile: LimitProfile, *, combined: bool) -> tuple[IoMeter, ...]:
    """Return the meters of a profile; if `combined`, reads and writes share each limit."""
    meters = []
    for limit, quantity in LIMITS.items():
        for scope in scopes(combined=combined):
            for layer in getattr(profile.limits, f"{scope[0]}_{quantity}"):
                rate = float(layer.rate(has_credits=True))
                capacity = float(layer.credits or 0) if layer.bursts else 0.0
                # A burst without end is a plain limit.
                base = rate if layer.credits is None else float(layer.base)
                credits_ = float(FULLNESS[profile.start]) * capacity
                bucket = TokenBucket(base, rate, capacity, credits_)
                meters.append(IoMeter(limit, layer.by, scope, bucket))
    return tuple(meters)


def counted(
    limit: str,
    scope: Scope,
    window: DemandWindow,
    demand: IoDemand,
    rules: IoAccounting,
    count: Count,
) -> float:
    """Return what the provider counts of a window's I/O against a limit, in I/Os or bytes."""
    keys = [_DIRECTIONS[direction] for direction in scope]
    if limit == "bandwidth":
        return sum(window.moved[size_key] for _, size_key in keys)
    return sum(
        _operations(window.moved[ios_key], window.moved[size_key], demand, rules, count)
        for ios_key, size_key in keys
    )


def _operations(
    ios: float, size_bytes: float, demand: IoDemand, rules: IoAccounting, count: Count
) -> float:
    """Return the number of operations that the provider counts.

    The fewest are those after merging at the provider; if unknown, it merges. The most are those
    before the kernel's merging, each split as badly as the largest request allows.
    """
    if not ios:
        return 0.0
    merged = ios * demand.unmerged_share
    unit = rules.io_size_bytes
    if unit is None:
        return ios if count == "most" else merged
    by_size = size_bytes / unit
    if count == "fewest":
        return by_size if rules.merged in (True, None) else max(merged, by_size)
    largest = demand.largest_request_bytes
    more = math.inf if largest is None else math.ceil(largest / unit) - 1
    most = ios + min(by_size, ios * more)
    # An average of exactly one unit must not become two by rounding.
    return most if count == "most" else min(most, merged * math.ceil(by_size / merged - 1e-6))


LATENCY, PROGRAM = "latency", "program"
"""Causes of a window's time other than the limits."""
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
    """The cause of a window's time: `IOPS`, `bandwidth`, `latency` or `program`, and its layer."""

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
    whole, errors, needs = 1 / demand.covered_share, given.errors, []
    used = errors.held * whole / demand.used_share
    for window in demand.windows:
        amounts = {
            (limit, scope): used * counted(limit, scope, window, demand, rules, given.count)
            for limit in LIMITS
            for scope in scopes(combined=given.combined)
        }
        own = window.own_seconds * whole * (errors.capped if window.is_capped else errors.free)
        disk = _disk_seconds(window, given) * whole
        serial = 0.0 if window.is_capped else errors.serial * own
        needs.append(WindowNeed(own, disk, serial, amounts))
    return tuple(needs)


def _disk_seconds(window: DemandWindow, given: Assumptions) -> float:
    """Return the waits for the disk at the volume's latency and the same requests in flight."""
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


EXPECTED = ErrorFactors(serial=0.25)
LOWEST = ErrorFactors(held=0.90, disk=0.80, free=0.75, capped=0.25)
LOWEST_EMULATED = ErrorFactors(held=0.90, disk=0.80, free=0.0, capped=0.0)
"""On an emulated CPU, nothing shows how little of the program's own time a real one needs."""
HIGHEST = ErrorFactors(held=1.10, disk=1.20, free=1.30, capped=1.25, serial=0.75)
"""Factors of the expected time and of the range, which covers COVERED of the stored trials.
Capped windows show too long a free time: a reader woken for each request computes longer."""
COVERED = 0.95
_HIGH_SHARE = 0.95
"""The percentile that bounds a measured latency: the average of a run is not in the tail."""


@dataclass(frozen=True)
class LatencyBounds:
    """The least and the greatest time of a read and of a write at a volume, in seconds.

    `measured` are the means that users measured; None where there is none.
    """

    least: tuple[float, float]
    greatest: tuple[float, float]
    measured: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True)
class VolumePrediction:
    """The predicted time, its range, the cause of most of it, and that cause's share.

    `held_share` is the share of the time that is due to limits. `drained` has the seconds after
    which the credits of a limit are used up.
    """

    seconds: float
    low: float
    high: float
    cause: Cause
    share: float
    held_share: float
    drained: Mapping[Cause, float]


class VolumeOutlook:
    """The times of one trial on volumes of one type, which count and answer alike.

    The needs of the trial's windows are computed once, because a search compares many volumes.
    """

    def __init__(
        self, demand: IoDemand, rules: IoAccounting | None, latency: LatencyBounds | None
    ) -> None:
        known = rules or IoAccounting()
        least = latency.least if latency else None
        greatest = latency.greatest if latency else None
        usual = _expected_latency(demand, latency)
        shared = known.combined is not False
        lowest = LOWEST_EMULATED if demand.is_emulated else LOWEST
        self._low = Assumptions("fewest", known.combined is True, least, errors=lowest)
        self._expected = Assumptions("expected", shared, usual, errors=EXPECTED)
        self._high = Assumptions("most", shared, greatest, True, HIGHEST)
        self._needs = {
            given: window_needs(demand, known, given)
            for given in (self._low, self._expected, self._high)
        }

    def _walk(self, given: Assumptions, profile: LimitProfile) -> WalkedTime:
        meters = io_meters(profile, combined=given.combined)
        return walk(self._needs[given], meters, profile.name)

    def seconds(self, profile: LimitProfile) -> float:
        return self._walk(self._expected, profile).seconds

    def high(self, profile: LimitProfile) -> float:
        return max(self._walk(self._high, profile).seconds, self.seconds(profile))

    def predict(self, profile: LimitProfile) -> VolumePrediction:
        expected = self._walk(self._expected, profile)
        parts, whole = expected.parts, expected.seconds or 1.0
        cause = max(parts, key=lambda one: parts[one])
        held = sum(part for one, part in parts.items() if one.limit in LIMITS)
        return VolumePrediction(
            seconds=expected.seconds,
            low=min(self._walk(self._low, profile).seconds, expected.seconds),
            high=max(self._walk(self._high, profile).seconds, expected.seconds),
            cause=cause,
            share=parts[cause] / whole,
            held_share=held / whole,
            drained=expected.drained,
        )


def latency_bounds(
    kind: VolumeType, asked_us: int | None, greatest_us: int, request_bytes: float
) -> LatencyBounds:
    """Return the bounds of a volume's latency for requests of a size.

    They are the latency asked for; or the least that users measured, and their 95th percentile; or
    what the provider states. Without a stated least it is zero, without a stated greatest
    `greatest_us`.
    """
    if asked_us is not None:
        return LatencyBounds((asked_us / 1e6,) * 2, (asked_us / 1e6,) * 2)
    bounds: list[tuple[float, float, float | None]] = []
    for side in ("read", "write"):
        if known := distributions(kind.measured, side):
            least, most = (latency_at_size(known, request_bytes, p) for p in (0.0, _HIGH_SHARE))
            mean = mean_us_at_size(known, request_bytes)
            bounds.append((least / 1e6, most / 1e6, mean / 1e6))
        else:
            least_us = getattr(kind.latency, f"{side}_from_us", None) or 0
            most_us = getattr(kind.latency, f"{side}_below_us", None) or greatest_us
            bounds.append((least_us / 1e6, most_us / 1e6, None))
    read, write = bounds
    return LatencyBounds((read[0], write[0]), (read[1], write[1]), (read[2], write[2]))


def greatest_published_us(providers: Sequence[Provider]) -> int:
    stated = [kind.latency for provider in providers for kind in provider.types if kind.latency]
    return max(
        (us for one in stated for us in (one.read_below_us, one.write_below_us) if us), default=0
    )


def _expected_latency(
    demand: IoDemand, latency: LatencyBounds | None
) -> tuple[float, float] | None:
    """Return the measured mean, or the run's own within the bounds; None if all is its own."""
    own = demand.latency_seconds
    if own is None or latency is None:
        return None
    bounds = zip(latency.least, latency.greatest, latency.measured, strict=True)
    read, write = (
        min(max(own, least), greatest) if measured is None else measured
        for least, greatest, measured in bounds
    )
    return None if read == write == own else (read, write)
