"""The smallest volume that is enough, and the time that no volume falls below."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from pagecage.cloud.catalogue import InstanceType, Provider, VolumeType
from pagecage.cloud.formulas import (
    Formula,
    FormulaInput,
    ProvisionedFormula,
    RatePeriod,
    rate_periods,
)
from pagecage.cloud.prediction import VolumeOutlook
from pagecage.cloud.profile import CageOptions, LimitProfile, profile_of
from pagecage.cloud.volume_request import VolumeRequest
from pagecage.errors import PagecageError
from pagecage.model.volume_model import mean_us_at_size
from pagecage.units import BLOCK_BYTES, format_bytes

_BOTH = "reads and writes"


@dataclass(frozen=True)
class IoAmount:
    """The I/O of a program; `depth` is the number of requests in flight, None if unknown."""

    read_bytes: int = 0
    reads: int = 0
    written_bytes: int = 0
    writes: int = 0
    depth: int | None = None

    @property
    def by_direction(self) -> tuple[tuple[str, int, int], ...]:
        """Name, requests and bytes of each direction."""
        return ("read", self.reads, self.read_bytes), ("write", self.writes, self.written_bytes)


@dataclass(frozen=True)
class LimitFloor:
    """The least time that one `limit`, set by a layer, allows for bytes or operations."""

    limit: str
    by: str
    amount: int
    seconds: float


def time_floors(profile: LimitProfile, io: IoAmount) -> list[LimitFloor]:
    """Return the least time by each limit that the I/O touches, the longest first."""
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
            seconds = seconds_for(amount, rate_periods((layer,), profile.start))
            yield LimitFloor(name, layer.by, amount, seconds)


def _operations(profile: LimitProfile, requests: int, size_bytes: int) -> int:
    """Return the fewest operations that the provider may count; after merging, bytes decide."""
    accounting = profile.accounting
    if accounting is None or not accounting.io_size_bytes:
        return requests
    by_size = math.ceil(size_bytes / accounting.io_size_bytes)
    return by_size if accounting.merged and size_bytes else max(requests, by_size)


def counting_notes(profile: LimitProfile, io: IoAmount) -> Iterator[str]:
    """Yield a sentence for each direction whose operations differ from the requests."""
    accounting = profile.accounting
    for side, requests, size_bytes in io.by_direction:
        name, operations = f"{side}s", _operations(profile, requests, size_bytes)
        if accounting is None or accounting.io_size_bytes is None or operations == requests:
            continue
        unit = format_bytes(accounting.io_size_bytes)
        amount = f"{requests:,} {name}" if requests else f"{format_bytes(size_bytes)} of {name}"
        how = f"counts one operation for each {unit} of a request"
        if operations < requests:
            how = f"may merge neighbouring requests to {unit}, so only the bytes count"
        yield f"{amount} are at least {operations:,} operations: the provider {how}."


def _latency_floors(profile: LimitProfile, io: IoAmount) -> Iterator[LimitFloor]:
    """Yield the time of requests one after the other, by their least or their mean latency."""
    simulation = profile.simulation if profile.is_volume else None
    for direction, requests, size_bytes in io.by_direction:
        kind, latency_us = f"{direction} latency", getattr(profile.latency, f"{direction}_us", 0)
        if sizes := getattr(simulation, f"{direction}_latency", ()):
            kind = f"mean {kind}"
            latency_us = mean_us_at_size(sizes, size_bytes / max(requests, 1) or BLOCK_BYTES)
        if requests and latency_us and io.depth:
            seconds = requests * latency_us / 1e6 / io.depth
            yield LimitFloor(f"{kind}, {io.depth} in flight", profile.name, requests, seconds)


IOPS_STEP = 100
"""Step of provisioned IOPS. A prediction is not exact enough for a finer one."""
AS_FAST = 1.01
"""A volume is as fast as the fastest if it takes at most so many times its time."""


@dataclass(frozen=True)
class VolumeOffer:
    """The volumes of one type, on one instance or without one.

    `fixed` has the values that the customer has chosen; the others are free. A free size is at
    least `least_bytes`.
    """

    provider: Provider
    kind: VolumeType
    instance: InstanceType | None
    options: CageOptions
    fixed: VolumeRequest
    least_bytes: int

    def profile(self, request: VolumeRequest) -> LimitProfile:
        return profile_of(self.provider, self.kind, request, self.instance, self.options)

    @property
    def includes_rates(self) -> bool:
        """True if the price of the size includes every rate that is not fixed."""
        rates = (
            (self.fixed.iops, self.kind.read_iops),
            (self.fixed.throughput, self.kind.read_throughput),
        )
        return all(
            fixed is not None or not isinstance(formula, ProvisionedFormula) or formula.included
            for fixed, formula in rates
        )

    def plain(self) -> VolumeRequest:
        """Return the smallest volume with its included rates."""
        sizes = self._sizes()
        number = _least_number(len(sizes), lambda n: self._is_sold(self._sized(sizes[n])))
        return self._sized(sizes[number])

    def fastest(self, seconds: Callable[[LimitProfile], float]) -> VolumeRequest:
        """Return the fastest volume sold: the largest, or of tiers the best."""
        sizes = self._sizes()
        requests = [self._fastest_of(size) for size in (sizes if self.kind.tiers else sizes[-1:])]
        return min(requests, key=lambda request: seconds(self.profile(request)))

    def smallest(self, is_enough: Callable[[LimitProfile], bool]) -> VolumeRequest:
        """Return the smallest that is enough by size, IOPS, throughput; the fastest must be."""

        def suits(request: VolumeRequest) -> bool:
            return self._is_sold(request) and is_enough(self.profile(request))

        sizes = self._sizes()
        number = (
            next(n for n, size in enumerate(sizes) if suits(self._fastest_of(size)))
            if self.kind.tiers
            else _least_number(len(sizes), lambda n: suits(self._fastest_of(sizes[n])))
        )
        fastest = self._fastest_of(sizes[number])
        given = FormulaInput(fastest.size_bytes or 0)
        steps = _steps(self.kind.read_iops, self.fixed.iops, given, fastest.iops, IOPS_STEP)
        choices = [self._with_throughput(self._sized(fastest.size_bytes, iops)) for iops in steps]
        request = choices[_least_number(len(choices), lambda n: suits(choices[n]))]
        given = FormulaInput(request.size_bytes or 0, None, request.iops)
        narrower = [
            replace(request, throughput=rate)
            for rate in _steps(
                *(self.kind.read_throughput, self.fixed.throughput, given, request.throughput),
                self.kind.throughput_unit_bytes,
            )
        ]
        return narrower[_least_number(len(narrower), lambda n: suits(narrower[n]))]

    def _sizes(self) -> Sequence[int | None]:
        """Return the sizes to choose from, ascending; None where the limits do not depend on it."""
        bounds = self.kind.size
        if self.fixed.size_bytes is not None or bounds is None:
            return (self.fixed.size_bytes,)
        least = max(bounds.least_bytes, min(self.least_bytes, bounds.most_bytes))
        tiers = [tier.size_bytes for tier in self.kind.tiers.values() if tier.size_bytes >= least]
        step = bounds.step_bytes
        return tiers or range(-(-least // step) * step, bounds.most_bytes + 1, step)

    def _is_sold(self, request: VolumeRequest) -> bool:
        try:
            self.profile(request)
        except PagecageError:
            return False
        return True

    def _sized(self, size: int | None, iops: Fraction | None = None) -> VolumeRequest:
        return replace(self.fixed, size_bytes=size, iops=iops or self.fixed.iops)

    def _fastest_of(self, size: int | None) -> VolumeRequest:
        most = _most(self.kind.read_iops, FormulaInput(size or 0), 1)
        return self._with_throughput(self._sized(size, self.fixed.iops or most))

    def _with_throughput(self, request: VolumeRequest) -> VolumeRequest:
        given = FormulaInput(request.size_bytes or 0, None, request.iops)
        most = _most(self.kind.read_throughput, given, self.kind.throughput_unit_bytes)
        return replace(request, throughput=self.fixed.throughput or most)


def _most(formula: Formula | None, given: FormulaInput, unit: int) -> Fraction | None:
    """Return the greatest provisioned value in whole units; None for a formula without one."""
    if not isinstance(formula, ProvisionedFormula):
        return None
    return Fraction(formula.bounds(given)[1] // unit * unit)


def _steps(
    formula: Formula | None,
    fixed: Fraction | None,
    given: FormulaInput,
    most: Fraction | None,
    step: int,
) -> list[Fraction | None]:
    """Return the values up to `most` that can be bought; `most` alone if the customer has none."""
    if fixed is not None or not isinstance(formula, ProvisionedFormula):
        return [most]
    least, top = Fraction(math.ceil(formula.bounds(given)[0])), most or Fraction(0)
    between = range(int(least) // step * step + step, math.ceil(top), step)
    return [*({least} if least < top else ()), *map(Fraction, between), top]


def _least_number(count: int, is_enough: Callable[[int], bool]) -> int:
    """Return the least number below `count` that is enough; the last one must be."""
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low


def choose(
    offer: VolumeOffer, outlook: VolumeOutlook, under_seconds: float | None
) -> VolumeRequest:
    """Return the smallest volume that brings the run under a time.

    The upper end of the range counts, else the expected time, else that of the fastest volume.
    Without a time it is the smallest volume with its included rates, if it includes any. It may not
    be sold if the fixed values exclude each other.
    """
    if under_seconds is None and offer.includes_rates:
        return offer.plain()
    fastest = offer.profile(offer.fastest(outlook.seconds))
    least = outlook.seconds(fastest)
    if under_seconds is not None and outlook.high(fastest) <= under_seconds:
        return offer.smallest(lambda profile: outlook.high(profile) <= under_seconds)
    target = under_seconds if under_seconds and least <= under_seconds else AS_FAST * least
    return offer.smallest(lambda profile: outlook.seconds(profile) <= target)
