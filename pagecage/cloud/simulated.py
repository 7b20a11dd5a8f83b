"""Limits of volumes and instances as a simulated volume has them, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from pagecage.cloud.volume_limits import LimitLayer, VolumeLimits
from pagecage.model.simulation import LatencyQuantiles, LayerLimit, VolumeSimulation

_UNITS = {"iops": "operations", "bandwidth": "bytes"}


def simulation_of(
    limits: VolumeLimits,
    volume: str,
    is_combined: bool,
    read_latency: tuple[LatencyQuantiles, ...] = (),
    write_latency: tuple[LatencyQuantiles, ...] = (),
) -> VolumeSimulation:
    """Return the simulation of a volume, with each layer apart and its rates unrounded.

    Layers that are not named after the volume are those of its instance.
    """
    layers = tuple(_layer_limits(limits, volume, is_combined))
    return VolumeSimulation(layers, read_latency, write_latency)


def _layer_limits(limits: VolumeLimits, volume: str, is_combined: bool) -> Iterator[LayerLimit]:
    for quantity, unit in _UNITS.items():
        reads: Sequence[LimitLayer] = getattr(limits, f"read_{quantity}")
        writes: Sequence[LimitLayer] = getattr(limits, f"write_{quantity}")
        if is_combined and reads == writes:
            sides = [("both", reads)]
        else:
            sides = [("read", reads), ("write", writes)]
        for of, layers in sides:
            for layer in layers:
                yield _layer_limit("volume" if layer.by == volume else "instance", of, unit, layer)


def _layer_limit(name: str, of: str, unit: str, layer: LimitLayer) -> LayerLimit:
    """Return one limit. A burst without end is a higher limit."""
    if layer.burst is None or not layer.bursts:
        return LayerLimit(name, of, unit, float(layer.base))
    if layer.credits is None:
        return LayerLimit(name, of, unit, float(layer.burst))
    burst, credits_ = float(layer.burst), float(layer.credits)
    return LayerLimit(name, of, unit, float(layer.base), burst, credits_)


def limits_of(simulation: VolumeSimulation) -> VolumeLimits:
    """Return the limits of a simulation by direction and quantity."""
    found = {
        f"{side}_{quantity}": tuple(
            _layer(limit)
            for limit in simulation.limits
            if limit.of in (side, "both") and limit.unit == unit
        )
        for side in ("read", "write")
        for quantity, unit in _UNITS.items()
    }
    return VolumeLimits(**found)


def _layer(limit: LayerLimit) -> LimitLayer:
    burst, credits_ = (
        None if value is None else Fraction(value)
        for value in (limit.burst_per_second, limit.credits)
    )
    return LimitLayer(limit.layer, Fraction(limit.per_second), burst, credits_)
