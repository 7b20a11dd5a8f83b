"""The catalogue of cloud volumes and instances, with its sources."""

from __future__ import annotations

import re
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
from pagecage.definitions.cage_file import Percentiles, quantiles_of
from pagecage.definitions.fields import SizeBytes, StrictTable
from pagecage.errors import PagecageError, nearest
from pagecage.model.cage import IoAccounting, LatencyQuantiles
from pagecage.units import MIB

Seconds = Annotated[int, Field(gt=0)]


class SourceTable(StrictTable):
    """A page with figures, and the date of the figures."""

    title: str
    url: str
    date: str | None = Field(None, description="absent if the page has no date")


class OfferTable(ExactTable):
    """Something that a provider offers, with the names of its sources."""

    source_names: Annotated[list[str], Field(min_length=1, alias="sources")]
    remark: str = ""
    _provider: str = PrivateAttr("")
    _sources: tuple[SourceTable, ...] = PrivateAttr(())

    def connect(self, provider: str, known: Mapping[str, SourceTable]) -> None:
        """Set the provider, and look up the sources. Raises ValueError if a source is missing."""
        if unknown := set(self.source_names) - set(known):
            raise ValueError(f"sources.{min(unknown)} is missing")
        self._provider, self._sources = provider, tuple(known[name] for name in self.source_names)

    @property
    def provider(self) -> str:
        return self._provider

    @property
    def sources(self) -> tuple[SourceTable, ...]:
        return self._sources


Use = Literal["distribution", "at_cap", "context"]


class MeasuredLatencyTable(StrictTable):
    """Percentiles of one direction, and the load under which they were measured.

    A `distribution` was measured below all limits, and a simulated volume draws from it. `at_cap`
    includes the wait at a limit, which a simulation produces by itself. `context` includes other
    waits, or has too few percentiles.
    """

    direction: Literal["read", "write"]
    use: Use = "distribution"
    size: SizeBytes | None = None
    percentiles_us: Percentiles
    load: str
    by: str
    remark: str = ""

    @model_validator(mode="after")
    def _check(self) -> MeasuredLatencyTable:
        quantiles_of(self.percentiles_us)
        if self.use == "distribution" and self.size is None:
            raise ValueError("a distribution needs size, the size of the requests")
        return self


@dataclass(frozen=True)
class MeasuredLatency:
    """Quantiles of one direction and their source; `size_bytes` is None if it is unknown."""

    direction: str
    use: str
    size_bytes: int | None
    quantiles: tuple[tuple[float, float], ...]
    load: str
    source: SourceTable
    remark: str


def distributions(
    measured: tuple[MeasuredLatency, ...], direction: str
) -> tuple[LatencyQuantiles, ...]:
    """Return the distributions of one direction from which a simulated volume draws."""
    return tuple(
        LatencyQuantiles(one.size_bytes, one.quantiles)
        for one in measured
        if (one.use, one.direction) == ("distribution", direction) and one.size_bytes is not None
    )


@dataclass(frozen=True)
class InstanceCaps:
    """Limits of an instance on its disks, in I/Os and bytes per second.

    Reads and writes share a burst rate, which lasts `burst_seconds` at full use.
    """

    read_iops: Fraction
    write_iops: Fraction
    read_throughput: Fraction
    write_throughput: Fraction
    burst_iops: Fraction | None = None
    burst_throughput: Fraction | None = None
    burst_seconds: int | None = None


@dataclass(frozen=True)
class InstanceType:
    """One type of instance; `memory_bytes` is None if the catalogue has none."""

    name: str
    memory_bytes: int | None
    caps: InstanceCaps
    sources: tuple[SourceTable, ...]
    remark: str


class InstanceTable(ExactTable):
    """One type of instance: its nominal memory, its lasting caps and those of its burst."""

    memory: SizeBytes | None = None
    iops: Number
    throughput: Bytes
    burst_iops: Number | None = None
    burst_throughput: Bytes | None = None


class InstancesTable(OfferTable):
    """Instances with the same sources and burst; an instance may have its own burst rates."""

    burst_seconds: Seconds | None = None
    burst_iops: Number | None = None
    burst_throughput: Bytes | None = None
    sizes: dict[str, InstanceTable]

    def instances(self) -> list[InstanceType]:
        found = []
        for name, own in self.sizes.items():
            caps = InstanceCaps(
                *(own.iops, own.iops, own.throughput, own.throughput),
                own.burst_iops or self.burst_iops,
                own.burst_throughput or self.burst_throughput,
                self.burst_seconds,
            )
            found.append(InstanceType(name, own.memory, caps, self.sources, self.remark))
        return found


class VcpuCapsTable(ExactTable):
    """Caps of machines with at least this many vCPUs."""

    least_vcpus: Annotated[int, Field(gt=0, alias="vcpus")]
    read_iops: Number
    write_iops: Number
    read_throughput: Bytes
    write_throughput: Bytes

    @property
    def caps(self) -> InstanceCaps:
        return InstanceCaps(
            self.read_iops, self.write_iops, self.read_throughput, self.write_throughput
        )


