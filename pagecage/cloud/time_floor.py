"""The least time that the limits of a volume or a cage allow for an amount of I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pagecage.cloud.profile import LimitProfile
from pagecage.cloud.volume_limits import LimitLayer, RatePeriod, rate_periods
from pagecage.model.cage import LatencyFloor
from pagecage.model.latency_quantiles import mean_us_at_size
from pagecage.units import BLOCK_BYTES

_BOTH = "reads and writes"


@dataclass(frozen=True)
class IoAmount:
    """The I/O of a program: bytes, and the number of requests that move them.

    `depth` is the number of requests in flight; None if unknown.
    """

    read_bytes: int = 0
    reads: int = 0
    written_bytes: int = 0
    writes: int = 0
    depth: int | None = None


@dataclass(frozen=True)
class LimitFloor:
    """The least time that one limit allows.

    `limit` is the quantity that it limits, `by` the layer that sets it. `amount` is in bytes or
    operations, as the provider counts them.
    """

    limit: str
    by: str
    amount: int
    seconds: float


def time_floors(profile: LimitProfile, io: IoAmount) -> list[LimitFloor]:
    """Return the least time by each limit of each layer, the longest first.

    The first of them is the least time of the whole, because all limits hold at the same time.
    Limits that the amount does not touch are left out.
    """
    found = [*_rate_floors(profile, io), *_latency_floors(profile, io)]
    return sorted(found, key=lambda floor: floor.seconds, reverse=True)


def seconds_for(amount: int, periods: Sequence[RatePeriod]) -> float:
    """Return the time that an amount takes at these rates; 0 without a rate."""
    left, seconds = Fraction(amount), Fraction(0)
    for period in periods:
        needed = left / period.rate
        if period.seconds is None or needed <= period.seconds:
            return float(seconds + needed)
        left -= period.rate * period.seconds
        seconds += period.seconds
    return float(seconds)


def _rate_floors(profile: LimitProfile, io: IoAmount) -> Iterator[LimitFloor]:
    limits, is_combined = profile.limits, bool(profile.accounting and profile.accounting.combined)
    reads = _operations(profile, io.reads, io.read_bytes)
    writes = _operations(profile, io.writes, io.written_bytes)
    if is_combined:
        groups = [
            (f"IOPS, {_BOTH}", limits.read_iops, reads + writes),
            (f"bandwidth, {_BOTH}", limits.read_bandwidth, io.read_bytes + io.written_bytes),
        ]
    else:
        groups = [
            ("read IOPS", limits.read_iops, reads),
            ("write IOPS", limits.write_iops, writes),
            ("read bandwidth", limits.read_bandwidth, io.read_bytes),
            ("write bandwidth", limits.write_bandwidth, io.written_bytes),
        ]
    for name, layers, amount in groups:
        for layer in layers if amount else ():
            yield _layer_floor(name, layer, amount, profile.start)


def _layer_floor(name: str, layer: LimitLayer, amount: int, start: str) -> LimitFloor:
    return LimitFloor(name, layer.by, amount, seconds_for(amount, rate_periods((layer,), start)))


def _operations(profile: LimitProfile, requests: int, size_bytes: int) -> int:
    """Return the fewest operations that the provider may count for these requests.

    Larger requests count as several. If the provider merges, adjacent ones may count as one, so
    only the bytes are a lower bound.
    """
    accounting = profile.accounting
    if accounting is None or not accounting.io_size_bytes:
        return requests
    by_size = math.ceil(size_bytes / accounting.io_size_bytes)
    return by_size if accounting.merged and size_bytes else max(requests, by_size)


def _latency_floors(profile: LimitProfile, io: IoAmount) -> Iterator[LimitFloor]:
    """Yield the time of requests one after the other, `depth` of them in flight.

    Requests that draw from a distribution take its mean, which is that of many requests.
    """
    for direction, requests, size_bytes in (
        ("read", io.reads, io.read_bytes),
        ("write", io.writes, io.written_bytes),
    ):
        kind, latency_us = _latency(profile, direction, size_bytes / max(requests, 1))
        if requests and latency_us and io.depth:
            seconds = requests * latency_us / 1e6 / io.depth
            yield LimitFloor(f"{kind}, {io.depth} in flight", profile.name, requests, seconds)


def _latency(profile: LimitProfile, direction: str, size_bytes: float) -> tuple[str, float]:
    """Return the name and the microseconds of the latency that is imposed; 0 without one."""
    simulation, floor = profile.simulation, profile.latency or LatencyFloor()
    if profile.is_volume and simulation:
        sizes = simulation.read_latency if direction == "read" else simulation.write_latency
        if sizes:
            return f"mean {direction} latency", mean_us_at_size(sizes, size_bytes or BLOCK_BYTES)
    return f"{direction} latency", getattr(floor, f"{direction}_us") or 0
