"""The tables of cgroups/*.toml: the limits, and of a cloud's volume what systemd's properties cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from pagecage.definitions.fields import SizeBytes, Source, StrictTable
from pagecage.errors import PagecageError
from pagecage.model.cage import UNCAGED, BurstCredits, Cage, CloudVolume, CreditBucket, IoAccounting, LatencyFloor
from pagecage.units import format_bytes, page_floor_bytes

Count = Annotated[int, Field(gt=0, lt=2**63)]


class DatasetFraction(StrictTable):
    """A size as a share of the dataset's."""

    dataset_fraction: Annotated[float, Field(gt=0)]


class VolumeTable(StrictTable):
    """What the limits were made from, as the customer would say it; `scale` is what they were multiplied by."""

    provider: str | None = None
    type: str | None = None
    size: SizeBytes | None = None
    iops: Count | None = Field(None, description="as provisioned")
    throughput: SizeBytes | None = Field(None, description="bytes per second, as provisioned")
    instance: str | None = None
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


class IopsBucket(StrictTable):
    """A token bucket of I/Os: `rate` a second while credits last; it holds `credits` and refills at the base."""

    rate: Count
    credits: Count


class BandwidthBucket(StrictTable):
    """A token bucket of bytes: `rate` a second while credits last; it holds `credits` and refills at the base."""

    rate: SizeBytes
    credits: SizeBytes


class BurstTable(StrictTable):
    """Token buckets over the limits, which are then the base; `start` is how full they are when a trial begins."""

    start: Literal["full", "half", "drained"] = "full"
    iops: IopsBucket | None = None
    bandwidth: BandwidthBucket | None = None

    @model_validator(mode="after")
    def _not_empty(self) -> BurstTable:
        if self.iops is None and self.bandwidth is None:
            raise ValueError("burst has neither iops nor bandwidth: leave it out")
        return self


class AccountingTable(StrictTable):
    """How the provider counts, which is not how io.max counts; what is not given is not known."""

    io_size: SizeBytes | None = Field(None, description="an I/O of more than this counts as several")
    merged: bool | None = Field(None, description="counted after neighbouring I/Os were merged, not before")
    combined: bool | None = Field(None, description="one limit for reads and writes together")


class LatencyTable(StrictTable):
    """The least time that an I/O takes at the provider, which io.max cannot give."""

    read_us: Count | None = None
    write_us: Count | None = None


class CageFile(StrictTable):
    """One file of cgroups/. Limits are systemd properties, verbatim (systemd.resource-control(5)); absent: no limit."""

    about: str
    MemoryMax: SizeBytes | DatasetFraction | None = None
    MemorySwapMax: SizeBytes | Literal["infinity"] | None = Field(None, description="closed (0) unless given")
    IOReadBandwidthMax: SizeBytes | None = Field(None, description="bytes per second")
    IOReadIOPSMax: Count | None = None
    IOWriteBandwidthMax: SizeBytes | None = Field(None, description="bytes per second")
    IOWriteIOPSMax: Count | None = None
    CPUQuota: Annotated[int, Field(gt=0, lt=2**31, description="percent of one CPU")] | None = None
    source: Source | None = None
    volume: VolumeTable | None = None
    burst: BurstTable | None = None
    accounting: AccountingTable | None = None
    latency: LatencyTable | None = None

    @model_validator(mode="after")
    def _a_burst_has_a_base(self) -> CageFile:
        """A bucket refills at the limit above it, so there must be one, and the burst must be faster."""
        for key, bases in (
            ("iops", (self.IOReadIOPSMax, self.IOWriteIOPSMax)),
            ("bandwidth", (self.IOReadBandwidthMax, self.IOWriteBandwidthMax)),
        ):
            bucket = getattr(self.burst, key, None)
            given = [base for base in bases if base is not None]
            if bucket and not given:
                names = "IOReadIOPSMax" if key == "iops" else "IOReadBandwidthMax"
                raise ValueError(f"burst.{key}: a bucket refills at the base, and there is no {names}")
            if bucket and bucket.rate <= min(given):
                raise ValueError(f"burst.{key}.rate is no more than the limit, so nothing would burst")
        return self


# The tables within a cage's file, by key: what a misspelt key is compared with.
TABLES: dict[str, type[BaseModel]] = {
    "volume": VolumeTable, "burst": BurstTable, "burst.iops": IopsBucket, "burst.bandwidth": BandwidthBucket,
    "accounting": AccountingTable, "latency": LatencyTable, "MemoryMax": DatasetFraction,
}  # fmt: skip


def resolve_cage(name: str, table: CageFile, dataset_bytes: int | None, path: Path) -> Cage:
    """The cage; a MemoryMax that is a share of the dataset needs one, or raises PagecageError."""
    data = table.model_dump()
    limits = {k: data[k] for k in CageFile.model_fields if k[0].isupper() and data[k] is not None}
    if isinstance(table.MemoryMax, DatasetFraction):
        if dataset_bytes is None:
            raise PagecageError(
                f"{path.name}: MemoryMax is a share of a dataset, and there is none",
                "name the data or its size: --cold of replay, --data-size of shell",
            )
        limits["MemoryMax"] = page_floor_bytes(round(dataset_bytes * table.MemoryMax.dataset_fraction))
        if limits["MemoryMax"] == 0:
            share = f"{table.MemoryMax.dataset_fraction:g} of {format_bytes(dataset_bytes)}"
            raise PagecageError(f"{path.name}: MemoryMax would be {share}, less than a page", "name more data")
    # Swap is closed, or anonymous memory would spill instead of being killed; and swap-in passes io.max unthrottled.
    if limits.get("MemorySwapMax") == "infinity":
        del limits["MemorySwapMax"]
    elif name != UNCAGED:
        limits.setdefault("MemorySwapMax", 0)
    count, latency = table.accounting, table.latency
    return Cage(
        name, limits, {key: data[key] for key in ("about", "source") if data[key] is not None},
        volume=_volume(table.volume) if table.volume else None, burst=_burst(table.burst) if table.burst else None,
        accounting=IoAccounting(count.io_size, count.merged, count.combined) if count else None,
        latency=LatencyFloor(latency.read_us, latency.write_us) if latency else None,
    )  # fmt: skip


def cage_of_tables(name: str, tables: Mapping[str, Any]) -> Cage:
    """The cage that tables made by a program are. Raises PagecageError where they are none."""
    try:
        return resolve_cage(name, CageFile.model_validate(dict(tables)), None, Path(f"{name}.toml"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        message = first["msg"].removeprefix("Value error, ")
        raise PagecageError(f"that is no cage: {where}: {message}", "leave --save out to see what was read") from None


def _volume(table: VolumeTable) -> CloudVolume:
    return CloudVolume(
        table.provider, table.type, table.size, table.iops, table.throughput, table.instance, table.scale
    )  # fmt: skip


def _burst(table: BurstTable) -> BurstCredits:
    return BurstCredits(table.start, _bucket(table.iops), _bucket(table.bandwidth))


def _bucket(table: IopsBucket | BandwidthBucket | None) -> CreditBucket | None:
    return CreditBucket(table.rate, table.credits) if table else None
