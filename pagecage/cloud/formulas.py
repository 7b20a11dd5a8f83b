"""Limits of a volume by the formulas of its provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Generic, Protocol, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from pagecage.definitions.fields import SIZE_PATTERN, SizeBytes, StrictTable
from pagecage.errors import PagecageError
from pagecage.units import GIB, MIB, parse_exact_bytes

FULLNESS = {"full": Fraction(1), "half": Fraction(1, 2), "drained": Fraction(0)}


@dataclass(frozen=True)
class LimitLayer:
    """The limit of the volume or of the instance, in I/Os or bytes per second.

    `by` names which. A `burst` with `credits` of None has no end.
    """

    by: str
    base: Fraction
    burst: Fraction | None = None
    credits: Fraction | None = None

    @property
    def bursts(self) -> bool:
        """True if the layer ever allows more than its base."""
        return self.burst is not None and self.burst > self.base

    def rate(self, has_credits: bool) -> Fraction:
        return self.burst if has_credits and self.burst is not None and self.bursts else self.base

    def scaled(self, factor: Fraction) -> LimitLayer:
        """Return the layer at another speed; its bucket lasts as long as before."""
        scaled = [None if value is None else value * factor for value in (self.burst, self.credits)]
        return LimitLayer(self.by, self.base * factor, *scaled)


@dataclass(frozen=True)
class RatePeriod:
    """A period of constant rate under full demand, and the layer that sets it.

    `seconds` is None for the last period, which has no end. `credits_of` is the layer whose credits
    end the period, which need not be the one that sets the rate.
    """

    rate: Fraction
    by: str
    seconds: Fraction | None
    credits_of: str = ""


def rate_periods(layers: Sequence[LimitLayer], start: str = "full") -> tuple[RatePeriod, ...]:
    """Return the rates over time for a program that always wants more.

    A layer's bucket drains by the use above its base. `start` is how full the buckets are at first.
    Empty without layers, which means no limit.
    """
    left: dict[int, Fraction | None] = {
        number: None if layer.credits is None else layer.credits * FULLNESS[start]
        for number, layer in enumerate(layers)
        if layer.bursts
    }
    periods: list[RatePeriod] = []
    while layers:
        rates = [
            layer.rate(left.get(number, Fraction(0)) != 0) for number, layer in enumerate(layers)
        ]
        rate = min(rates)
        drains = {
            n: rate - layers[n].base
            for n, credit in left.items()
            if credit and rate > layers[n].base
        }
        ends = {n: (left[n] or Fraction(0)) / drain for n, drain in drains.items()}
        by = layers[rates.index(rate)].by
        if not ends:
            _append(periods, RatePeriod(rate, by, None))
            return tuple(periods)
        first = min(ends, key=lambda n: ends[n])
        seconds = ends[first]
        _append(periods, RatePeriod(rate, by, seconds, layers[first].by))
        for number, drain in drains.items():
            left[number] = (left[number] or Fraction(0)) - drain * seconds
    return ()


def _append(periods: list[RatePeriod], period: RatePeriod) -> None:
    if periods and periods[-1].rate == period.rate:
        before, total = periods.pop(), None
        if before.seconds is not None and period.seconds is not None:
            total = before.seconds + period.seconds
        period = replace(period, seconds=total)
    periods.append(period)


@dataclass(frozen=True)
class VolumeLimits:
    """The layers of each quantity; no layer is no limit."""

    read_iops: tuple[LimitLayer, ...] = ()
    write_iops: tuple[LimitLayer, ...] = ()
    read_bandwidth: tuple[LimitLayer, ...] = ()
    write_bandwidth: tuple[LimitLayer, ...] = ()

    def scaled(self, factor: Fraction) -> VolumeLimits:
        return VolumeLimits(
            *(tuple(layer.scaled(factor) for layer in layers) for layers in vars(self).values())
        )


def reachable(bandwidth: Fraction, iops: Fraction, io_size_bytes: int | None) -> Fraction:
    """Return the bandwidth that the IOPS allow if the provider counts larger I/Os as several."""
    return bandwidth if io_size_bytes is None else min(bandwidth, iops * io_size_bytes)


def _number(value: object) -> Fraction:
    if isinstance(value, int | Decimal) and not isinstance(value, bool) and value > 0:
        return Fraction(value)
    raise ValueError("this must be a number above zero, without a unit")


def _bytes(value: object) -> Fraction:
    if not isinstance(value, str):
        raise ValueError('this must be a string with a unit, as in "125MiB"')
    try:
        return parse_exact_bytes(value)
    except PagecageError as error:
        raise ValueError(f"{error.message.removeprefix('size: ')}; {error.hint}") from None


Number = Annotated[
    Fraction, BeforeValidator(_number, json_schema_input_type=Annotated[float, Field(gt=0)])
]
Bytes = Annotated[
    Fraction,
    BeforeValidator(_bytes, json_schema_input_type=Annotated[str, Field(pattern=SIZE_PATTERN)]),
]
Amount = TypeVar("Amount", bound=Fraction)


@dataclass(frozen=True)
class FormulaInput:
    """The input of a formula.

    `provisioned` is the value that was bought for the formula's quantity. `other` is the volume's
    other quantity: IOPS for a throughput, throughput for IOPS.
    """

    size_bytes: int = 0
    provisioned: Fraction | None = None
    other: Fraction | None = None


class Formula(Protocol):
    """A formula for one quantity, in I/Os or bytes per second."""

    def evaluate(self, given: FormulaInput) -> Fraction | None:
        """Return the figure; None if the formula gives this volume nothing."""

    @property
    def greatest(self) -> Fraction | None:
        """The greatest figure of any volume of the type; None without a bound."""


class ExactTable(StrictTable):
    """A table with exact figures."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True
    )


