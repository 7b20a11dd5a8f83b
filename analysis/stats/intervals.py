"""Medians and their intervals; few enough assumptions for a handful of skewed, slow trials.

Sources: H. A. David and H. N. Nagaraja, "Order Statistics", 3rd ed. (2003), section 7.1 (the exact interval of a
median); B. Efron, "Better Bootstrap Confidence Intervals", JASA 82 (1987) (BCa); T. Kalibera and R. Jones, "Rigorous
Benchmarking in Reasonable Time" (2013) (say how large a difference is, with its interval, not whether there is one;
draw whole blocks, then what is in them).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.stats.bootstrap import Interval, median_interval, ratio_interval
from pagecage.verdicts.median_interval import CONFIDENCE, FEWEST, ranks_left_out

SEED = 20240727
RESAMPLES = 9999
MOST_RECKONED = 100
"""Of more values the law of a resample's median takes longer to reckon than resamples take to draw."""
Block = Mapping[str, Sequence[float]]
"""What one block has of each treatment: the figures of its trials."""


@dataclass(frozen=True)
class MedianSummary:
    """A median (or a ratio of two) with `low` and `high`; `kind` says what these are: `range` or `95 %`."""

    n: int
    middle: float
    low: float
    high: float
    kind: str


def summarise(values: Sequence[float]) -> MedianSummary:
    """The median; with at least six values its exact 95 % interval, below that the range. Raises ValueError on none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    middle, n = statistics.median(ordered), len(ordered)
    if n < FEWEST:
        return MedianSummary(n, middle, ordered[0], ordered[-1], "range")
    k = ranks_left_out(n)
    return MedianSummary(n, middle, ordered[k], ordered[-1 - k], "95 %")


def bca(values: Sequence[float]) -> Interval | None:
    """BCa bootstrap interval of a median; None of fewer than six values.

    It is narrower than the exact one and covers less than it says: 87 % with seven values, 92 to 96 % from eight on
    (2000 draws from a log-normal law). So it is told beside the exact interval and never instead of it.
    """
    if len(values) < FEWEST:
        return None
    return median_interval(values, CONFIDENCE) if len(values) <= MOST_RECKONED else _drawn(values)


def ratio(over: Sequence[float], under: Sequence[float]) -> MedianSummary:
    """Median of `over` by median of `under`: BCa bootstrap interval from six values a side, below that the extremes.

    Something by nothing is infinite, nothing by nothing is 1: two sides that are the same.
    """
    if not over or not under:
        raise ValueError("no values")
    middle = _quotient(statistics.median(over), statistics.median(under))
    n = min(len(over), len(under))
    if n < FEWEST or not min(under):
        return MedianSummary(n, middle, _quotient(min(over), max(under)), _quotient(max(over), min(under)), "range")
    few = max(len(over), len(under)) <= MOST_RECKONED
    low, high = ratio_interval(over, under, CONFIDENCE) if few else _drawn(over, under)
    return MedianSummary(n, middle, low, high, "95 %")


def ratio_of_ratios(*sides: Sequence[float]) -> MedianSummary:
    """The ratio of the first two sides' medians by that of the last two, with its interval as `ratio` has it."""
    if len(sides) != 4 or not all(sides):
        raise ValueError("no values")
    a, b, c, d = sides
    middle = _quotient(ratio(a, b).middle, ratio(c, d).middle)
    n = min(map(len, sides))
    if n < FEWEST or not (min(b) and min(c) and min(d)):
        first, second = ratio(a, b), ratio(c, d)
        return MedianSummary(n, middle, _quotient(first.low, second.high), _quotient(first.high, second.low), "range")
    low, high = _drawn(a, b, c, d)
    return MedianSummary(n, middle, low, high, "95 %")


def _quotient(over: float, under: float) -> float:
    if not under:
        return math.inf if over else 1.0
    return over / under


def _drawn(*sides: Sequence[float]) -> Interval:
    """BCa by resampling: of a median, of a ratio of two, or of a ratio of two such ratios.

    It is undefined for values that do not vary; the percentile interval is then the point it must be.
    """
    import numpy as np
    from scipy import stats

    def statistic(*drawn: Any, axis: int) -> Any:
        medians = [np.median(side, axis=axis) for side in drawn]
        while len(medians) > 1:
            medians = [over / under for over, under in zip(medians[::2], medians[1::2], strict=True)]
        return medians[0]

    varies = all(len({*side}) > 1 for side in sides)
    interval = stats.bootstrap(
        tuple(map(np.asarray, sides)), statistic, vectorized=True, confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES, method="BCa" if varies else "percentile", rng=np.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    return float(interval.low), float(interval.high)


def pooled(blocks: Sequence[Sequence[float]]) -> MedianSummary:
    """The median of all values of several blocks, each of which has some. Raises ValueError on none.

    Hierarchical bootstrap (percentiles): whole blocks are drawn, then what is in them. With fewer than six blocks the
    ends are the least and the greatest of their medians: so few say nothing about blocks that were not there.
    """
    middles = [statistics.median(block) for block in blocks]
    if not middles:
        raise ValueError("no values")
    values = [value for block in blocks for value in block]
    middle, n = statistics.median(values), len(values)
    if len(blocks) < FEWEST:
        return MedianSummary(n, middle, min(middles), max(middles), "range of medians")
    from analysis.stats.resampling import drawn_medians

    low, high = _percentiles(drawn_medians(blocks, RESAMPLES, SEED))
    return MedianSummary(n, middle, low, high, "95 %")


def _percentiles(drawn: Sequence[float]) -> Interval:
    """The ends of the interval that leaves as much out on either side."""
    low, high = (drawn[round(share * (len(drawn) - 1))] for share in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return low, high


def overall_ratio(over: Sequence[Block], under: Sequence[Block]) -> MedianSummary | None:
    """The geometric mean of all treatments' ratios of medians; None where no treatment has figures on both sides.

    Hierarchical bootstrap (percentiles): whole blocks are drawn, so that what disturbed a block stays together, then
    trials within each. With fewer than six blocks a side the ends are those of the treatments.
    """
    from analysis.stats.resampling import drawn_ratios

    names = [name for name in _names(over) if name in _names(under)]
    ratios = [_quotient(_median(over, name), _median(under, name)) for name in names]
    if not ratios or not all(0 < one < math.inf for one in ratios):
        return None
    n, middle = min(len(over), len(under)), statistics.geometric_mean(ratios)
    if n < FEWEST:
        return MedianSummary(n, middle, min(ratios), max(ratios), "range")
    low, high = _percentiles(drawn_ratios(over, under, names, RESAMPLES, SEED))
    return MedianSummary(n, middle, low, high, "95 %")


def _names(blocks: Sequence[Block]) -> list[str]:
    return list(dict.fromkeys(name for block in blocks for name, values in block.items() if values))


def _median(blocks: Sequence[Block], name: str) -> float:
    return statistics.median(value for block in blocks for value in block.get(name, ()))
