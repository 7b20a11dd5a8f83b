"""Cages in TOML: memory, disks, and simulated volumes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from pagecage.definitions.fields import (
    BandwidthBucket,
    CheckedBy,
    Citation,
    Count,
    ExactBytes,
    ExactCount,
    IopsBucket,
    SizeBytes,
    StrictTable,
)
from pagecage.errors import PagecageError
from pagecage.model import cage as model
from pagecage.model.json_codec import DISK
from pagecage.units import format_bytes, page_floor_bytes

_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(gt=0, le=1)]
_PERCENT = r"^(100|[0-9]{1,2}(\.[0-9]+)?)$"
_Percent = Annotated[str, WithJsonSchema({"type": "string", "pattern": _PERCENT})]
Percentiles = Annotated[dict[_Percent, _Positive], Field(min_length=1)]
"""Microseconds by percentage."""


class ExactIopsBucket(StrictTable):
    """A token bucket of I/Os: `rate` per second while its `credits` last."""

    rate: ExactCount
    credits: ExactCount


class ExactBandwidthBucket(StrictTable):
    """A token bucket of bytes: `rate` per second while its `credits` last."""

    rate: ExactBytes
    credits: ExactBytes


class LayerLimitTable(StrictTable):
    """A limit of the volume or of its instance, with credits above it if it has any."""

    layer: Literal["volume", "instance"] = "volume"
    of: Literal["both", "read", "write"] = "both"
    iops: ExactCount | None = None
    bandwidth: ExactBytes | None = Field(None, description="bytes per second")
    iops_burst: ExactIopsBucket | None = None
    bandwidth_burst: ExactBandwidthBucket | None = None

    @model_validator(mode="after")
    def _check(self) -> LayerLimitTable:
        if (self.iops is None) == (self.bandwidth is None):
            raise ValueError("a limit has either iops or bandwidth")
        for name in ("iops", "bandwidth"):
            base, burst = getattr(self, name), getattr(self, f"{name}_burst")
            if burst is not None and base is None:
                raise ValueError(f"{name}_burst needs {name}, the rate at which it refills")
            if burst is not None and base is not None and burst.rate <= base:
                reason = f"{name}_burst.rate is not above {name}, so there would be no burst"
                raise ValueError(reason)
        return self

    def to_model(self) -> model.LayerLimit:
        burst = self.iops_burst or self.bandwidth_burst
        rate, unit = (self.iops, "operations") if self.iops else (self.bandwidth, "bytes")
        assert rate is not None  # by the validator
        bucket = (burst.rate, burst.credits) if burst else (None, None)
        return model.LayerLimit(self.layer, self.of, unit, rate, *bucket)


def quantiles_of(percentiles_us: Mapping[str, float]) -> tuple[tuple[float, float], ...]:
    """Return pairs of a probability and microseconds, ascending; percentile 99.9 is 0.999 exactly.

    Raises ValueError for a key that is not a percentage, and if the percentiles fall.
    """
    for text in percentiles_us:
        if not re.fullmatch(_PERCENT, text):
            raise ValueError(f'percentiles_us: "{text}" is not a percentage from 0 to 100')
    found = sorted((Decimal(percent), us) for percent, us in percentiles_us.items())
    for (low, low_us), (high, high_us) in itertools.pairwise(found):
        if low == high:
            raise ValueError(f"percentiles_us: percentile {low} is given twice")
        if high_us < low_us:
            raise ValueError(
                f"percentiles_us: percentile {high} ({high_us:g} us) is below percentile {low}"
                f" ({low_us:g} us)"
            )
    return tuple((float(percent / 100), us) for percent, us in found)


class LatencyQuantilesTable(StrictTable):
    """The latency of requests of one size, by percentile; they may not fall."""

    size: SizeBytes = 4096
    percentiles_us: Percentiles

    @model_validator(mode="after")
    def _check(self) -> LatencyQuantilesTable:
        quantiles_of(self.percentiles_us)
        return self

    def to_model(self) -> model.LatencyQuantiles:
        return model.LatencyQuantiles(self.size, quantiles_of(self.percentiles_us))


Latencies = Annotated[
    tuple[model.LatencyQuantiles, ...],
    CheckedBy(list[Annotated[model.LatencyQuantiles, CheckedBy(LatencyQuantilesTable)]], tuple),
]


class RestoreTable(StrictTable):
    """A volume created from a snapshot: the first touch of each block loads it at `rate`."""

    rate: ExactBytes = Field(description="bytes per second")
    block: Annotated[SizeBytes, Field(ge=4096)] = 524288


_EVENT_NEEDS = {"degrade": {"share"}, "delay": {"share", "latency_us"}, "fail": {"share"}}


class VolumeEventTable(StrictTable):
    """An event, in seconds since the start of the measured part; without `until_seconds` it lasts.

    `degrade` delivers a share of the rates, `delay` adds a latency to a share of the I/Os, `pause`
    holds all I/Os, `fail` answers a share of them with EIO, and `detach` all, for good.
    """

    kind: Literal["degrade", "delay", "pause", "fail", "detach"]
    from_seconds: _Seconds = 0.0
    until_seconds: _Positive | None = None
    share: _Share | None = None
    latency_us: _Positive | None = None
    first_byte: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    end_byte: Annotated[int, Field(gt=0, lt=2**63)] | None = None

    @model_validator(mode="after")
    def _check(self) -> VolumeEventTable:
        needed, until = _EVENT_NEEDS.get(self.kind, set()), self.until_seconds
        if {"share", "latency_us"} & self.model_fields_set != needed:
            names = " and ".join(sorted(needed)) or "neither share nor latency_us"
            raise ValueError(f"an event of kind {self.kind} has {names}")
        if self.kind == "pause" and until is None:
            raise ValueError("a pause needs until_seconds")
        if self.kind == "detach" and until is not None:
            raise ValueError("a detached volume stays detached: remove until_seconds")
        if until is not None and until <= self.from_seconds:
            raise ValueError("until_seconds must be after from_seconds")
        if self.kind != "fail" and {"first_byte", "end_byte"} & self.model_fields_set:
            raise ValueError("only a fail has first_byte and end_byte")
        if self.end_byte is not None and self.end_byte <= (self.first_byte or 0):
            raise ValueError("end_byte must be after first_byte")
        return self


_Event = Annotated[model.VolumeEvent, CheckedBy(VolumeEventTable)]


class SimulationTable(StrictTable):
    """Properties of a cloud volume that only a simulated volume has, not io.max.

    Without `limits`, the I/O properties of the cage are the volume's limits.
    """

    limits: Annotated[
        tuple[model.LayerLimit, ...],
        CheckedBy(list[Annotated[model.LayerLimit, CheckedBy(LayerLimitTable)]], tuple),
    ] = ()
    read_latency: Latencies = ()
    write_latency: Latencies = ()
    restore: Annotated[model.SnapshotRestore, CheckedBy(RestoreTable)] | None = None
    events: Annotated[
        tuple[model.VolumeEvent, ...],
        CheckedBy(Annotated[list[_Event], Field(max_length=256)], tuple),
    ] = ()

    @model_validator(mode="after")
    def _check_sizes(self) -> SimulationTable:
        for name in ("read_latency", "write_latency"):
            sizes = [latency.size_bytes for latency in getattr(self, name)]
            if len(set(sizes)) < len(sizes):
                raise ValueError(f"{name}: two distributions have the same size")
        return self


SIMULATION_TABLES: Mapping[str, type[BaseModel]] = {
    "simulation": SimulationTable,
    "simulation.limits": LayerLimitTable,
    "simulation.limits.iops_burst": ExactIopsBucket,
    "simulation.limits.bandwidth_burst": ExactBandwidthBucket,
    "simulation.read_latency": LatencyQuantilesTable,
    "simulation.write_latency": LatencyQuantilesTable,
    "simulation.restore": RestoreTable,
    "simulation.events": VolumeEventTable,
}
"""The tables by key, for hints on misspelt keys."""


def check_disk_name(name: str) -> str:
    """Return the name of a further disk. Raises ValueError if it is invalid or is `data`."""
    if name == model.DATA_DISK:
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
    iops: Annotated[model.CreditBucket, CheckedBy(IopsBucket)] | None = None
    bandwidth: Annotated[model.CreditBucket, CheckedBy(BandwidthBucket)] | None = None

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
    volume: Annotated[model.CloudVolume, CheckedBy(VolumeTable)] | None = None
    burst: Annotated[model.BurstCredits, CheckedBy(BurstTable)] | None = None
    accounting: Annotated[model.IoAccounting, CheckedBy(AccountingTable)] | None = None
    latency: Annotated[model.LatencyFloor, CheckedBy(LatencyTable)] | None = None
    simulation: Annotated[model.VolumeSimulation, CheckedBy(SimulationTable)] | None = None

    @model_validator(mode="after")
    def _check_bursts(self) -> Self:
        for key, bases in (
            ("iops", (self.IOReadIOPSMax, self.IOWriteIOPSMax)),
            ("bandwidth", (self.IOReadBandwidthMax, self.IOWriteBandwidthMax)),
        ):
            bucket = getattr(self.burst, key, None)
            given = [base for base in bases if base is not None]
            if bucket and not given:
                names = "IOReadIOPSMax" if key == "iops" else "IOReadBandwidthMax"
                reason = f"burst.{key}: a bucket refills at the rate of {names}, which is missing"
                raise ValueError(reason)
            if bucket and bucket.rate <= min(given):
                reason = f"burst.{key}.rate is not above the limit, so there would be no burst"
                raise ValueError(reason)
        return self

    def limits(self, names: Sequence[str]) -> model.DiskLimits:
        """Return those of these properties that are given, as numbers, and the cloud volume."""
        given = {name: getattr(self, name) for name in names}
        return model.DiskLimits(
            {name: value for name, value in given.items() if value is not None},
            *(self.volume, self.burst, self.accounting, self.latency, self.simulation),
        )


class DatasetFraction(StrictTable):
    """A size as a share of the dataset's size."""

    dataset_fraction: Annotated[float, Field(gt=0)]


