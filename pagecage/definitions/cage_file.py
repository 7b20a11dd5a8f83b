"""The tables of cgroups/*.toml: limits, and further properties of cloud volumes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from pagecage.definitions.fields import (
    BandwidthBucket,
    Citation,
    Count,
    IopsBucket,
    SizeBytes,
    StrictTable,
)
from pagecage.definitions.simulation_tables import TABLES as SIMULATION_TABLES
from pagecage.definitions.simulation_tables import SimulationTable
from pagecage.errors import PagecageError
from pagecage.model.cage import (
    ENFORCERS,
    UNCAGED,
    BurstCredits,
    Cage,
    CloudVolume,
    CreditBucket,
    Enforcer,
    IoAccounting,
    LatencyFloor,
)
from pagecage.units import format_bytes, page_floor_bytes


class DatasetFraction(StrictTable):
    """A size as a share of the dataset's size."""

    dataset_fraction: Annotated[float, Field(gt=0)]


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


class CageFile(StrictTable):
    """One file of cgroups/.

    Limits are systemd properties (systemd.resource-control(5)); a missing one is no limit.
    """

    about: str
    MemoryMax: SizeBytes | DatasetFraction | None = None
    MemoryHigh: SizeBytes | None = Field(
        None, description="above it the kernel throttles and reclaims, and never kills"
    )
    MemorySwapMax: SizeBytes | Literal["infinity"] | None = Field(
        None, description="0 unless given: swap is off"
    )
    IOReadBandwidthMax: SizeBytes | None = Field(None, description="bytes per second")
    IOReadIOPSMax: Count | None = None
    IOWriteBandwidthMax: SizeBytes | None = Field(None, description="bytes per second")
    IOWriteIOPSMax: Count | None = None
    CPUQuota: Annotated[int, Field(gt=0, lt=2**31, description="percent of one CPU")] | None = None
    source: Citation | None = None
    volume: VolumeTable | None = None
    burst: BurstTable | None = None
    accounting: AccountingTable | None = None
    latency: LatencyTable | None = None
    simulation: SimulationTable | None = None
    enforced_by: Enforcer | None = Field(
        None,
        description=(
            "enforcer of the I/O limits: cgroup (io.max), or volume (a simulated volume), which is"
            " the default if [simulation] has latencies, a restore or events"
        ),
    )

    @model_validator(mode="after")
    def _check_enforcer(self) -> CageFile:
        """Refuse events and restores that a cgroup would ignore."""
        simulation = self.simulation
        if (
            self.enforced_by == "cgroup"
            and simulation
            and (simulation.restore or simulation.events)
        ):
            raise ValueError('simulation: restores and events need enforced_by = "volume"')
        return self

    @model_validator(mode="after")
    def _check_bursts(self) -> CageFile:
        """Refuse a bucket without a limit, or with a rate that is not above the limit."""
        for key, bases in (
            ("iops", (self.IOReadIOPSMax, self.IOWriteIOPSMax)),
            ("bandwidth", (self.IOReadBandwidthMax, self.IOWriteBandwidthMax)),
        ):
            bucket = getattr(self.burst, key, None)
            given = [base for base in bases if base is not None]
            if bucket and not given:
                names = "IOReadIOPSMax" if key == "iops" else "IOReadBandwidthMax"
                raise ValueError(
                    f"burst.{key}: a bucket refills at the rate of {names}, which is missing"
                )
            if bucket and bucket.rate <= min(given):
                raise ValueError(
                    f"burst.{key}.rate is not above the limit, so there would be no burst"
                )
        return self


# The tables of a cage file by key, for hints on misspelt keys.
TABLES: dict[str, type[BaseModel]] = {
    "volume": VolumeTable,
    "burst": BurstTable,
    "burst.iops": IopsBucket,
    "burst.bandwidth": BandwidthBucket,
    "accounting": AccountingTable,
    "latency": LatencyTable,
    "MemoryMax": DatasetFraction,
    **SIMULATION_TABLES,
}


def resolve_cage(name: str, table: CageFile, dataset_bytes: int | None, path: Path) -> Cage:
    """Return the cage with all limits resolved.

    Raises PagecageError if MemoryMax is a share of the dataset and there is no dataset.
    """
    data = table.model_dump()
    limits = {k: data[k] for k in CageFile.model_fields if k[0].isupper() and data[k] is not None}
    if isinstance(table.MemoryMax, DatasetFraction):
        if dataset_bytes is None:
            raise PagecageError(
                f"{path.name}: MemoryMax is a share of the dataset, but there is no dataset",
                "give the data with --cold (replay) or its size with --data-size (shell)",
            )
        limits["MemoryMax"] = page_floor_bytes(
            round(dataset_bytes * table.MemoryMax.dataset_fraction)
        )
        if limits["MemoryMax"] == 0:
            share = f"{table.MemoryMax.dataset_fraction:g} of {format_bytes(dataset_bytes)}"
            raise PagecageError(
                f"{path.name}: MemoryMax would be {share}, less than a page", "give more data"
            )
    # With swap, anonymous memory would spill instead of being killed, and io.max does not throttle
    # swap-in.
    if limits.get("MemorySwapMax") == "infinity":
        del limits["MemorySwapMax"]
    elif name != UNCAGED:
        limits.setdefault("MemorySwapMax", 0)
    latency = table.latency
    return Cage(
        name,
        limits,
        {key: data[key] for key in ("about", "source") if data[key] is not None},
        volume=_volume(table.volume) if table.volume else None,
        burst=_burst(table.burst) if table.burst else None,
        accounting=_accounting(table.accounting) if table.accounting else None,
        latency=LatencyFloor(latency.read_us, latency.write_us) if latency else None,
        simulation=table.simulation.to_model() if table.simulation else None,
        enforced_by=_enforcer(table),
    )


def _enforcer(table: CageFile) -> str:
    needs_volume = table.simulation is not None and table.simulation.needs_volume
    return table.enforced_by or ("volume" if needs_volume else ENFORCERS[0])


def cage_of_tables(name: str, tables: Mapping[str, Any]) -> Cage:
    """Return the cage of tables that a program made.

    Raises PagecageError if they are not a valid cage.
    """
    try:
        return resolve_cage(name, CageFile.model_validate(dict(tables)), None, Path(f"{name}.toml"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        message = first["msg"].removeprefix("Value error, ")
        raise PagecageError(
            f"the result is not a valid cage: {where}: {message}",
            "leave out --save to see what was read",
        ) from None


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
