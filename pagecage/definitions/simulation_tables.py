"""The table [simulation] of a cage: properties that only a simulated volume has."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pagecage.definitions.fields import (
    BandwidthBucket,
    Count,
    IopsBucket,
    SizeBytes,
    StrictTable,
)
from pagecage.model.simulation import (
    LatencyQuantiles,
    LayerLimit,
    SnapshotRestore,
    VolumeEvent,
    VolumeSimulation,
)

_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(gt=0, le=1)]
_Percent = Annotated[str, Field(pattern=r"^(100|[0-9]{1,2}(\.[0-9]+)?)$")]


class LayerLimitTable(StrictTable):
    """A limit of the volume or of its instance, with credits above it if it has any."""

    layer: Literal["volume", "instance"] = "volume"
    of: Literal["both", "read", "write"] = "both"
    iops: Count | None = None
    bandwidth: SizeBytes | None = Field(None, description="bytes per second")
    iops_burst: IopsBucket | None = None
    bandwidth_burst: BandwidthBucket | None = None

    @model_validator(mode="after")
    def _check(self) -> LayerLimitTable:
        if (self.iops is None) == (self.bandwidth is None):
            raise ValueError("a limit has either iops or bandwidth")
        for base, burst, name in (
            (self.iops, self.iops_burst, "iops"),
            (self.bandwidth, self.bandwidth_burst, "bandwidth"),
        ):
            if burst is not None and (base is None or burst.rate <= base):
                raise ValueError(f"{name}_burst.rate must be above {name}")
        return self

    def to_model(self) -> LayerLimit:
        """Return the limit."""
        burst = self.iops_burst or self.bandwidth_burst
        rate, unit = (self.iops, "operations") if self.iops else (self.bandwidth, "bytes")
        assert rate is not None  # by the validator
        bucket = (float(burst.rate), float(burst.credits)) if burst else (None, None)
        return LayerLimit(self.layer, self.of, unit, float(rate), *bucket)


class LatencyQuantilesTable(StrictTable):
    """The latency of requests of one size, by percentile; they may not fall."""

    size: SizeBytes = 4096
    percentiles_us: Annotated[dict[_Percent, _Positive], Field(min_length=1)]

    @model_validator(mode="after")
    def _rising(self) -> LatencyQuantilesTable:
        for (low, low_us), (high, high_us) in itertools.pairwise(self._sorted()):
            if high_us < low_us:
                raise ValueError(
                    f"percentiles_us: percentile {high * 100:g} ({high_us:g} us) is below"
                    f" percentile {low * 100:g} ({low_us:g} us)"
                )
        return self

    def _sorted(self) -> list[tuple[float, float]]:
        return sorted((float(percent) / 100, us) for percent, us in self.percentiles_us.items())

    def to_model(self) -> LatencyQuantiles:
        """Return the distribution."""
        return LatencyQuantiles(self.size, tuple(self._sorted()))


class RestoreTable(StrictTable):
    """A volume created from a snapshot: the first touch of each block loads it at `rate`."""

    rate: SizeBytes = Field(description="bytes per second")
    block: SizeBytes = 524288


class VolumeEventTable(StrictTable):
    """An event, in seconds since the start of the measured part; without `until_seconds` it lasts.

    `degrade` delivers a share of the rates, `delay` adds a latency to a share of the I/Os, `pause`
    holds all I/Os, `fail` answers a share of them with EIO, and `detach` all.
    """

    kind: Literal["degrade", "delay", "pause", "fail", "detach"]
    from_seconds: _Seconds = 0.0
    until_seconds: _Positive | None = None
    share: _Share | None = None
    latency_us: _Positive | None = None
    first_byte: Annotated[int, Field(ge=0)] | None = None
    end_byte: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _check(self) -> VolumeEventTable:
        needed = {"degrade": {"share"}, "delay": {"share", "latency_us"}, "fail": {"share"}}.get(
            self.kind, set()
        )
        given = {"share", "latency_us"} & self.model_fields_set
        if given != needed:
            names = " and ".join(sorted(needed)) or "neither share nor latency_us"
            raise ValueError(f"an event of kind {self.kind} has {names}")
        if self.until_seconds is not None and self.until_seconds <= self.from_seconds:
            raise ValueError("until_seconds must be after from_seconds")
        if self.kind == "pause" and self.until_seconds is None:
            raise ValueError("a pause needs until_seconds")
        if self.kind != "fail" and {"first_byte", "end_byte"} & self.model_fields_set:
            raise ValueError("only a fail has first_byte and end_byte")
        return self


class SimulationTable(StrictTable):
    """Properties of a cloud volume that only a simulated volume has, not io.max.

    Without `limits`, the I/O properties of the cage are the volume's limits.
    """

    limits: list[LayerLimitTable] = []
    read_latency: list[LatencyQuantilesTable] = []
    write_latency: list[LatencyQuantilesTable] = []
    restore: RestoreTable | None = None
    events: list[VolumeEventTable] = []

    @property
    def needs_volume(self) -> bool:
        """True if it has anything that a cgroup cannot enforce."""
        return bool(self.read_latency or self.write_latency or self.restore or self.events)

    def to_model(self) -> VolumeSimulation:
        """Return the simulation."""
        restore = self.restore
        return VolumeSimulation(
            tuple(limit.to_model() for limit in self.limits),
            tuple(latency.to_model() for latency in self.read_latency),
            tuple(latency.to_model() for latency in self.write_latency),
            SnapshotRestore(float(restore.rate), restore.block) if restore else None,
            tuple(VolumeEvent(**event.model_dump()) for event in self.events),
        )