class CageFile(DiskTable):
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
    CPUQuota: Annotated[int, Field(gt=0, lt=2**31, description="percent of one CPU")] | None = None
    source: Citation | None = None
    disks: dict[DiskName, DiskTable] = Field(
        {}, description="further disks by name; the limits above are those of the data's disk"
    )
    enforced_by: model.Enforcer | None = Field(
        None,
        description=(
            "enforcer of the I/O limits: cgroup (io.max), or volume (a simulated volume), which is"
            " the default if [simulation] has latencies, a restore or events"
        ),
    )

    @model_validator(mode="after")
    def _check_enforcer(self) -> CageFile:
        if self.enforced_by == "cgroup" and any(
            one.restore or one.events for one in self.simulations
        ):
            raise ValueError('simulation: restores and events need enforced_by = "volume"')
        return self

    @property
    def simulations(self) -> list[model.VolumeSimulation]:
        tables = (self.simulation, *(disk.simulation for disk in self.disks.values()))
        return [table for table in tables if table]


# The tables of a cage file by key, for hints on misspelt keys.
CAGE_TABLES: dict[str, type[BaseModel]] = {
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
_IO_PROPERTIES = ("IOReadBandwidthMax", "IOReadIOPSMax", "IOWriteBandwidthMax", "IOWriteIOPSMax")
_PROPERTIES = ("MemoryMax", "MemoryHigh", "MemorySwapMax", *_IO_PROPERTIES, "CPUQuota")
"""Limits in the order in which a cage has them."""


def resolve_cage(name: str, table: CageFile, dataset_bytes: int | None, path: Path) -> model.Cage:
    """Return the cage with all limits resolved.

    Raises PagecageError if MemoryMax is a share of the dataset and there is no dataset.
    """
    own = table.limits(_PROPERTIES)
    limits: dict[str, Any] = dict(own.properties)
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
            reason = f"{path.name}: MemoryMax would be {share}, less than a page"
            raise PagecageError(reason, "give more data")
    # With swap, anonymous memory would spill instead of being killed, and io.max does not throttle
    # swap-in.
    if limits.get("MemorySwapMax") == "infinity":
        del limits["MemorySwapMax"]
    elif name != model.UNCAGED:
        limits.setdefault("MemorySwapMax", 0)
    needs_volume = any(
        one.read_latency or one.write_latency or one.restore or one.events
        for one in table.simulations
    )
    source = {} if table.source is None else {"source": table.source.model_dump()}
    return model.Cage(
        name,
        **{**vars(own), "properties": limits},
        provenance={"about": table.about, **source},
        enforced_by=table.enforced_by or ("volume" if needs_volume else model.ENFORCERS[0]),
        disks={name: disk.limits(_IO_PROPERTIES) for name, disk in table.disks.items()},
    )


def cage_of_tables(name: str, tables: Mapping[str, object]) -> model.Cage:
    """Return the cage of tables that a program made. Raises PagecageError if it is not valid."""
    try:
        return resolve_cage(name, CageFile.model_validate(dict(tables)), None, Path(f"{name}.toml"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        message = first["msg"].removeprefix("Value error, ")
        reason = f"the result is not a valid cage: {where}: {message}"
        raise PagecageError(reason, "leave out --save to see what was read") from None
