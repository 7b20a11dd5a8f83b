"""A simulated volume: its limits, bursts and distribution of latencies."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pagecage.model.cage import (
    FILL,
    IO_MAX_KEY,
    SHARED_PROPERTIES,
    BurstCredits,
    Cage,
    CreditBucket,
    DiskLimits,
    LatencyFloor,
    LatencyQuantiles,
    LayerLimit,
    VolumeSimulation,
)
from pagecage.model.json_codec import Json
from pagecage.units import GIB, MIB

Quantiles = Sequence[tuple[float, ...]]
_STEPS = 2000
"""Steps of the integral over a distribution between two sizes."""


def volume_file_bytes(data_bytes: int) -> int:
    """Return the size of the file of a volume that is served on the host itself, in whole GiB.

    It has room for the data, for the file system's own and for 512 MiB more.
    """
    return -(-(data_bytes * 6 // 5 + 512 * MIB) // GIB) * GIB


def latency_at(quantiles: Quantiles, probability: float) -> float:
    if probability <= quantiles[0][0]:
        return quantiles[0][1]
    for (low_p, low_us), (high_p, high_us) in itertools.pairwise(quantiles):
        if probability <= high_p:
            share = (probability - low_p) / (high_p - low_p)
            return float(low_us * (high_us / low_us) ** share)
    return quantiles[-1][1]


def mean_us(quantiles: Quantiles) -> float:
    (first_p, first_us), (last_p, last_us) = quantiles[0], quantiles[-1]
    total = first_p * first_us + (1 - last_p) * last_us
    for (low_p, low_us), (high_p, high_us) in itertools.pairwise(quantiles):
        ratio = high_us / low_us
        total += (high_p - low_p) * (
            low_us if ratio - 1 < 1e-9 else (high_us - low_us) / math.log(ratio)
        )
    return total


def latency_at_size(
    sizes: Sequence[LatencyQuantiles], size_bytes: float, probability: float
) -> float:
    """Return the latency of requests of a size at a probability; 0 without distributions.

    Between two sizes, the logarithm of the latency is linear in that of the size.
    """
    ordered = sorted(sizes, key=lambda one: one.size_bytes)
    near = [one for one in ordered if one.size_bytes <= size_bytes][-1:]
    near += [one for one in ordered if one.size_bytes > size_bytes][:1]
    found = [latency_at(one.quantiles, probability) for one in near]
    if len(near) < 2 or near[0].size_bytes == size_bytes:
        return found[0] if found else 0.0
    low, high = near[0].size_bytes, near[1].size_bytes
    share = math.log(size_bytes / low) / math.log(high / low)
    return float(found[0] * (found[1] / found[0]) ** share)


def mean_us_at_size(sizes: Sequence[LatencyQuantiles], size_bytes: float) -> float:
    """Return the mean for requests of a size; 0 without distributions."""
    for one in sizes:
        if one.size_bytes == size_bytes or len(sizes) == 1:
            return mean_us(one.quantiles)
    middles = ((step + 0.5) / _STEPS for step in range(_STEPS))
    return sum(latency_at_size(sizes, size_bytes, middle) for middle in middles) / _STEPS


FLOOR_BYTES = 4096
"""The size of the requests to which a latency floor is ascribed; it then holds for every size."""


def volume_model(cage: Cage, seed: int) -> Json:
    """Return the model of a cage's volume. Equal seeds give equal latencies and random events."""
    simulation = cage.simulation or VolumeSimulation()
    start = FILL[cage.burst.start] if cage.burst else FILL["full"]
    accounting, floor = cage.accounting, cage.latency or LatencyFloor()
    restore = simulation.restore
    return {
        "limits": [_limit(limit, start) for limit in volume_limits(cage)],
        "accounting": {
            "io_size_bytes": accounting.io_size_bytes if accounting else None,
            "merged": bool(accounting and accounting.merged),
        },
        "read_latency": _latencies(simulation.read_latency, floor.read_us),
        "write_latency": _latencies(simulation.write_latency, floor.write_us),
        "restore": vars(restore) if restore else None,
        "events": [
            {name: value for name, value in vars(event).items() if value is not None}
            for event in simulation.events
        ],
        "seed": seed,
    }


