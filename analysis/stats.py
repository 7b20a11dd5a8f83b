"""Medians and their intervals; few enough assumptions for a handful of skewed, slow trials.

Sources: H. A. David and H. N. Nagaraja, "Order Statistics", 3rd ed. (2003), section 7.1 (the exact interval of a
median); B. Efron, "Better Bootstrap Confidence Intervals", JASA 82 (1987) (BCa); T. Kalibera and R. Jones, "Rigorous
Benchmarking in Reasonable Time" (2013) (say how large a difference is, with its interval, not whether there is one).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
FEWEST = 6
"""With five values even lowest to highest covers the median only with 94 %, so that no 95 % interval exists."""
SEED = 20240727
RESAMPLES = 9999


@dataclass(frozen=True)
class Summary:
    """A median (or a ratio of two) with `low` and `high`; `kind` says what these are: `range` or `95 %`."""

    n: int
    middle: float
    low: float
    high: float
    kind: str


def summarise(values: Sequence[float]) -> Summary:
    """The median; with at least six values its exact 95 % interval, below that the range. Raises ValueError on none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    middle, n = statistics.median(ordered), len(ordered)
    if n < FEWEST:
        return Summary(n, middle, ordered[0], ordered[-1], "range")
    k = _rank(n)
    return Summary(n, middle, ordered[k], ordered[-1 - k], "95 %")


def _rank(n: int) -> int:
    """How many values to drop at each end so that what remains covers the median with 95 % (David and Nagaraja)."""
    tail, k = 0.5**n, 0
    while True:
        following = tail + math.comb(n, k + 1) * 0.5**n
        if 2 * following > 1 - CONFIDENCE:
            return k
        tail, k = following, k + 1


def ratio(over: Sequence[float], under: Sequence[float]) -> Summary:
    """Median of `over` by median of `under`: BCa bootstrap interval from six values a side, below that the extremes.

    Something by nothing is infinite, nothing by nothing is 1: two sides that are the same.
    """
    if not over or not under:
        raise ValueError("no values")
    middle = _quotient(statistics.median(over), statistics.median(under))
    n = min(len(over), len(under))
    if n < FEWEST or not min(under):
        return Summary(n, middle, _quotient(min(over), max(under)), _quotient(max(over), min(under)), "range")
    low, high = _bootstrap(over, under)
    return Summary(n, middle, low, high, "95 %")


def ratio_of_ratios(*sides: Sequence[float]) -> Summary:
    """The ratio of the first two sides' medians by that of the last two, with its interval as `ratio` has it."""
    if len(sides) != 4 or not all(sides):
        raise ValueError("no values")
    a, b, c, d = sides
    middle = _quotient(ratio(a, b).middle, ratio(c, d).middle)
    n = min(map(len, sides))
    if n < FEWEST or not (min(b) and min(c) and min(d)):
        first, second = ratio(a, b), ratio(c, d)
        return Summary(n, middle, _quotient(first.low, second.high), _quotient(first.high, second.low), "range")
    low, high = _bootstrap(a, b, c, d)
    return Summary(n, middle, low, high, "95 %")


def _quotient(over: float, under: float) -> float:
    if not under:
        return math.inf if over else 1.0
    return over / under


def _bootstrap(*sides: Sequence[float]) -> tuple[float, float]:
    """Of a ratio of two sides' medians, or of a ratio of two such ratios.

    BCa is undefined for values that do not vary; the percentile interval is then the point it must be.
    """
    import numpy as np
    from scipy import stats

    def ratio_of_medians(*drawn: np.ndarray, axis: int) -> np.ndarray:
        medians = [np.median(side, axis=axis) for side in drawn]
        quotients = [over / under for over, under in zip(medians[::2], medians[1::2], strict=True)]
        quotient: np.ndarray = quotients[0] / quotients[1] if len(quotients) > 1 else quotients[0]
        return quotient

    varies = all(len({*side}) > 1 for side in sides)
    interval = stats.bootstrap(
        tuple(map(np.asarray, sides)), ratio_of_medians, vectorized=True, confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES, method="BCa" if varies else "percentile", rng=np.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    return float(interval.low), float(interval.high)
