"""The tables of a disk in cgroups/*.toml: its I/O limits, and properties of its cloud volume."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, Field, model_validator

from pagecage.definitions.fields import (
    BandwidthBucket,
    Count,
    IopsBucket,
    SizeBytes,
    StrictTable,
)
from pagecage.definitions.simulation_tables import SimulationTable
from pagecage.model.cage import (
    DATA_DISK,
    IO_MAX_KEY,
    BurstCredits,
    CloudVolume,
    CreditBucket,
    DiskLimits,
    IoAccounting,
    LatencyFloor,
)
from pagecage.model.identifiers import DISK


def check_disk_name(name: str) -> str:
    """Return the name of a disk beside the data directory's. Raises ValueError if it is invalid."""
    if name == DATA_DISK:
        raise ValueError("data is the data directory's disk, whose limits are the cage's own")
    if not DISK.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a name of a disk: a letter, then up to 10 letters and digits, all"
            " small"
        )
    return name


DiskName = Annotated[str, AfterValidator(check_disk_name)]


class VolumeTable(StrictTable):
    """The volume from which the limits were derived; `scale` is a factor applied to them."""

    provider: str | None = None
    type: str | None = None
    size: SizeBytes | None = None
    iops: Count | None = Field(None, description="as provisioned")
    throughput: SizeBytes | None = Field(None, description="bytes per second, as provisioned")
    instance: str | None = None
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


class BurstTable(StrictTable):
    """Burst credits above the limits; `start` is their fill level when a trial begins."""

    start: Literal["full", "half", "drained"] = "full"
    iops: IopsBucket | None = None
    bandwidth: BandwidthBucket | None = None

    @model_validator(mode="after")
    def _not_empty(self) -> BurstTable:
        if self.iops is None and self.bandwidth is None:
            raise ValueError("burst has neither iops nor bandwidth; remove it")
        return self


class AccountingTable(StrictTable):
    """The provider's way of counting I/Os, unlike that of io.max; a missing key is unknown."""

    io_size: SizeBytes | None = Field(None, description="a larger I/O counts as several")
    merged: bool | None = Field(
        None, description="I/Os are counted after adjacent ones are merged, not before"
    )
    combined: bool | None = Field(None, description="reads and writes share one limit")


class LatencyTable(StrictTable):
    """The least time of an I/O at the provider, which io.max cannot impose."""

    read_us: Count | None = None
    write_us: Count | None = None


class DiskTable(StrictTable):
    """A disk beside the data's: I/O limits and the properties of its volume, as in a cage."""

    IOReadBandwidthMax: SizeBytes | None = Field(None, description="bytes per second")
    IOReadIOPSMax: Count | None = None
    IOWriteBandwidthMax: SizeBytes | None = Field(None, description="bytes per second")
    IOWriteIOPSMax: Count | None = None
    volume: VolumeTable | None = None
    burst: BurstTable | None = None
    accounting: AccountingTable | None = None
    latency: LatencyTable | None = None
    simulation: SimulationTable | None = None

    @model_validator(mode="after")
    def _check_bursts(self) -> DiskTable:
        """Refuse a bucket without a limit, or with a rate that is not above the limit."""
        check_bursts(self)
        return self

    def to_model(self) -> DiskLimits:
        """Return the limits as numbers."""
        given = self.model_dump(include=set(IO_MAX_KEY))
        limits = {name: value for name, value in given.items() if value is not None}
        return DiskLimits(limits, **volume_parts(self))


class LimitedDisk(Protocol):
    """A table with the limits of one disk: a cage, or an entry of its `disks`."""

    IOReadBandwidthMax: int | None
    IOReadIOPSMax: int | None
    IOWriteBandwidthMax: int | None
    IOWriteIOPSMax: int | None
    volume: VolumeTable | None
    burst: BurstTable | None
    accounting: AccountingTable | None
    latency: LatencyTable | None
    simulation: SimulationTable | None


def check_bursts(table: LimitedDisk) -> None:
    """Raise ValueError for a bucket without a limit, or with a rate that is not above it."""
    for key, bases in (
        ("iops", (table.IOReadIOPSMax, table.IOWriteIOPSMax)),
        ("bandwidth", (table.IOReadBandwidthMax, table.IOWriteBandwidthMax)),
    ):
        bucket = getattr(table.burst, key, None)
        given = [base for base in bases if base is not None]
        if bucket and not given:
            names = "IOReadIOPSMax" if key == "iops" else "IOReadBandwidthMax"
            raise ValueError(
                f"burst.{key}: a bucket refills at the rate of {names}, which is missing"
            )
        if bucket and bucket.rate <= min(given):
            raise ValueError(f"burst.{key}.rate is not above the limit, so there would be no burst")


def volume_parts(table: LimitedDisk) -> dict[str, Any]:
    """Return the properties of a disk's cloud volume, by field of the model."""
    latency = table.latency
    return {
        "volume": _volume(table.volume) if table.volume else None,
        "burst": _burst(table.burst) if table.burst else None,
        "accounting": _accounting(table.accounting) if table.accounting else None,
        "latency": LatencyFloor(latency.read_us, latency.write_us) if latency else None,
        "simulation": table.simulation.to_model() if table.simulation else None,
    }


def _volume(table: VolumeTable) -> CloudVolume:
    return CloudVolume(
        table.provider,
        table.type,
        table.size,
        table.iops,
        table.throughput,
        table.instance,
        table.scale,
    )


def _accounting(table: AccountingTable) -> IoAccounting:
    return IoAccounting(table.io_size, table.merged, table.combined)


def _burst(table: BurstTable) -> BurstCredits:
    return BurstCredits(table.start, _bucket(table.iops), _bucket(table.bandwidth))


def _bucket(table: IopsBucket | BandwidthBucket | None) -> CreditBucket | None:
    return CreditBucket(table.rate, table.credits) if table else None
