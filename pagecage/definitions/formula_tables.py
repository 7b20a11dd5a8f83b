"""The formulas of cgroups/catalogue/*.toml: one shape a table, I/Os a second as numbers, bytes as text with a unit."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from pagecage.definitions.claim_tables import Strict
from pagecage.definitions.sizes import SIZE_PATTERN, SizeBytes
from pagecage.errors import PagecageError
from pagecage.units import parse_exact_bytes
from pagecage.volumes.formulas import Fixed, Formula, Linear, PerIops, PerThroughput, Provisioned, Step, Steps


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


class Exact(Strict):
    """A table with exact figures."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


class LinearTable(Exact, Generic[Amount]):
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


class StepTable(Exact, Generic[Amount]):
    """What a volume up to this size has; without a size it is what any larger one has."""

    up_to: SizeBytes | None = None
    value: Amount


class ProvisionedTable(Exact, Generic[Amount]):
    """What was bought; see `pagecage.volumes.formulas.Provisioned`."""

    most: Amount
    included: Amount | None = None
    least: Amount | None = None
    least_per_gib: Amount | None = None
    most_per_gib: Amount | None = None
    most_per_iops: Bytes | None = None


class PerIopsTable(Exact):
    """Throughput that comes with the IOPS."""

    each: Bytes
    most: Bytes
    least: Bytes | None = None


class PerThroughputTable(Exact):
    """IOPS that come with each MiB/s of throughput."""

    each_mib: Number
    most: Number | None = None


class FormulaTable(Exact, Generic[Amount]):
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
        return Steps(tuple(Step(step.up_to, step.value) for step in table.steps))
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
