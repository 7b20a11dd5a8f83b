"""How fast a volume on an instance is, and for how long: the least of the two, with their bursts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

FULLNESS = {"full": Fraction(1), "half": Fraction(1, 2), "drained": Fraction(0)}


@dataclass(frozen=True)
class LimitLayer:
    """What one of them allows, in I/Os or bytes a second. `credits` of None beside a burst: it lasts for ever."""

    by: str
    base: Fraction
    burst: Fraction | None = None
    credits: Fraction | None = None

    @property
    def bursts(self) -> bool:
        """Whether it ever allows more than its base."""
        return self.burst is not None and self.burst > self.base

    def rate(self, is_full: bool) -> Fraction:
        """What it allows with credits and without."""
        return self.burst if is_full and self.burst is not None and self.bursts else self.base

    def scaled(self, factor: Fraction) -> LimitLayer:
        """The same at another speed: a bucket lasts as long as before."""
        scale = [None if value is None else value * factor for value in (self.burst, self.credits)]
        return LimitLayer(self.by, self.base * factor, *scale)


@dataclass(frozen=True)
class RatePeriod:
    """A time of one speed under full demand, and what sets it; `seconds` of None is for good."""

    rate: Fraction
    by: str
    seconds: Fraction | None


def phases(layers: Sequence[LimitLayer], start: str = "full") -> tuple[RatePeriod, ...]:
    """The speeds that a program sees which always wants more.

    Each layer's bucket drains by what is used above its base; `start` says how full they are at first. No layers is
    no limit, and no phase.
    """
    left: dict[int, Fraction | None] = {
        number: None if layer.credits is None else layer.credits * FULLNESS[start]
        for number, layer in enumerate(layers)
        if layer.bursts
    }
    found: list[RatePeriod] = []
    while layers:
        rates = [layer.rate(left.get(number, Fraction(0)) != 0) for number, layer in enumerate(layers)]
        rate = min(rates)
        drains = {n: rate - layers[n].base for n, credit in left.items() if credit and rate > layers[n].base}
        seconds = min(((left[n] or Fraction(0)) / drain for n, drain in drains.items()), default=None)
        _append(found, RatePeriod(rate, layers[rates.index(rate)].by, seconds))
        if seconds is None:
            return tuple(found)
        for number, drain in drains.items():
            left[number] = (left[number] or Fraction(0)) - drain * seconds
    return ()


def _append(found: list[RatePeriod], phase: RatePeriod) -> None:
    """Two phases of one speed are one."""
    if found and found[-1].rate == phase.rate:
        before = found.pop()
        total = None if before.seconds is None or phase.seconds is None else before.seconds + phase.seconds
        phase = RatePeriod(phase.rate, phase.by, total)
    found.append(phase)


@dataclass(frozen=True)
class VolumeLimits:
    """The layers of each quantity: none is no limit."""

    read_iops: tuple[LimitLayer, ...] = ()
    write_iops: tuple[LimitLayer, ...] = ()
    read_bandwidth: tuple[LimitLayer, ...] = ()
    write_bandwidth: tuple[LimitLayer, ...] = ()

    def scaled(self, factor: Fraction) -> VolumeLimits:
        """All of them at another speed."""
        return VolumeLimits(*(tuple(layer.scaled(factor) for layer in layers) for layers in vars(self).values()))


def reachable(bandwidth: Fraction, iops: Fraction, io_size_bytes: int | None) -> Fraction:
    """The bandwidth that the IOPS leave where the provider counts larger I/Os as several."""
    return bandwidth if io_size_bytes is None else min(bandwidth, iops * io_size_bytes)