@dataclass(frozen=True)
class StepsFormula:
    """A figure for each range of sizes, as (greatest size of the range, figure) in ascending order.

    A size of None means any size. A figure of None means nothing.
    """

    steps: tuple[tuple[int | None, Fraction | None], ...]

    def evaluate(self, given: FormulaInput) -> Fraction | None:
        fitting = (
            figure for up_to, figure in self.steps if up_to is None or given.size_bytes <= up_to
        )
        return next(fitting, None)

    @property
    def greatest(self) -> Fraction | None:
        return max((figure for _, figure in self.steps if figure is not None), default=None)


class _Capped(ExactTable):
    if TYPE_CHECKING:  # each table declares it
        most: Fraction | None

    @property
    def greatest(self) -> Fraction | None:
        return self.most


class LinearFormula(_Capped, Generic[Amount]):
    """`base` plus a rate per GiB or per TiB, kept between `least` and `most`."""

    per_gib: Amount | None = None
    per_tib: Amount | None = None
    base: Amount | None = None
    least: Amount | None = None
    most: Amount | None = None

    @model_validator(mode="after")
    def _check_slope(self) -> LinearFormula[Amount]:
        if (self.per_gib is None) == (self.per_tib is None):
            raise ValueError("linear needs either per_gib or per_tib")
        return self

    def evaluate(self, given: FormulaInput) -> Fraction | None:
        per_gib = self.per_gib if self.per_gib is not None else (self.per_tib or Fraction(0)) / 1024
        return _clamp(
            (self.base or Fraction(0)) + per_gib * Fraction(given.size_bytes, GIB),
            self.least,
            self.most,
        )


class ProvisionedFormula(_Capped, Generic[Amount]):
    """A figure that is bought apart from the size, within bounds.

    `included` applies if nothing is bought. Without it, a value must be bought.
    """

    most: Amount
    included: Amount | None = None
    least: Amount | None = None
    least_per_gib: Amount | None = None
    most_per_gib: Amount | None = None
    most_per_iops: Bytes | None = None

    def evaluate(self, given: FormulaInput) -> Fraction | None:
        """Return the bought or the included figure, without a check of the bounds."""
        return given.provisioned if given.provisioned is not None else self.included

    def bounds(self, given: FormulaInput) -> tuple[Fraction, Fraction]:
        """Return the least and the greatest figure that can be bought for this volume.

        The included figure is allowed at any size.
        """
        size_gib, upper = Fraction(given.size_bytes, GIB), Fraction(self.most)
        most = upper
        if self.most_per_gib is not None:
            most = min(most, self.most_per_gib * size_gib)
        if self.most_per_iops is not None and given.other is not None:
            most = min(most, self.most_per_iops * given.other)
        least = max(self.least or Fraction(0), (self.least_per_gib or Fraction(0)) * size_gib)
        return min(least, upper), max(most, self.included or Fraction(0))


class PerIopsFormula(_Capped):
    """Throughput of `each` bytes for one I/O, kept between `least` and `most`."""

    each: Bytes
    most: Bytes
    least: Bytes | None = None

    def evaluate(self, given: FormulaInput) -> Fraction | None:
        other = given.other
        return None if other is None else _clamp(self.each * other, self.least, self.most)


class PerThroughputFormula(_Capped):
    """IOPS that follow from the throughput: `each_mib` for one MiB/s, `most` at most."""

    each_mib: Number
    most: Number | None = None

    def evaluate(self, given: FormulaInput) -> Fraction | None:
        other = given.other
        return None if other is None else _clamp(self.each_mib * other / MIB, None, self.most)


class SizeStepTable(ExactTable, Generic[Amount]):
    """The figure of volumes up to this size; without a size, of all larger volumes."""

    up_to: SizeBytes | None = None
    value: Amount


class FormulaTable(ExactTable, Generic[Amount]):
    """A formula in exactly one of its shapes."""

    fixed: Amount | None = None
    linear: LinearFormula[Amount] | None = None
    steps: list[SizeStepTable[Amount]] | None = None
    provisioned: ProvisionedFormula[Amount] | None = None
    per_iops: PerIopsFormula | None = None
    per_throughput: PerThroughputFormula | None = None

    @model_validator(mode="after")
    def _check_shape(self) -> FormulaTable[Amount]:
        if len(self.model_fields_set) != 1:
            reason = f"a formula needs exactly one of {', '.join(FormulaTable.model_fields)}"
            raise ValueError(reason)
        return self

    @property
    def formula(self) -> Formula:
        if self.fixed is not None:
            return StepsFormula(((None, self.fixed),))
        if self.steps is not None:
            return StepsFormula(tuple((step.up_to, step.value) for step in self.steps))
        shape = self.linear or self.provisioned or self.per_iops or self.per_throughput
        assert shape is not None  # by the validator
        return shape


def _clamp(value: Fraction, least: Fraction | None, most: Fraction | None) -> Fraction:
    raised = value if least is None else max(value, least)
    return raised if most is None else min(raised, most)
