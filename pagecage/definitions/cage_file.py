"""The tables of cgroups/*.toml: limits, and further properties of cloud volumes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from pagecage.definitions.disk_tables import (
    AccountingTable,
    BurstTable,
    DiskName,
    DiskTable,
    LatencyTable,
    VolumeTable,
    check_bursts,
    volume_parts,
)
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
from pagecage.model.cage import ENFORCERS, UNCAGED, Cage, Enforcer
from pagecage.units import format_bytes, page_floor_bytes


class DatasetFraction(StrictTable):
    """A size as a share of the dataset's size."""

    dataset_fraction: Annotated[float, Field(gt=0)]


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
    disks: dict[DiskName, DiskTable] = Field(
        {}, description="further disks by name; the limits above are those of the data's disk"
    )
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
        if self.enforced_by == "cgroup" and any(
            one.restore or one.events for one in self.simulations
        ):
            raise ValueError('simulation: restores and events need enforced_by = "volume"')
        return self

    @property
    def simulations(self) -> list[SimulationTable]:
        """The simulations of all disks."""
        tables = (self.simulation, *(disk.simulation for disk in self.disks.values()))
        return [table for table in tables if table]

    @model_validator(mode="after")
    def _check_bursts(self) -> CageFile:
        """Refuse a bucket without a limit, or with a rate that is not above the limit."""
        check_bursts(self)
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
    "disks": DiskTable,
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
    return Cage(
        name,
        limits,
        {key: data[key] for key in ("about", "source") if data[key] is not None},
        **volume_parts(table),
        enforced_by=_enforcer(table),
        disks={name: disk.to_model() for name, disk in table.disks.items()},
    )


def _enforcer(table: CageFile) -> str:
    needs_volume = any(one.needs_volume for one in table.simulations)
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
