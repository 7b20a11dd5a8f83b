"""Change points of a series: the positions from which on it has another level.

Segments have the least sum of squares plus a penalty for each change (B. Jackson et al., "An
Algorithm for Optimal Partitioning of Data on an Interval", IEEE Signal Processing Letters 12,
2005). The tests compare them with those of the library ruptures. The noise is estimated from the
differences of neighbours, which a change of level hardly affects.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

FEWEST_POINTS = 4
"""Shorter series have no segment of two points beside another."""
LEAST_NOISE = 1e-3
"""Noise that is assumed at least, as a share: smaller changes are of no interest."""
_SHORTEST = 2
"""Points that a segment has at least."""
_MAD_TO_SIGMA = 1.4826
_PENALTY = 4.0
"""Cost of a change point, times the logarithm of the number of points.

Two or three follow from the information criterion of Schwarz, if the noise is known. It is
estimated here, from few points, so that more is needed to keep false alarms rare.
"""


def change_points(values: Sequence[float]) -> list[int]:
    """Return the indices at which a new level begins, ascending; none for short series.

    Levels are compared by their ratio. A series with a value that is not positive is compared by
    differences, in units of its largest value.
    """
    if len(values) < FEWEST_POINTS:
        return []
    scaled = _comparable(values)
    noise = max(_noise(scaled), LEAST_NOISE)
    return _partition([value / noise for value in scaled], _PENALTY * math.log(len(values)))


def _partition(signal: Sequence[float], penalty: float) -> list[int]:
    """Return the starts of all segments but the first, of the division with the least cost.

    `best[end]` is the least cost of the points before `end`, `start[end]` the start of their last
    segment.
    """
    middle = statistics.fmean(signal)
    sums = [0.0, *itertools.accumulate(value - middle for value in signal)]
    squares = [0.0, *itertools.accumulate((value - middle) ** 2 for value in signal)]

    def cost(begin: int, end: int) -> float:
        return squares[end] - squares[begin] - (sums[end] - sums[begin]) ** 2 / (end - begin)

    best, start = [0.0] + [math.inf] * len(signal), [0] * (len(signal) + 1)
    for end in range(_SHORTEST, len(signal) + 1):
        best[end], start[end] = min(
            (best[begin] + cost(begin, end) + penalty, begin)
            for begin in range(end - _SHORTEST + 1)
        )
    found, end = [], len(signal)
    while start[end]:
        found.append(end := start[end])
    return found[::-1]


def _comparable(values: Sequence[float]) -> list[float]:
    if min(values) > 0:
        return [math.log(value) for value in values]
    largest = max(abs(value) for value in values) or 1.0
    return [value / largest for value in values]


def _noise(values: Sequence[float]) -> float:
    """Return the standard deviation of independent values around a level that changes rarely."""
    steps = [after - before for before, after in itertools.pairwise(values)]
    middle = statistics.median(steps)
    deviation = statistics.median(abs(step - middle) for step in steps)
    return _MAD_TO_SIGMA * deviation / math.sqrt(2)
