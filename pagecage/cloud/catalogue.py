"""The catalogue of cloud volumes and instances, read from cgroups/catalogue/*.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr, ValidationError, model_validator
from pydantic.json_schema import SkipJsonSchema

from pagecage.cloud.formulas import Bytes, ExactTable, Formula, FormulaTable, Number, StepsFormula
from pagecage.cloud.instance_tables import InstancesTable, InstanceType, MachineFamily
from pagecage.cloud.measured_latency import MeasuredLatency, MeasuredLatencyTable
from pagecage.cloud.sources import OfferTable, Seconds, SourceTable
from pagecage.definitions.fields import SizeBytes, StrictTable
from pagecage.errors import PagecageError
from pagecage.model.cage import IoAccounting
from pagecage.units import MIB

Microseconds = Annotated[int, Field(gt=0)]
_UNIT_BYTES = {"MiB": MIB, "MB": 1000**2}


class SizeBoundsTable(StrictTable):
    """The sizes of a volume that are sold."""

    least_bytes: Annotated[SizeBytes, Field(alias="least")]
    most_bytes: Annotated[SizeBytes, Field(alias="most")]
    step_bytes: Annotated[SizeBytes, Field(alias="step")]


class VolumeBurstTable(ExactTable):
    """Rates above the base, with the bucket or the time that bounds them."""

    iops: FormulaTable[Number] | None = None
    iops_credits: FormulaTable[Number] | None = None
    throughput: FormulaTable[Bytes] | None = None
    throughput_credits: FormulaTable[Bytes] | None = None
    seconds: Seconds | None = None


@dataclass(frozen=True)
class BurstRule:
    """A rate above the base, for as long as a bucket of `credits` or a time of `seconds` allows.

    A time amounts to a bucket of (rate - base) * seconds. Without either, the burst lasts without
    limit.
    """

    rate: Formula
    credits: Formula | None = None
    seconds: int | None = None


class TierTable(ExactTable):
    """A size with a name of its own, such as P10, and its figures."""

    size_bytes: Annotated[SizeBytes, Field(alias="size")]
    iops: Number
    throughput: Bytes
    burst_iops: Number | None = None
    burst_throughput: Bytes | None = None


class CountingTable(StrictTable):
    """The provider's way of counting I/Os; a missing key is unknown."""

    io_size: SizeBytes | None = None
    merged: bool | None = None
    combined: bool | None = None


class PublishedLatencyTable(StrictTable):
    """The provider's statement on latency, and its figures in microseconds.

    `from` is the least latency, which a cage can impose. Most I/Os stay below `below`, which says
    nothing about the least.
    """

    says: str
    read_from_us: Microseconds | None = None
    read_below_us: Microseconds | None = None
    write_from_us: Microseconds | None = None
    write_below_us: Microseconds | None = None


