"""The tables of cgroups/catalogue/*.toml, one file a provider: types of volumes and limits of instances."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pagecage.cloud.formulas import Bytes, ExactTable, FormulaTable, Number
from pagecage.definitions.fields import SizeBytes, StrictTable

Microseconds = Annotated[int, Field(gt=0)]
Seconds = Annotated[int, Field(gt=0)]


class SourceTable(StrictTable):
    """Where figures come from, and as of when."""

    title: str
    url: str
    date: str | None = Field(None, description="none where the page has none")


class VolumeSizeTable(StrictTable):
    """The sizes that are sold."""

    least: SizeBytes
    most: SizeBytes
    step: SizeBytes


class BurstRuleTable(ExactTable):
    """Rates above the base, and the bucket that bounds them, or the time that the provider tells instead."""

    iops: FormulaTable[Number] | None = None
    iops_credits: FormulaTable[Number] | None = None
    throughput: FormulaTable[Bytes] | None = None
    throughput_credits: FormulaTable[Bytes] | None = None
    seconds: Seconds | None = None


class TierTable(ExactTable):
    """A size with a name of its own, and all its figures."""

    size: SizeBytes
    iops: Number
    throughput: Bytes
    burst_iops: Number | None = None
    burst_throughput: Bytes | None = None


class CountingTable(StrictTable):
    """How I/Os are counted; what the provider does not say is left out."""

    io_size: SizeBytes | None = None
    merged: bool | None = None
    combined: bool | None = None


class PublishedLatencyTable(StrictTable):
    """Latency in the provider's words, and its figures: `from` is the least, `below` what most I/Os stay under."""

    says: str
    read_from_us: Microseconds | None = None
    read_below_us: Microseconds | None = None
    write_from_us: Microseconds | None = None
    write_below_us: Microseconds | None = None


class TypeTable(ExactTable):
    """One type of volume: formulas for reads and writes together, or apart, or a table of tiers."""

    type: str
    about: str
    sources: Annotated[list[str], Field(min_length=1)]
    size: VolumeSizeTable | None = None
    throughput_unit: Literal["MiB", "MB"]
    iops: FormulaTable[Number] | None = None
    read_iops: FormulaTable[Number] | None = None
    write_iops: FormulaTable[Number] | None = None
    throughput: FormulaTable[Bytes] | None = None
    read_throughput: FormulaTable[Bytes] | None = None
    write_throughput: FormulaTable[Bytes] | None = None
    burst: BurstRuleTable | None = None
    tiers: dict[str, TierTable] = {}
    tier_burst_seconds: Seconds | None = Field(None, description="without it the burst of a tier may last for ever")
    accounting: CountingTable = CountingTable()
    latency: PublishedLatencyTable | None = None
    remark: str = ""

    @model_validator(mode="after")
    def _said_once(self) -> TypeTable:
        for quantity in ("iops", "throughput"):
            apart = getattr(self, f"read_{quantity}") or getattr(self, f"write_{quantity}")
            if apart and getattr(self, quantity):
                raise ValueError(f"{quantity} stands beside read_{quantity} or write_{quantity}")
            if self.tiers and (apart or getattr(self, quantity) or self.burst):
                raise ValueError(f"tiers stand beside {quantity} or burst")
        sizes = [tier.size for tier in self.tiers.values()]
        if sizes != sorted(set(sizes)):
            raise ValueError("tiers go from the smallest to the largest")
        return self


class InstanceTable(ExactTable):
    """One size of machine: its nominal memory, the caps that last and those of its burst."""

    memory: SizeBytes | None = None
    iops: Number
    throughput: Bytes
    burst_iops: Number | None = None
    burst_throughput: Bytes | None = None


class InstancesTable(ExactTable):
    """Machines with the same sources and one rule of bursting; a size may have a burst of its own."""

    sources: Annotated[list[str], Field(min_length=1)]
    burst_seconds: Seconds | None = None
    burst_iops: Number | None = None
    burst_throughput: Bytes | None = None
    remark: str = ""
    sizes: dict[str, InstanceTable]


class MachineCapsTable(ExactTable):
    """Caps of machines with at least so many vCPUs."""

    vcpus: Annotated[int, Field(gt=0)]
    read_iops: Number
    write_iops: Number
    read_throughput: Bytes
    write_throughput: Bytes


class MachinesTable(ExactTable):
    """A family of machines whose caps follow from their vCPUs, by type of volume."""

    family: str
    sources: Annotated[list[str], Field(min_length=1)]
    remark: str = ""
    caps: dict[str, list[MachineCapsTable]]

    @model_validator(mode="after")
    def _ascending(self) -> MachinesTable:
        for kind, rows in self.caps.items():
            counts = [row.vcpus for row in rows]
            if not counts or counts != sorted(set(counts)):
                raise ValueError(f"caps.{kind} go from the fewest vCPUs to the most")
        return self


class ProviderFile(ExactTable):
    """One file of cgroups/catalogue/."""

    title: str
    sources: dict[str, SourceTable]
    types: list[TypeTable]
    instances: list[InstancesTable] = []
    machines: list[MachinesTable] = []

    @model_validator(mode="after")
    def _sources_are_named(self) -> ProviderFile:
        tables: list[TypeTable | InstancesTable | MachinesTable] = [*self.types, *self.instances, *self.machines]
        for table in tables:
            if unknown := set(table.sources) - set(self.sources):
                raise ValueError(f"sources.{min(unknown)} is missing")
        names = [table.type for table in self.types]
        if len(set(names)) < len(names):
            raise ValueError("types: two of one name")
        kinds = {kind for machine in self.machines for kind in machine.caps} - set(names)
        if kinds:
            raise ValueError(f"machines: there is no type {min(kinds)!r}")
        return self