def volume_limits(cage: Cage) -> tuple[LayerLimit, ...]:
    """Return the limits of a cage's volume by layer: those of its simulation, or its properties."""
    if cage.simulation and cage.simulation.limits:
        return cage.simulation.limits
    return tuple(_limits_of_properties(cage))


def _limits_of_properties(cage: Cage) -> Iterator[LayerLimit]:
    burst = cage.burst or BurstCredits("full")
    for kind, both in SHARED_PROPERTIES.items():
        unit = "operations" if kind == "iops" else "bytes"
        bucket = burst.iops if kind == "iops" else burst.bandwidth
        rates = [cage.properties.get(name) for name in both]
        if cage.accounting and cage.accounting.combined and rates[0] and rates[0] == rates[1]:
            yield _layer_limit("both", unit, rates[0], bucket)
            continue
        for direction, rate in zip(("read", "write"), rates, strict=True):
            if rate is not None:
                yield _layer_limit(direction, unit, rate, bucket)


def _layer_limit(of: str, unit: str, rate: float, bucket: CreditBucket | None) -> LayerLimit:
    if bucket is None:
        return LayerLimit("volume", of, unit, rate)
    return LayerLimit("volume", of, unit, rate, bucket.rate, bucket.credits)


def _limit(limit: LayerLimit, start: float) -> Json:
    credits_ = None
    if limit.burst_per_second is not None and limit.credits is not None:
        credits_ = {
            "burst_per_second": limit.burst_per_second,
            "capacity": limit.credits,
            "start": start * limit.credits,
        }
    named = {"layer": limit.layer, "scope": limit.of, "unit": limit.unit}
    return {**named, "per_second": limit.per_second, "credits": credits_}


def _latencies(given: Sequence[LatencyQuantiles], floor_us: int | None) -> list[Json]:
    if floor_us and not given:
        given = (LatencyQuantiles(FLOOR_BYTES, ((0.0, float(floor_us)),)),)
    return [
        {"size_bytes": one.size_bytes, "quantiles": [list(pair) for pair in one.quantiles]}
        for one in sorted(given, key=lambda one: one.size_bytes)
    ]


def dilated(cage: Cage, factor: float) -> Cage:
    """Return the cage with its volume's time stretched; credits last the factor times longer."""
    disks = {
        name: replace(disk, **_dilated_parts(disk, factor)) for name, disk in cage.disks.items()
    }
    own = _dilated_parts(cage, factor)
    return replace(cage, **own, dilation=cage.dilation * factor, disks=disks)


def _dilated_parts(limits: Cage | DiskLimits, factor: float) -> Json:
    burst, floor, simulation = limits.burst, limits.latency, limits.simulation

    def slower(bucket: CreditBucket | None) -> CreditBucket | None:
        return bucket and replace(bucket, rate=max(1, round(bucket.rate / factor)))

    def longer(microseconds: int | None) -> int | None:
        return microseconds and round(microseconds * factor)

    return {
        "properties": {
            name: max(1, round(value / factor)) if name in IO_MAX_KEY else value
            for name, value in limits.properties.items()
        },
        "burst": burst
        and replace(burst, iops=slower(burst.iops), bandwidth=slower(burst.bandwidth)),
        "latency": floor and LatencyFloor(longer(floor.read_us), longer(floor.write_us)),
        "simulation": simulation and _dilated_simulation(simulation, factor),
    }


def _dilated_simulation(simulation: VolumeSimulation, factor: float) -> VolumeSimulation:
    def changed(part: Any, change: Callable[[float, float], float], *names: str) -> Any:
        values = {n: v for n in names if (v := getattr(part, n)) is not None}
        return replace(part, **{name: change(value, factor) for name, value in values.items()})

    def longer(given: Sequence[LatencyQuantiles]) -> tuple[LatencyQuantiles, ...]:
        return tuple(
            replace(one, quantiles=tuple((p, us * factor) for p, us in one.quantiles))
            for one in given
        )

    rates = "per_second", "burst_per_second"
    times = "from_seconds", "until_seconds", "latency_us"
    restore = simulation.restore
    return VolumeSimulation(
        tuple(changed(limit, operator.truediv, *rates) for limit in simulation.limits),
        longer(simulation.read_latency),
        longer(simulation.write_latency),
        restore and changed(restore, operator.truediv, "bytes_per_second"),
        tuple(changed(event, operator.mul, *times) for event in simulation.events),
    )