class VolumeType(OfferTable):
    """One type of volume.

    Formulas apply to reads and writes alike, or to one direction. A table of tiers may replace
    them.
    """

    type: str
    about: str
    size: SizeBoundsTable | None = Field(
        None, description="absent if the limits do not depend on it"
    )
    throughput_unit: Literal["MiB", "MB"]
    both_iops: FormulaTable[Number] | None = Field(None, alias="iops")
    own_read_iops: FormulaTable[Number] | None = Field(None, alias="read_iops")
    own_write_iops: FormulaTable[Number] | None = Field(None, alias="write_iops")
    both_throughput: FormulaTable[Bytes] | None = Field(None, alias="throughput")
    own_read_throughput: FormulaTable[Bytes] | None = Field(None, alias="read_throughput")
    own_write_throughput: FormulaTable[Bytes] | None = Field(None, alias="write_throughput")
    burst: VolumeBurstTable | None = None
    tiers: dict[str, TierTable] = {}
    tier_burst_seconds: Seconds | None = Field(
        None, description="without it, the burst of a tier has no end"
    )
    counting: CountingTable = Field(CountingTable(), alias="accounting")
    latency: PublishedLatencyTable | None = None
    measured_tables: list[MeasuredLatencyTable] = Field([], alias="measured_latency")
    _measured: tuple[MeasuredLatency, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _check_latencies(self) -> VolumeType:
        """Refuse two distributions for requests of one size."""
        used = [(t.direction, t.size) for t in self.measured_tables if t.use == "distribution"]
        if len(set(used)) < len(used):
            raise ValueError("measured_latency: two distributions have the same size")
        return self

    @model_validator(mode="after")
    def _check_figures(self) -> VolumeType:
        """Refuse two formulas for one quantity, and tiers in the wrong order."""
        for quantity, both, *own in (
            ("iops", self.both_iops, self.own_read_iops, self.own_write_iops),
            (
                "throughput",
                self.both_throughput,
                self.own_read_throughput,
                self.own_write_throughput,
            ),
        ):
            if both and any(own):
                raise ValueError(f"{quantity} excludes read_{quantity} and write_{quantity}")
            if self.tiers and (both or any(own) or self.burst):
                raise ValueError(f"tiers exclude {quantity} and burst")
        sizes = [tier.size_bytes for tier in self.tiers.values()]
        if sizes != sorted(set(sizes)):
            raise ValueError("tiers must go from the smallest to the largest")
        return self

    def connect(self, provider: str, known: Mapping[str, SourceTable]) -> None:
        """Set the provider, and look up the sources. Raises ValueError if a source is missing."""
        super().connect(provider, known)
        self._measured = tuple(table.with_source(known) for table in self.measured_tables)

    @property
    def measured(self) -> tuple[MeasuredLatency, ...]:
        """Latencies that users measured."""
        return self._measured

    @property
    def name(self) -> str:
        """The name on the command line: provider-type."""
        return f"{self.provider}-{self.type}"

    @property
    def throughput_unit_bytes(self) -> int:
        """Bytes in the unit of the provider's figures."""
        return _UNIT_BYTES[self.throughput_unit]

    @property
    def read_iops(self) -> Formula | None:
        """IOPS of reads; None if the instance alone limits them."""
        return self._formula("iops", self.own_read_iops or self.both_iops)

    @property
    def write_iops(self) -> Formula | None:
        """IOPS of writes; None if the instance alone limits them."""
        return self._formula("iops", self.own_write_iops or self.both_iops)

    @property
    def read_throughput(self) -> Formula | None:
        """Throughput of reads; None if the instance alone limits it."""
        return self._formula("throughput", self.own_read_throughput or self.both_throughput)

    @property
    def write_throughput(self) -> Formula | None:
        """Throughput of writes; None if the instance alone limits it."""
        return self._formula("throughput", self.own_write_throughput or self.both_throughput)

    @property
    def iops_burst(self) -> BurstRule | None:
        """The burst of IOPS; None without one."""
        return self._burst("iops")

    @property
    def throughput_burst(self) -> BurstRule | None:
        """The burst of the throughput; None without one."""
        return self._burst("throughput")

    @property
    def accounting(self) -> IoAccounting:
        """The provider's way of counting I/Os."""
        return IoAccounting(self.counting.io_size, self.counting.merged, self.counting.combined)

    def _formula(self, figure: str, table: FormulaTable[Fraction] | None) -> Formula | None:
        if self.tiers:
            return StepsFormula(
                tuple((tier.size_bytes, getattr(tier, figure)) for tier in self.tiers.values())
            )
        return table.formula if table else None

    def _burst(self, quantity: str) -> BurstRule | None:
        if self.tiers:
            rate = self._formula(f"burst_{quantity}", None)
            return (
                BurstRule(rate, None, self.tier_burst_seconds) if rate and rate.greatest else None
            )
        rates: FormulaTable[Fraction] | None = getattr(self.burst, quantity, None)
        credits_table: FormulaTable[Fraction] | None = getattr(
            self.burst, f"{quantity}_credits", None
        )
        if self.burst is None or rates is None:
            return None
        return BurstRule(
            rates.formula, credits_table.formula if credits_table else None, self.burst.seconds
        )


class Provider(ExactTable):
    """One file of cgroups/catalogue/. The file's name is the provider's name."""

    name: SkipJsonSchema[str]
    title: str
    sources: dict[str, SourceTable]
    types: list[VolumeType]
    instance_tables: list[InstancesTable] = Field([], alias="instances")
    machines: list[MachineFamily] = []

    @model_validator(mode="after")
    def _connect(self) -> Provider:
        for offer in (*self.types, *self.instance_tables, *self.machines):
            offer.connect(self.name, self.sources)
        types = [kind.type for kind in self.types]
        if len(set(types)) < len(types):
            raise ValueError("types: two have the same name")
        if unknown := {kind for family in self.machines for kind in family.caps} - set(types):
            raise ValueError(f"machines: there is no type {min(unknown)!r}")
        return self

    @property
    def instances(self) -> list[InstanceType]:
        """All instances with caps of their own."""
        return [instance for table in self.instance_tables for instance in table.instances()]


def read_offers(folder: Path) -> tuple[Provider, ...]:
    """Read every provider of the catalogue, sorted by name.

    Raises PagecageError naming file and key.
    """
    return tuple(_read_provider(path) for path in sorted(folder.glob("*.toml")))


def _read_provider(path: Path) -> Provider:
    try:
        # Decimal, because 0.75 IOPS per GiB must be exact.
        return Provider.model_validate(
            {**tomllib.loads(path.read_text(), parse_float=Decimal), "name": path.stem}
        )
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PagecageError(
            f"{path.name}: {error}", f"edit {path}; https://toml.io describes the syntax"
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise PagecageError(f"{path.name}: {key or 'file'}: {message}", f"edit {path}") from None
