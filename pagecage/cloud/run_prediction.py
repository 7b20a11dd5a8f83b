"""The time that a measured trial would take on a volume, as a range with the limit that binds.

What the run and the catalogue leave open widens the range. Its lower end takes the fewest
operations that the provider may count and the least latency, its upper end the most. Both ends add
the errors that predictions of stored runs had (docs/CLOUD.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagecage.cloud.catalogue import Provider, VolumeType
from pagecage.cloud.demand_walk import (
    Assumptions,
    Cause,
    ErrorFactors,
    WalkedTime,
    WindowNeed,
    walk,
    window_needs,
)
from pagecage.cloud.io_meters import LIMITS, io_meters
from pagecage.cloud.measured_latency import distributions
from pagecage.cloud.profile import LimitProfile
from pagecage.model.cage import IoAccounting
from pagecage.model.latency_quantiles import latency_at_size, mean_us_at_size
from pagecage.verdicts.io_demand import IoDemand

EXPECTED = ErrorFactors(serial=0.25)
LOWEST = ErrorFactors(held=0.90, disk=0.80, free=0.75, capped=0.25)
HIGHEST = ErrorFactors(held=1.10, disk=1.20, free=1.30, capped=1.25, serial=0.75)
"""Factors of the expected time and of the ends of the range, which cover COVERED of the stored
trials.

The time without limits is too long in windows that a cap held: a reader that is woken for each
request computes longer.
"""
COVERED = 0.95
_HIGH_SHARE = 0.95
"""The percentile that bounds a measured latency: the average of a run is not in the tail."""


@dataclass(frozen=True)
class LatencyBounds:
    """The least and the greatest time of a read and of a write at a volume, in seconds.

    `measured` are the means that users measured; None where there is none.
    """

    least: tuple[float, float]
    greatest: tuple[float, float]
    measured: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True)
class VolumePrediction:
    """The predicted time, its range, the cause of most of it, and that cause's share.

    `held_share` is the share of the time that is due to limits. `drained` has the seconds after
    which the credits of a limit are used up.
    """

    seconds: float
    low: float
    high: float
    cause: Cause
    share: float
    held_share: float
    drained: Mapping[Cause, float]


@dataclass(frozen=True)
class _Outlook:
    """The needs of a demand under one set of assumptions."""

    needs: tuple[WindowNeed, ...]
    combined: bool

    def walk(self, profile: LimitProfile) -> WalkedTime:
        meters = io_meters(profile, combined=self.combined)
        return walk(self.needs, meters, profile.name)


class VolumeOutlook:
    """The times of one trial on volumes of one type, which count and answer alike.

    The needs of the trial's windows are computed once, because a search compares many volumes.
    """

    def __init__(
        self, demand: IoDemand, rules: IoAccounting | None, latency: LatencyBounds | None
    ) -> None:
        known = rules or IoAccounting()

        def outlook(given: Assumptions) -> _Outlook:
            return _Outlook(window_needs(demand, known, given), given.combined)

        least = latency.least if latency else None
        greatest = latency.greatest if latency else None
        usual = _expected_latency(demand, latency)
        shared = known.combined is not False
        self._low = outlook(Assumptions("fewest", known.combined is True, least, errors=LOWEST))
        self._expected = outlook(Assumptions("expected", shared, usual, errors=EXPECTED))
        self._high = outlook(Assumptions("most", shared, greatest, True, HIGHEST))

    def seconds(self, profile: LimitProfile) -> float:
        """Return the expected time on a volume."""
        return self._expected.walk(profile).seconds

    def high(self, profile: LimitProfile) -> float:
        """Return the upper end of the range on a volume."""
        return max(self._high.walk(profile).seconds, self.seconds(profile))

    def predict(self, profile: LimitProfile) -> VolumePrediction:
        """Return the prediction for a volume."""
        expected = self._expected.walk(profile)
        parts, whole = expected.parts, expected.seconds or 1.0
        cause = max(parts, key=lambda one: parts[one])
        held = sum(part for one, part in parts.items() if one.limit in LIMITS)
        return VolumePrediction(
            seconds=expected.seconds,
            low=min(self._low.walk(profile).seconds, expected.seconds),
            high=max(self._high.walk(profile).seconds, expected.seconds),
            cause=cause,
            share=parts[cause] / whole,
            held_share=held / whole,
            drained=expected.drained,
        )


def latency_bounds(
    kind: VolumeType, asked_us: int | None, greatest_us: int, request_bytes: float
) -> LatencyBounds:
    """Return the bounds of a volume's latency for requests of a size.

    They are the latency asked for; or the least that users measured, and their 95th percentile; or
    what the provider states. Without a stated least it is zero, without a stated greatest
    `greatest_us`.
    """
    if asked_us is not None:
        return LatencyBounds((asked_us / 1e6,) * 2, (asked_us / 1e6,) * 2)
    read, write = (
        _direction_bounds(kind, direction, greatest_us, request_bytes)
        for direction in ("read", "write")
    )
    return LatencyBounds((read[0], write[0]), (read[1], write[1]), (read[2], write[2]))


def _direction_bounds(
    kind: VolumeType, direction: str, greatest_us: int, request_bytes: float
) -> tuple[float, float, float | None]:
    """Return the least, the greatest and the measured mean latency of one direction in seconds."""
    if known := distributions(kind.measured, direction):
        least, greatest = (latency_at_size(known, request_bytes, p) for p in (0.0, _HIGH_SHARE))
        return least / 1e6, greatest / 1e6, mean_us_at_size(known, request_bytes) / 1e6
    least_us, below_us = (
        getattr(kind.latency, f"{direction}_{bound}_us", None) for bound in ("from", "below")
    )
    return (least_us or 0) / 1e6, (below_us or greatest_us) / 1e6, None


def greatest_published_us(providers: Sequence[Provider]) -> int:
    """Return the greatest latency that any provider of the catalogue states."""
    stated = [kind.latency for provider in providers for kind in provider.types if kind.latency]
    return max(
        (us for one in stated for us in (one.read_below_us, one.write_below_us) if us), default=0
    )


def _expected_latency(
    demand: IoDemand, latency: LatencyBounds | None
) -> tuple[float, float] | None:
    """Return the latency of a read and of a write; None if it is that of the run.

    It is the measured mean, or else the run's own as far as it is within the bounds.
    """
    own = demand.latency_seconds
    if own is None or latency is None:
        return None
    bounds = zip(latency.least, latency.greatest, latency.measured, strict=True)
    read, write = (
        min(max(own, least), greatest) if measured is None else measured
        for least, greatest, measured in bounds
    )
    return None if read == write == own else (read, write)
