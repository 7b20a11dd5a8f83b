"""The rates of a volume on its instance: the least of both, over time, with their bursts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

FULLNESS = {"full": Fraction(1), "half": Fraction(1, 2), "drained": Fraction(0)}


@dataclass(frozen=True)
class LimitLayer:
    """The limit of the volume or of the instance, in I/Os or bytes per second.

    `by` names which. A `burst` with `credits` of None has no end.
    """

    by: str
    base: Fraction
    burst: Fraction | None = None
    credits: Fraction | None = None

    @property
    def bursts(self) -> bool:
        """True if the layer ever allows more than its base."""
        return self.burst is not None and self.burst > self.base

    def rate(self, has_credits: bool) -> Fraction:
        """Return the rate that the layer allows with or without credits."""
        return self.burst if has_credits and self.burst is not None and self.bursts else self.base

    def scaled(self, factor: Fraction) -> LimitLayer:
        """Return the layer at another speed; its bucket lasts as long as before."""
        scaled = [None if value is None else value * factor for value in (self.burst, self.credits)]
        return LimitLayer(self.by, self.base * factor, *scaled)


@dataclass(frozen=True)
class RatePeriod:
    """A period of constant rate under full demand, and the layer that sets it.

    `seconds` is None for the last period, which has no end.
    """

    rate: Fraction
    by: str
    seconds: Fraction | None


def rate_periods(layers: Sequence[LimitLayer], start: str = "full") -> tuple[RatePeriod, ...]:
    """Return the rates over time for a program that always wants more.

    A layer's bucket drains by the use above its base. `start` is how full the buckets are at first.
    Empty without layers, which means no limit.
    """
    left: dict[int, Fraction | None] = {
        number: None if layer.credits is None else layer.credits * FULLNESS[start]
        for number, layer in enumerate(layers)
        if layer.bursts
    }
    periods: list[RatePeriod] = []
    while layers:
        rates = [
            layer.rate(left.get(number, Fraction(0)) != 0) for number, layer in enumerate(layers)
        ]
        rate = min(rates)
        drains = {
            n: rate - layers[n].base
            for n, credit in left.items()
            if credit and rate > layers[n].base
        }
        seconds = min(
            ((left[n] or Fraction(0)) / drain for n, drain in drains.items()), default=None
        )
        _append(periods, RatePeriod(rate, layers[rates.index(rate)].by, seconds))
        if seconds is None:
            return tuple(periods)
        for number, drain in drains.items():
            left[number] = (left[number] or Fraction(0)) - drain * seconds
    return ()


def _append(periods: list[RatePeriod], period: RatePeriod) -> None:
    """Append a period, merged with the last one if both have the same rate."""
    if periods and periods[-1].rate == period.rate:
        before = periods.pop()
        total = (
            None
            if before.seconds is None or period.seconds is None
            else before.seconds + period.seconds
        )
        period = RatePeriod(period.rate, period.by, total)
    periods.append(period)


@dataclass(frozen=True)
class VolumeLimits:
    """The layers of each quantity; no layer is no limit."""

    read_iops: tuple[LimitLayer, ...] = ()
    write_iops: tuple[LimitLayer, ...] = ()
    read_bandwidth: tuple[LimitLayer, ...] = ()
    write_bandwidth: tuple[LimitLayer, ...] = ()

    def scaled(self, factor: Fraction) -> VolumeLimits:
        """Return all layers at another speed."""
        return VolumeLimits(
            *(tuple(layer.scaled(factor) for layer in layers) for layers in vars(self).values())
        )


def reachable(bandwidth: Fraction, iops: Fraction, io_size_bytes: int | None) -> Fraction:
    """Return the bandwidth that the IOPS allow if the provider counts larger I/Os as several."""
    return bandwidth if io_size_bytes is None else min(bandwidth, iops * io_size_bytes)
