"""The shapes in which providers say what a volume may do, as functions of its size and of what was bought.

Every figure is exact (a fraction): rates per GiB are seldom whole bytes, and nothing is rounded before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from pagecage.definitions.fields import SIZE_PATTERN, SizeBytes, StrictTable
from pagecage.errors import PagecageError
from pagecage.units import GIB, MIB, parse_exact_bytes


@dataclass(frozen=True)
class Fixed:
    """The same at any size."""

    value: Fraction


@dataclass(frozen=True)
class Linear:
    """`base` and so much a GiB, kept between `least` and `most`."""

    per_gib: Fraction
    base: Fraction = Fraction(0)
    least: Fraction | None = None
    most: Fraction | None = None


@dataclass(frozen=True)
class SizeStep:
    """What a volume up to this size has; None is nothing, and no size any size."""

    up_to_bytes: int | None
    value: Fraction | None


@dataclass(frozen=True)
class SizeSteps:
    """A table by size: the first step that the volume fits in."""

    steps: tuple[SizeStep, ...]


@dataclass(frozen=True)
class Provisioned:
    """What was bought: `included` unless asked for (None: one has to ask), within the bounds and ratios."""

    most: Fraction
    included: Fraction | None = None
    least: Fraction = Fraction(0)
    least_per_gib: Fraction | None = None
    most_per_gib: Fraction | None = None
    most_per_iops: Fraction | None = None


@dataclass(frozen=True)
class PerIops:
    """Throughput that comes with the IOPS: so many bytes for each, kept between `least` and `most`."""

    per_iops: Fraction
    most: Fraction
    least: Fraction | None = None


@dataclass(frozen=True)
class PerThroughput:
    """IOPS that come with the throughput: so many for each MiB/s."""

    per_mib: Fraction
    most: Fraction | None = None


Formula = Fixed | Linear | SizeSteps | Provisioned | PerIops | PerThroughput


@dataclass(frozen=True)
class FormulaInput:
    """What a formula may need: the size, what was bought of its quantity, and the volume's other quantity."""

    size_bytes: int = 0
    bought: Fraction | None = None
    other: Fraction | None = None


def evaluate(formula: Formula, known: FormulaInput) -> Fraction | None:
    """The figure in I/Os or bytes a second; None where the formula gives this volume nothing.

    Whether what was bought is allowed is not asked here: see `bounds`.
    """
    match formula:
        case Fixed(value):
            return value
        case Linear(per_gib, base, least, most):
            return clamp(base + per_gib * Fraction(known.size_bytes, GIB), least, most)
        case SizeSteps(steps):
            fitting = [step.value for step in steps if step.up_to_bytes is None or known.size_bytes <= step.up_to_bytes]
            return fitting[0] if fitting else None
        case Provisioned(included=included):
            return known.bought if known.bought is not None else included
        case PerIops(per_iops, most, least):
            return None if known.other is None else clamp(per_iops * known.other, least, most)
        case PerThroughput(per_mib, most):
            return None if known.other is None else clamp(per_mib * known.other / MIB, None, most)


def bounds(formula: Provisioned, known: FormulaInput) -> tuple[Fraction, Fraction]:
    """The least and the most that may be bought for a volume of this size, with this much of the other quantity.

    What is included is allowed at any size.
    """
    size_gib, most = Fraction(known.size_bytes, GIB), formula.most
    if formula.most_per_gib is not None:
        most = min(most, formula.most_per_gib * size_gib)
    if formula.most_per_iops is not None and known.other is not None:
        most = min(most, formula.most_per_iops * known.other)
    least = max(formula.least, (formula.least_per_gib or Fraction(0)) * size_gib)
    return min(least, formula.most), max(most, formula.included or Fraction(0))


def greatest(formula: Formula | None) -> Fraction | None:
    """The most that any volume of the type can have; None where the type sets no bound."""
    match formula:
        case Fixed(value):
            return value
        case SizeSteps(steps):
            return max((step.value for step in steps if step.value is not None), default=None)
        case Linear() | Provisioned() | PerIops() | PerThroughput():
            return formula.most
    return None


