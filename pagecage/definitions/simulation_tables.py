"""The table [simulation] of a cage: properties that only a simulated volume has."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, Field, WithJsonSchema, model_validator

from pagecage.definitions.fields import ExactBytes, ExactCount, SizeBytes, StrictTable
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
        for base, burst, name in (
            (self.iops, self.iops_burst, "iops"),
            (self.bandwidth, self.bandwidth_burst, "bandwidth"),
        ):
            if burst is not None and base is None:
                raise ValueError(f"{name}_burst needs {name}, the rate at which it refills")
            if burst is not None and base is not None and burst.rate <= base:
                raise ValueError(
                    f"{name}_burst.rate is not above {name}, so there would be no burst"
                )
        return self

    def to_model(self) -> LayerLimit:
        """Return the limit."""
        burst = self.iops_burst or self.bandwidth_burst
        rate, unit = (self.iops, "operations") if self.iops else (self.bandwidth, "bytes")
        assert rate is not None  # by the validator
        bucket = (burst.rate, burst.credits) if burst else (None, None)
        return LayerLimit(self.layer, self.of, unit, rate, *bucket)


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

    def to_model(self) -> LatencyQuantiles:
        """Return the distribution."""
        return LatencyQuantiles(self.size, quantiles_of(self.percentiles_us))


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
        if mistake := next(self._mistakes(), None):
            raise ValueError(mistake)
        return self

    def _mistakes(self) -> Iterator[str]:
        needed, until = _EVENT_NEEDS.get(self.kind, set()), self.until_seconds
        if {"share", "latency_us"} & self.model_fields_set != needed:
            names = " and ".join(sorted(needed)) or "neither share nor latency_us"
            yield f"an event of kind {self.kind} has {names}"
        if self.kind == "pause" and until is None:
            yield "a pause needs until_seconds"
        if self.kind == "detach" and until is not None:
            yield "a detached volume stays detached: remove until_seconds"
        if until is not None and until <= self.from_seconds:
            yield "until_seconds must be after from_seconds"
        if self.kind != "fail" and {"first_byte", "end_byte"} & self.model_fields_set:
            yield "only a fail has first_byte and end_byte"
        if self.end_byte is not None and self.end_byte <= (self.first_byte or 0):
            yield "end_byte must be after first_byte"


class SimulationTable(StrictTable):
    """Properties of a cloud volume that only a simulated volume has, not io.max.

    Without `limits`, the I/O properties of the cage are the volume's limits.
    """

    limits: list[LayerLimitTable] = []
    read_latency: list[LatencyQuantilesTable] = []
    write_latency: list[LatencyQuantilesTable] = []
    restore: RestoreTable | None = None
    events: Annotated[list[VolumeEventTable], Field(max_length=256)] = []

    @model_validator(mode="after")
    def _check_sizes(self) -> SimulationTable:
        for name, tables in (
            ("read_latency", self.read_latency),
            ("write_latency", self.write_latency),
        ):
            sizes = [table.size for table in tables]
            if len(set(sizes)) < len(sizes):
                raise ValueError(f"{name}: two distributions have the same size")
        return self

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
            SnapshotRestore(restore.rate, restore.block) if restore else None,
            tuple(VolumeEvent(**event.model_dump()) for event in self.events),
        )


TABLES: Mapping[str, type[BaseModel]] = {
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
