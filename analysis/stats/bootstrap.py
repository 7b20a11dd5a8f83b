"""The bootstrap of medians without drawing: what 9999 resamples would approach, reckoned from the binomial law.

A resample's median is one of few values, each with a probability that can be written down, so that an interval is the
same each time and needs nothing installed. Sources: B. Efron, "Bootstrap Methods: Another Look at the Jackknife", Ann.
Statist. 7 (1979), section 3 (the law of a resample's median); B. Efron, "Better Bootstrap Confidence Intervals", JASA
82 (1987) (BCa).
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

_NEGLIGIBLE = 1e-10
"""Values less likely than this are left out of the law; together they are less than any interval tells."""
_HALVINGS = 60
_ROUNDING = 1e-12
_NORMAL = NormalDist()
Interval = tuple[float, float]


@dataclass(frozen=True)
class MedianDistribution:
    """The values that a resample's median can take, in order, each one's probability, and these summed up."""

    values: tuple[float, ...]
    weights: tuple[float, ...]
    cumulative: tuple[float, ...]

    def below(self, value: float, *, inclusive: bool) -> float:
        """Probability of less than `value`, or of that at most."""
        place = (bisect_right if inclusive else bisect_left)(self.values, value)
        return self.cumulative[place - 1] if place else 0.0


def law_of_median(values: Sequence[float]) -> MedianDistribution:
    """How the median of a resample (as many values, drawn with replacement) is distributed. Raises ValueError on none.

    The k-th smallest value is at most x(i) when k or more of n draws are: a binomial tail with probability i / n.
    """
    if not values:
        raise ValueError("no values")
    ordered, n = sorted(values), len(values)
    pairs = _odd(ordered, n) if n % 2 else _even(ordered, n)
    total: dict[float, float] = {}
    for value, weight in pairs:
        if weight > _NEGLIGIBLE:
            total[value] = total.get(value, 0.0) + weight
    known = sorted(total)
    return MedianDistribution(
        tuple(known), tuple(total[v] for v in known), tuple(itertools.accumulate(total[v] for v in known))
    )


def _odd(ordered: Sequence[float], n: int) -> list[tuple[float, float]]:
    upto = [_tail(n, n // 2 + 1, i / n) for i in range(n + 1)]
    return [(value, upto[i + 1] - upto[i]) for i, value in enumerate(ordered)]


def _tail(n: int, least: int, chance: float) -> float:
    return math.fsum(math.comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(least, n + 1))


def _even(ordered: Sequence[float], n: int) -> list[tuple[float, float]]:
    """The mean of the two in the middle: half of the draws up to the one, half from the other on."""
    half, found = n // 2, []
    ways = math.comb(n, half)
    up = [(i / n) ** half for i in range(n + 1)]
    rises = [up[i + 1] - up[i] for i in range(n)]
    upto = [_tail(n, half, i / n) for i in range(n + 1)]
    for i in range(n):
        apart = [ways * rises[i] * rises[n - 1 - j] for j in range(i + 1, n)]
        found.append((ordered[i], max(0.0, upto[i + 1] - upto[i] - math.fsum(apart))))
        found += [((ordered[i] + ordered[j]) / 2, w) for j, w in enumerate(apart, start=i + 1) if w > _NEGLIGIBLE]
    return found


def median_interval(values: Sequence[float], confidence: float) -> Interval:
    """BCa interval of a median."""
    law = law_of_median(values)
    return _bca(law.below, median(values), [_left_out(values)], (law.values[0], law.values[-1]), confidence)


def ratio_interval(over: Sequence[float], under: Sequence[float], confidence: float) -> Interval:
    """BCa interval of the median of `over` by that of `under`, whose values are all above nothing."""
    top, bottom = law_of_median(over), law_of_median(under)

    def below(value: float, *, inclusive: bool) -> float:
        pairs = zip(bottom.values, bottom.weights, strict=True)
        return math.fsum(weight * top.below(value * one, inclusive=inclusive) for one, weight in pairs)

    middle = median(over) / median(under)
    ends = (top.values[0] / bottom.values[-1], top.values[-1] / bottom.values[0])
    left_out = [
        [one / median(under) for one in _left_out(over)],
        [median(over) / one for one in _left_out(under)],
    ]
    return _bca(below, middle, left_out, ends, confidence)


def _left_out(values: Sequence[float]) -> list[float]:
    """The jackknife: the median without each value in turn."""
    ordered = sorted(values)
    return [median(ordered[:i] + ordered[i + 1 :]) for i in range(len(ordered))]


def _bca(
    below: Callable[..., float], middle: float, left_out: Sequence[Sequence[float]], ends: Interval, confidence: float
) -> Interval:
    """The percentiles that correct for bias (how often a resample is below the estimate) and for skew (jackknife)."""
    share = (below(middle, inclusive=False) + below(middle, inclusive=True)) / 2
    if ends[0] == ends[1] or not 0 < share < 1:
        return ends
    bias, skew = _NORMAL.inv_cdf(share), _acceleration(left_out)
    tails = (bias + _NORMAL.inv_cdf(tail) for tail in ((1 - confidence) / 2, (1 + confidence) / 2))
    low, high = (_NORMAL.cdf(bias + z / (1 - skew * z)) for z in tails)
    return _quantile(below, low, ends), _quantile(below, high, ends)


def _acceleration(left_out: Sequence[Sequence[float]]) -> float:
    cubes = squares = 0.0
    for side in left_out:
        n, mean = len(side), math.fsum(side) / len(side)
        least = _ROUNDING * max(map(abs, side))  # what is left of equal values after rounding has no skew
        off = [(n - 1) * (mean - one) if abs(mean - one) > least else 0.0 for one in side]
        cubes += math.fsum(u**3 for u in off) / n**3
        squares += math.fsum(u**2 for u in off) / n**2
    return cubes / (6 * squares**1.5) if squares else 0.0


def _quantile(below: Callable[..., float], share: float, ends: Interval) -> float:
    """The least value that `share` of the resamples do not exceed, by halving."""
    low, high = ends
    if below(low, inclusive=True) >= share:
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if below(middle, inclusive=True) >= share else (middle, high)
    return high