def clamp(value: Fraction, least: Fraction | None, most: Fraction | None) -> Fraction:
    """The value, no less than `least` and no more than `most`."""
    raised = value if least is None else max(value, least)
    return raised if most is None else min(raised, most)


def _count(value: object) -> Fraction:
    if isinstance(value, int | Decimal) and not isinstance(value, bool) and value > 0:
        return Fraction(value)
    raise ValueError("this is a number above zero, without a unit")


def _bytes(value: object) -> Fraction:
    if not isinstance(value, str):
        raise ValueError('this is text with a unit, as in "125MiB"')
    try:
        return parse_exact_bytes(value)
    except PagecageError as error:
        raise ValueError(f"{error.message.removeprefix('size: ')}; {error.hint}") from None


Number = Annotated[Fraction, BeforeValidator(_count, json_schema_input_type=Annotated[float, Field(gt=0)])]
Bytes = Annotated[Fraction, BeforeValidator(_bytes, json_schema_input_type=Annotated[str, Field(pattern=SIZE_PATTERN)])]
Amount = TypeVar("Amount", bound=Fraction)


class ExactTable(StrictTable):
    """A table with exact figures."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


class LinearTable(ExactTable, Generic[Amount]):
    """`base` and so much a GiB or a TiB, kept between `least` and `most`."""

    per_gib: Amount | None = None
    per_tib: Amount | None = None
    base: Amount | None = None
    least: Amount | None = None
    most: Amount | None = None

    @model_validator(mode="after")
    def _one_slope(self) -> LinearTable[Amount]:
        if (self.per_gib is None) == (self.per_tib is None):
            raise ValueError("linear has one of per_gib and per_tib")
        return self


class StepTable(ExactTable, Generic[Amount]):
    """What a volume up to this size has; without a size it is what any larger one has."""

    up_to: SizeBytes | None = None
    value: Amount


class ProvisionedTable(ExactTable, Generic[Amount]):
    """What was bought; see `pagecage.cloud.formulas.Provisioned`."""

    most: Amount
    included: Amount | None = None
    least: Amount | None = None
    least_per_gib: Amount | None = None
    most_per_gib: Amount | None = None
    most_per_iops: Bytes | None = None


class PerIopsTable(ExactTable):
    """Throughput that comes with the IOPS."""

    each: Bytes
    most: Bytes
    least: Bytes | None = None


class PerThroughputTable(ExactTable):
    """IOPS that come with each MiB/s of throughput."""

    each_mib: Number
    most: Number | None = None


class FormulaTable(ExactTable, Generic[Amount]):
    """A formula: exactly one of the shapes."""

    fixed: Amount | None = None
    linear: LinearTable[Amount] | None = None
    steps: list[StepTable[Amount]] | None = None
    provisioned: ProvisionedTable[Amount] | None = None
    per_iops: PerIopsTable | None = None
    per_throughput: PerThroughputTable | None = None

    @model_validator(mode="after")
    def _one_shape(self) -> FormulaTable[Amount]:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"a formula has one shape of {', '.join(FormulaTable.model_fields)}")
        return self


def formula_of(table: FormulaTable[Any] | None) -> Formula | None:
    """The formula that a table writes down; None for none."""
    if table is None:
        return None
    if table.fixed is not None:
        return Fixed(table.fixed)
    if table.steps is not None:
        return SizeSteps(tuple(SizeStep(step.up_to, step.value) for step in table.steps))
    if table.per_iops:
        return PerIops(table.per_iops.each, table.per_iops.most, table.per_iops.least)
    if table.per_throughput:
        return PerThroughput(table.per_throughput.each_mib, table.per_throughput.most)
    return _provisioned(table.provisioned) if table.provisioned else _linear(table.linear)


def _linear(table: LinearTable[Any] | None) -> Linear:
    assert table is not None, "a formula has one shape"
    per_gib: Any = table.per_gib
    slope = Fraction(table.per_tib or 0) / 1024 if per_gib is None else per_gib
    return Linear(slope, table.base or Fraction(0), table.least, table.most)


def _provisioned(table: ProvisionedTable[Any]) -> Provisioned:
    return Provisioned(
        table.most, table.included, table.least or Fraction(0), table.least_per_gib, table.most_per_gib,
        table.most_per_iops,
    )  # fmt: skip
