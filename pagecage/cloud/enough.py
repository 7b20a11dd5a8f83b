"""Searches for the smallest volume of a type that is fast enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from pagecage.cloud.catalogue import Provider, VolumeType
from pagecage.cloud.formulas import Formula, FormulaInput, ProvisionedFormula
from pagecage.cloud.instance_tables import InstanceType
from pagecage.cloud.profile import CageOptions, LimitProfile, profile_of
from pagecage.cloud.run_prediction import VolumeOutlook
from pagecage.cloud.volume_request import VolumeRequest
from pagecage.errors import PagecageError

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
        """Return the limits of one volume. Raises PagecageError if it is not sold."""
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
        """Return the fastest volume: the largest, or of tiers, which may lose a burst, the best.

        Raises PagecageError if none is sold.
        """
        sizes = self._sizes()
        requests = [self._fastest_of(size) for size in (sizes if self.kind.tiers else sizes[-1:])]
        return min(requests, key=lambda request: seconds(self.profile(request)))

    def smallest(self, is_enough: Callable[[LimitProfile], bool]) -> VolumeRequest:
        """Return the smallest volume that is enough: by size, then IOPS, then throughput.

        The fastest one must be enough.
        """

        def suits(request: VolumeRequest) -> bool:
            return self._is_sold(request) and is_enough(self.profile(request))

        fastest = self._fastest_of(self._least_size(suits))
        choices = [
            self._with_throughput(self._sized(fastest.size_bytes, iops))
            for iops in self._iops_steps(fastest)
        ]
        request = choices[_least_number(len(choices), lambda n: suits(choices[n]))]
        narrower = [replace(request, throughput=rate) for rate in self._throughput_steps(request)]
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

    def _least_size(self, suits: Callable[[VolumeRequest], bool]) -> int | None:
        sizes = self._sizes()
        if self.kind.tiers:
            return next(size for size in sizes if suits(self._fastest_of(size)))
        return sizes[_least_number(len(sizes), lambda n: suits(self._fastest_of(sizes[n])))]

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
        """Return the request with the most throughput for its size and IOPS, unless it is fixed."""
        given = FormulaInput(request.size_bytes or 0, None, request.iops)
        most = _most(self.kind.read_throughput, given, self.kind.throughput_unit_bytes)
        return replace(request, throughput=self.fixed.throughput or most)

    def _iops_steps(self, fastest: VolumeRequest) -> list[Fraction | None]:
        """Return the IOPS to choose from, ascending, up to those of the fastest volume."""
        formula = self.kind.read_iops
        if self.fixed.iops is not None or not isinstance(formula, ProvisionedFormula):
            return [fastest.iops]
        return _steps(formula, FormulaInput(fastest.size_bytes or 0), fastest.iops, IOPS_STEP)

    def _throughput_steps(self, request: VolumeRequest) -> list[Fraction | None]:
        formula = self.kind.read_throughput
        if self.fixed.throughput is not None or not isinstance(formula, ProvisionedFormula):
            return [request.throughput]
        given = FormulaInput(request.size_bytes or 0, None, request.iops)
        return _steps(formula, given, request.throughput, self.kind.throughput_unit_bytes)


def _most(formula: Formula | None, given: FormulaInput, unit: int) -> Fraction | None:
    """Return the greatest provisioned value in whole units; None for a formula without one."""
    if not isinstance(formula, ProvisionedFormula):
        return None
    return Fraction(formula.bounds(given)[1] // unit * unit)


def _steps(
    formula: ProvisionedFormula[Fraction], given: FormulaInput, most: Fraction | None, step: int
) -> list[Fraction | None]:
    """Return the least provisioned value, the multiples of the step above it, and the greatest."""
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

    The upper end of the range counts. Where that is out of reach, the expected time counts, and
    where that is out of reach too, the volume is as fast as the fastest. Without a time it is the
    smallest volume with its included rates; of a type that includes none, it is as fast as the
    fastest. The volume may not be sold if the fixed values exclude each other.
    """
    if under_seconds is None and offer.includes_rates:
        return offer.plain()
    fastest = offer.profile(offer.fastest(outlook.seconds))
    least = outlook.seconds(fastest)
    if under_seconds is not None and outlook.high(fastest) <= under_seconds:
        return offer.smallest(lambda profile: outlook.high(profile) <= under_seconds)
    target = under_seconds if under_seconds and least <= under_seconds else AS_FAST * least
    return offer.smallest(lambda profile: outlook.seconds(profile) <= target)
