"""Ratios of samples with the interval of a rank test: of all pairs, or of pairs within blocks.

A rank test asks how often a value of one sample exceeds one of the other, so that neither the
shape of the noise nor an outlier changes its rate of false alarms. Its interval holds the ratios
that it does not reject: the ordered ratios, without as many at each end as the test allows.

Sources: J. L. Hodges and E. L. Lehmann, "Estimates of Location Based on Rank Tests", Ann. Math.
Statist. 34 (1963); M. Hollander, D. A. Wolfe and E. Chicken, "Nonparametric Statistical Methods",
3rd ed. (2014), sections 3.1 to 3.3 and 4.1 to 4.3. The tests compare the distributions with
scipy's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

from pagecage.verdicts.median_interval import CONFIDENCE

FEWEST = 5
"""With five values per side, a rank test of about 5 % is possible: 252 orders, or 32 signs."""
_MOST_VALUES = 400
"""Of larger samples as many quantiles are compared, which moves no end by a rank of its own."""
_MOST_EXACT = 2_500
"""Pairs above which the normal approximation of the tests' distributions is exact to a rank."""
_ROUNDING = 1e-12


@dataclass(frozen=True)
class RatioInterval:
    """The median of ratios, and the interval that covers it with this confidence."""

    middle: float
    low: float
    high: float
    confidence: float


def ratio_of_samples(over: Sequence[float], under: Sequence[float]) -> RatioInterval:
    """Return the ratio of two independent samples, by the test of Mann and Whitney.

    The middle is the median of the ratios of all pairs (Hodges and Lehmann).
    """
    ratios = sorted(quotient(x, y) for x in _thinned(over) for y in _thinned(under))
    left_out, confidence = rank_sum_limits(len(over), len(under))
    return _interval(ratios, left_out / (len(over) * len(under)), confidence)


def ratio_of_pairs(ratios: Sequence[float]) -> RatioInterval:
    """Return the ratio of which each block gives one, by the signed-rank test of Wilcoxon.

    The middle is the median of the geometric means of every two of them, each one's own included.
    """
    means = sorted(
        _between(*pair) for pair in itertools.combinations_with_replacement(_thinned(ratios), 2)
    )
    left_out, confidence = signed_rank_limits(len(ratios))
    return _interval(means, left_out / (len(ratios) * (len(ratios) + 1) / 2), confidence)


def quotient(over: float, under: float) -> float:
    """Return the ratio of two figures: 1 if they are equal, else infinite to zero."""
    if over == under:
        return 1.0
    return over / under if under else math.inf


def _interval(ordered: Sequence[float], share: float, confidence: float) -> RatioInterval:
    left_out, half = round(share * len(ordered)), (len(ordered) - 1) // 2
    middle = _between(ordered[half], ordered[len(ordered) // 2])
    return RatioInterval(middle, ordered[left_out], ordered[-1 - left_out], confidence)


def _between(one: float, other: float) -> float:
    """Return the geometric mean of two ratios; 1 of zero and infinity."""
    if one == other:
        return one
    mean = math.sqrt(one) * math.sqrt(other)
    return 1.0 if math.isnan(mean) or abs(mean - 1) < _ROUNDING else mean


def _thinned(values: Sequence[float]) -> Sequence[float]:
    """Return the values, or quantiles of them at equal distances if there are too many."""
    n = len(values)
    if n <= _MOST_VALUES:
        return values
    ordered = sorted(values)
    return [ordered[(2 * i + 1) * n // (2 * _MOST_VALUES)] for i in range(_MOST_VALUES)]


@cache
def rank_sum_limits(m: int, n: int) -> tuple[int, float]:
    """Return how many of the m * n ratios to leave out at each end, and the confidence.

    The number of pairs in which the first sample is larger has the coefficients of a Gaussian
    binomial as its frequencies.
    """
    most = m * n // 2
    if m * n > _MOST_EXACT:
        return _approximate(m * n / 2, math.sqrt(m * n * (m + n + 1) / 12))
    ways = [1] + [0] * most
    for i in range(1, min(m, n) + 1):
        for at in range(most, max(m, n) + i - 1, -1):
            ways[at] -= ways[at - max(m, n) - i]
        for at in range(i, most + 1):
            ways[at] += ways[at - i]
    return _nearest(ways, math.comb(m + n, m))


@cache
def signed_rank_limits(n: int) -> tuple[int, float]:
    """Return how many of the n (n + 1) / 2 means to leave out at each end, and the confidence.

    The sum of the ranks of the ratios above 1 is that of any subset of 1 to n.
    """
    pairs = n * (n + 1) // 2
    if pairs > _MOST_EXACT:
        return _approximate(pairs / 2, math.sqrt(pairs * (2 * n + 1) / 12))
    ways = [1] + [0] * (pairs // 2)
    for i in range(1, n + 1):
        for at in range(pairs // 2, i - 1, -1):
            ways[at] += ways[at - i]
    return _nearest(ways, 2**n)


def _nearest(ways: Sequence[int], orders: int) -> tuple[int, float]:
    """Return the number left out whose confidence is the nearest, and that confidence."""
    tails = [2 * below / orders for below in itertools.accumulate(ways)]
    left_out = min(range(len(tails)), key=lambda at: abs(tails[at] - (1 - CONFIDENCE)))
    return left_out, 1 - tails[left_out]


def _approximate(mean: float, deviation: float) -> tuple[int, float]:
    tail = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    return round(mean - tail * deviation - 0.5), CONFIDENCE
