"""Exact bootstrap intervals of medians, computed from the binomial distribution.

The median of a resample takes one of few values, and each value's probability has a closed form.
The interval therefore needs no random numbers: it is the limit of the interval from ever more
resamples, is the same each time, and needs no package.

Sources: B. Efron, "Bootstrap Methods: Another Look at the Jackknife", Ann. Statist. 7 (1979),
section 3 (the distribution of a resample's median); B. Efron, "Better Bootstrap Confidence
Intervals", JASA 82 (1987) (BCa).
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

_NEGLIGIBLE = 1e-10
"""Values with a smaller probability are dropped; together they change no printed digit."""
_HALVINGS = 60
_ROUNDING = 1e-12
_NORMAL = NormalDist()
Interval = tuple[float, float]


@dataclass(frozen=True)
class MedianDistribution:
    """The distribution of a resample's median: values, probabilities and their running sum."""

    values: tuple[float, ...]
    weights: tuple[float, ...]
    cumulative: tuple[float, ...]

    def below(self, value: float, *, inclusive: bool) -> float:
        """Return the probability of a median below `value`, or of at most `value` if inclusive."""
        place = (bisect_right if inclusive else bisect_left)(self.values, value)
        return self.cumulative[place - 1] if place else 0.0


def median_distribution(values: Sequence[float]) -> MedianDistribution:
    """Return the distribution of the median of a resample.

    A resample has as many values as the sample, drawn with replacement. The k-th smallest draw is
    at most x(i) if at least k of the n draws are: a binomial tail with probability i / n. Raises
    ValueError if there are no values.
    """
    if not values:
        raise ValueError("no values")
    ordered, n = sorted(values), len(values)
    pairs = _odd_medians(ordered, n) if n % 2 else _even_medians(ordered, n)
    total: dict[float, float] = {}
    for value, weight in pairs:
        if weight > _NEGLIGIBLE:
            total[value] = total.get(value, 0.0) + weight
    known = sorted(total)
    return MedianDistribution(
        tuple(known),
        tuple(total[v] for v in known),
        tuple(itertools.accumulate(total[v] for v in known)),
    )


def _odd_medians(ordered: Sequence[float], n: int) -> list[tuple[float, float]]:
    at_most = [_binomial_tail(n, n // 2 + 1, i / n) for i in range(n + 1)]
    return [(value, at_most[i + 1] - at_most[i]) for i, value in enumerate(ordered)]


def _binomial_tail(n: int, least: int, chance: float) -> float:
    return math.fsum(
        math.comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(least, n + 1)
    )


def _even_medians(ordered: Sequence[float], n: int) -> list[tuple[float, float]]:
    """Return value and probability pairs for an even n, where the median is a mean of two draws.

    Half of the draws are at most the lower value, and half are at least the upper one.
    """
    half, found = n // 2, []
    ways = math.comb(n, half)
    up = [(i / n) ** half for i in range(n + 1)]
    rises = [up[i + 1] - up[i] for i in range(n)]
    at_most = [_binomial_tail(n, half, i / n) for i in range(n + 1)]
    for i in range(n):
        apart = [ways * rises[i] * rises[n - 1 - j] for j in range(i + 1, n)]
        found.append((ordered[i], max(0.0, at_most[i + 1] - at_most[i] - math.fsum(apart))))
        found += [
            ((ordered[i] + ordered[j]) / 2, w)
            for j, w in enumerate(apart, start=i + 1)
            if w > _NEGLIGIBLE
        ]
    return found


def median_interval(values: Sequence[float], confidence: float) -> Interval:
    """Return the BCa interval of a median."""
    distribution = median_distribution(values)
    return _bca(
        distribution.below,
        median(values),
        [_jackknife_medians(values)],
        (distribution.values[0], distribution.values[-1]),
        confidence,
    )


def ratio_interval(
    numerator: Sequence[float], denominator: Sequence[float], confidence: float
) -> Interval:
    """Return the BCa interval of a ratio of two medians; the denominator must be positive."""
    top, bottom = median_distribution(numerator), median_distribution(denominator)

    def below(value: float, *, inclusive: bool) -> float:
        pairs = zip(bottom.values, bottom.weights, strict=True)
        return math.fsum(
            weight * top.below(value * one, inclusive=inclusive) for one, weight in pairs
        )

    middle = median(numerator) / median(denominator)
    ends = (top.values[0] / bottom.values[-1], top.values[-1] / bottom.values[0])
    jackknife = [
        [one / median(denominator) for one in _jackknife_medians(numerator)],
        [median(numerator) / one for one in _jackknife_medians(denominator)],
    ]
    return _bca(below, middle, jackknife, ends, confidence)


def _jackknife_medians(values: Sequence[float]) -> list[float]:
    """Return the jackknife medians: the median without each value in turn."""
    ordered = sorted(values)
    return [median(ordered[:i] + ordered[i + 1 :]) for i in range(len(ordered))]


def _bca(
    below: Callable[..., float],
    middle: float,
    jackknife: Sequence[Sequence[float]],
    ends: Interval,
    confidence: float,
) -> Interval:
    """Return BCa percentiles, which correct for bias and skew.

    Bias is the share of resamples below the estimate; skew comes from the jackknife.
    """
    share = (below(middle, inclusive=False) + below(middle, inclusive=True)) / 2
    if ends[0] == ends[1] or not 0 < share < 1:
        return ends
    bias, skew = _NORMAL.inv_cdf(share), _acceleration(jackknife)
    tails = (bias + _NORMAL.inv_cdf(tail) for tail in ((1 - confidence) / 2, (1 + confidence) / 2))
    low, high = (_NORMAL.cdf(bias + z / (1 - skew * z)) for z in tails)
    return _quantile(below, low, ends), _quantile(below, high, ends)


def _acceleration(jackknife: Sequence[Sequence[float]]) -> float:
    cubes = squares = 0.0
    for side in jackknife:
        n, mean = len(side), math.fsum(side) / len(side)
        least = _ROUNDING * max(
            map(abs, side)
        )  # equal values differ by rounding errors only, and have no skew
        off = [(n - 1) * (mean - one) if abs(mean - one) > least else 0.0 for one in side]
        cubes += math.fsum(u**3 for u in off) / n**3
        squares += math.fsum(u**2 for u in off) / n**2
    return cubes / (6 * squares**1.5) if squares else 0.0


def _quantile(below: Callable[..., float], share: float, ends: Interval) -> float:
    """Return, by bisection, the least value that `share` of the resamples do not exceed."""
    low, high = ends
    if below(low, inclusive=True) >= share:
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if below(middle, inclusive=True) >= share else (middle, high)
    return high
