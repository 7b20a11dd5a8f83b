"""From which value on raising a limit no longer pays: the knee of a curve of times over limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GAIN = 0.10
"""A limit pays as long as the best time above it is shorter by more than this share."""


@dataclass(frozen=True)
class Knee:
    """`value` is the least limit from which more does not pay; None where there is none. `because` says why."""

    value: float | None
    because: str


def find_knee(points: Sequence[tuple[float, float]]) -> Knee:
    """The knee of (limit, seconds) points. A larger limit that measured slower is noise, and does not count as gain."""
    ordered = sorted(points)
    if len(ordered) < 2:
        return Knee(None, "fewer than two values have a time")
    pays = [
        seconds * (1 - GAIN) > min(time for _, time in ordered[place:]) for place, (_, seconds) in enumerate(ordered)
    ]
    place = pays.index(False)
    limit = f"{ordered[place][0]:,.0f}"
    if place == len(ordered) - 1:
        return Knee(None, f"the time still falls at {limit}, the largest value")
    if place == 0:
        return Knee(None, f"the time is the same from {limit} on, the least value: this limit does not bind")
    return Knee(ordered[place][0], f"above {limit} the time falls by no more than {GAIN:.0%}")