class MachineFamily(OfferTable):
    """Machines whose caps depend on their vCPUs and on the type of the volume (Google Cloud).

    `family` is the beginning of a name ("n2" of n2-standard-8), or a whole name with a dash
    ("e2-medium").
    """

    family: str
    caps: dict[str, list[VcpuCapsTable]]

    @model_validator(mode="after")
    def _check_order(self) -> MachineFamily:
        for kind, rows in self.caps.items():
            counts = [row.least_vcpus for row in rows]
            if not counts or counts != sorted(set(counts)):
                raise ValueError(f"caps.{kind} must go from the fewest vCPUs to the most")
        return self

    def vcpus(self, machine: str) -> int | None:
        """Return the number of vCPUs by a machine's name; None for another family."""
        if "-" in self.family:
            return 1 if machine == self.family else None
        shapes = "standard|highmem|highcpu|custom"
        match = re.fullmatch(rf"{re.escape(self.family)}-(?:{shapes})-([0-9]+)(-[0-9]+)?", machine)
        return int(match[1]) if match else None


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
    def _check(self) -> VolumeType:
        used = [(t.direction, t.size) for t in self.measured_tables if t.use == "distribution"]
        if len(set(used)) < len(used):
            raise ValueError("measured_latency: two distributions have the same size")
        for quantity in ("iops", "throughput"):
            names = (f"{one}_{quantity}" for one in ("both", "own_read", "own_write"))
            both, *own = (getattr(self, name) for name in names)
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
        for table in self.measured_tables:
            if table.by not in known:
                raise ValueError(f"sources.{table.by} is missing")
        self._measured = tuple(
            MeasuredLatency(
                *(one.direction, one.use, one.size, quantiles_of(one.percentiles_us)),
                *(one.load, known[one.by], one.remark),
            )
            for one in self.measured_tables
        )

    @property
    def measured(self) -> tuple[MeasuredLatency, ...]:
        return self._measured

    @property
    def name(self) -> str:
        return f"{self.provider}-{self.type}"

    @property
    def throughput_unit_bytes(self) -> int:
        return _UNIT_BYTES[self.throughput_unit]

    @property
    def read_iops(self) -> Formula | None:
        return self._formula("iops", self.own_read_iops or self.both_iops)

    @property
    def write_iops(self) -> Formula | None:
        return self._formula("iops", self.own_write_iops or self.both_iops)

    @property
    def read_throughput(self) -> Formula | None:
        return self._formula("throughput", self.own_read_throughput or self.both_throughput)

    @property
    def write_throughput(self) -> Formula | None:
        return self._formula("throughput", self.own_write_throughput or self.both_throughput)

    @property
    def iops_burst(self) -> BurstRule | None:
        return self._burst("iops")

    @property
    def throughput_burst(self) -> BurstRule | None:
        return self._burst("throughput")

    @property
    def accounting(self) -> IoAccounting:
        return IoAccounting(self.counting.io_size, self.counting.merged, self.counting.combined)

    def _formula(self, figure: str, table: FormulaTable[Fraction] | None) -> Formula | None:
        if self.tiers:
            return StepsFormula(
                tuple((tier.size_bytes, getattr(tier, figure)) for tier in self.tiers.values())
            )
        return table.formula if table else None

    def _burst(self, quantity: str) -> BurstRule | None:
        if self.tiers:
            rate, seconds = self._formula(f"burst_{quantity}", None), self.tier_burst_seconds
            return BurstRule(rate, None, seconds) if rate and rate.greatest else None
        rates, bucket = (
            getattr(self.burst, name, None) for name in (quantity, f"{quantity}_credits")
        )
        if self.burst is None or rates is None:
            return None
        return BurstRule(rates.formula, bucket.formula if bucket else None, self.burst.seconds)


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
        return [instance for table in self.instance_tables for instance in table.instances()]


def read_offers(folder: Path) -> tuple[Provider, ...]:
    """Read every provider, sorted by name. Raises PagecageError naming file and key."""
    providers = []
    for path in sorted(folder.glob("*.toml")):
        try:
            # Decimal, because 0.75 IOPS per GiB must be exact.
            tables = tomllib.loads(path.read_text(), parse_float=Decimal)
            providers.append(Provider.model_validate({**tables, "name": path.stem}))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise PagecageError(
                f"{path.name}: {error}", f"edit {path}; https://toml.io describes the syntax"
            ) from None
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"]) or "file"
            message = first["msg"].removeprefix("Value error, ")
            raise PagecageError(f"{path.name}: {key}: {message}", f"edit {path}") from None
    return tuple(providers)


@dataclass(frozen=True)
class CatalogueEntry:
    """A name of the catalogue: a volume type, with a size if the name is that of a size."""

    provider: Provider
    kind: VolumeType
    size_bytes: int | None


def offered_providers(providers: tuple[Provider, ...], name: str | None) -> tuple[Provider, ...]:
    offered = tuple(provider for provider in providers if name in (None, provider.name))
    if not offered:
        reason = f"there is no provider {name!r} in the catalogue"
        raise PagecageError(reason, nearest(name or "", [provider.name for provider in providers]))
    return offered


def catalogue_names(providers: tuple[Provider, ...]) -> dict[str, CatalogueEntry]:
    """Return every name of a volume type or a size in lower case."""
    kinds = [(provider, kind) for provider in providers for kind in provider.types]
    sizes = {
        f"{provider.name}-{tier_name}".lower(): CatalogueEntry(provider, kind, tier.size_bytes)
        for provider, kind in reversed(kinds)
        for tier_name, tier in kind.tiers.items()
    }
    return {
        **sizes,
        **{kind.name: CatalogueEntry(provider, kind, None) for provider, kind in kinds},
    }


def tier_name(kind: VolumeType, size_bytes: int | None) -> str:
    """Return the name of the smallest tier of this size; "" for a type without tiers."""
    names = (name for name, tier in kind.tiers.items() if tier.size_bytes >= (size_bytes or 0))
    return next(names, "")
