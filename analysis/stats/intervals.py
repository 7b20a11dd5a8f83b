"""Medians and their intervals, for small samples of skewed times.

Sources: H. A. David and H. N. Nagaraja, "Order Statistics", 3rd ed. (2003), section 7.1 (the exact
interval of a median); B. Efron, "Better Bootstrap Confidence Intervals", JASA 82 (1987) (BCa); T.
Kalibera and R. Jones, "Rigorous Benchmarking in Reasonable Time" (2013) (report the size of a
difference with its interval instead of a significance test; resample whole blocks first, then the
trials within them).
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
MAX_EXACT_VALUES = 100
"""Above this many values, resampling is faster than the exact distribution of the median."""
Block = Mapping[str, Sequence[float]]
"""The figures of one block's trials, by treatment."""


@dataclass(frozen=True)
class MedianSummary:
    """A median, or a ratio of medians, with an interval from `low` to `high`.

    `kind` names the interval: `range` or `95 %`.
    """

    n: int
    middle: float
    low: float
    high: float
    kind: str


def summarise(values: Sequence[float]) -> MedianSummary:
    """Return the median with its exact 95 % interval, or with the range below six values.

    Raises ValueError if there are no values.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    middle, n = statistics.median(ordered), len(ordered)
    if n < FEWEST:
        return MedianSummary(n, middle, ordered[0], ordered[-1], "range")
    k = ranks_left_out(n)
    return MedianSummary(n, middle, ordered[k], ordered[-1 - k], "95 %")


def bca_interval(values: Sequence[float]) -> Interval | None:
    """Return the BCa bootstrap interval of a median; None below six values.

    It is narrower than the exact interval and covers less than 95 %: 87 % for seven values, 92 to
    96 % from eight values on (2000 draws from a log-normal distribution). It is therefore reported
    beside the exact interval, never instead of it.
    """
    if len(values) < FEWEST:
        return None
    return (
        median_interval(values, CONFIDENCE)
        if len(values) <= MAX_EXACT_VALUES
        else _resampled_interval(values)
    )


def median_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> MedianSummary:
    """Return the ratio of two medians with its interval.

    The interval is the BCa bootstrap interval from six values on each side, and the range of the
    ratios below that. A ratio to zero is infinite; zero by zero is 1, because both sides are equal.
    Raises ValueError if a side has no values.
    """
    if not numerator or not denominator:
        raise ValueError("no values")
    middle = _quotient(statistics.median(numerator), statistics.median(denominator))
    n = min(len(numerator), len(denominator))
    if n < FEWEST or not min(denominator):
        return MedianSummary(
            n,
            middle,
            _quotient(min(numerator), max(denominator)),
            _quotient(max(numerator), min(denominator)),
            "range",
        )
    is_exact = max(len(numerator), len(denominator)) <= MAX_EXACT_VALUES
    low, high = (
        ratio_interval(numerator, denominator, CONFIDENCE)
        if is_exact
        else _resampled_interval(numerator, denominator)
    )
    return MedianSummary(n, middle, low, high, "95 %")


def ratio_of_median_ratios(*sides: Sequence[float]) -> MedianSummary:
    """Return the ratio of the first two medians divided by the ratio of the last two.

    The interval is computed as in `median_ratio`.
    """
    if len(sides) != 4 or not all(sides):
        raise ValueError("no values")
    a, b, c, d = sides
    middle = _quotient(median_ratio(a, b).middle, median_ratio(c, d).middle)
    n = min(map(len, sides))
    if n < FEWEST or not (min(b) and min(c) and min(d)):
        first, second = median_ratio(a, b), median_ratio(c, d)
        return MedianSummary(
            n, middle, _quotient(first.low, second.high), _quotient(first.high, second.low), "range"
        )
    low, high = _resampled_interval(a, b, c, d)
    return MedianSummary(n, middle, low, high, "95 %")


def _quotient(numerator: float, denominator: float) -> float:
    if not denominator:
        return math.inf if numerator else 1.0
    return numerator / denominator


def _resampled_interval(*sides: Sequence[float]) -> Interval:
    """Return a BCa interval by resampling: of a median, a ratio of two, or a ratio of such ratios.

    Values that do not vary are their own interval.
    """
    import numpy as np

    from analysis.stats.bca import Resampling, resampled_interval

    def statistic(*drawn: Any, axis: int) -> Any:
        medians = [np.median(side, axis=axis) for side in drawn]
        while len(medians) > 1:
            medians = [
                numerator / denominator
                for numerator, denominator in zip(medians[::2], medians[1::2], strict=True)
            ]
        return medians[0]

    return resampled_interval(sides, statistic, Resampling(CONFIDENCE, RESAMPLES, SEED))


def pooled_median(blocks: Sequence[Sequence[float]]) -> MedianSummary:
    """Return the median of all values of several blocks, none of which is empty.

    The interval is a hierarchical percentile bootstrap: blocks are resampled, then the values
    within them. Below six blocks it is the range of the blocks' medians, because so few blocks
    cannot represent others. Raises ValueError if there are no blocks.
    """
    middles = [statistics.median(block) for block in blocks]
    if not middles:
        raise ValueError("no values")
    values = [value for block in blocks for value in block]
    middle, n = statistics.median(values), len(values)
    if len(blocks) < FEWEST:
        return MedianSummary(n, middle, min(middles), max(middles), "range of medians")
    from analysis.stats.resampling import resampled_medians

    low, high = _percentiles(resampled_medians(blocks, RESAMPLES, SEED))
    return MedianSummary(n, middle, low, high, "95 %")


def _percentiles(drawn: Sequence[float]) -> Interval:
    """Return the ends of the interval that excludes the same share on both sides."""
    low, high = (
        drawn[round(share * (len(drawn) - 1))]
        for share in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
    )
    return low, high


def overall_ratio(numerator: Sequence[Block], denominator: Sequence[Block]) -> MedianSummary | None:
    """Return the geometric mean over treatments of the ratio of medians.

    None if no treatment has figures on both sides. The interval is a hierarchical percentile
    bootstrap: whole blocks are resampled, so that trials which shared a disturbance stay together,
    then trials within each block. Below six blocks on a side it is the range of the treatments'
    ratios.
    """
    from analysis.stats.resampling import resampled_ratios

    names = [name for name in _names(numerator) if name in _names(denominator)]
    ratios = [_quotient(_median(numerator, name), _median(denominator, name)) for name in names]
    if not ratios or not all(0 < one < math.inf for one in ratios):
        return None
    n, middle = min(len(numerator), len(denominator)), statistics.geometric_mean(ratios)
    if n < FEWEST:
        return MedianSummary(n, middle, min(ratios), max(ratios), "range")
    low, high = _percentiles(resampled_ratios(numerator, denominator, names, RESAMPLES, SEED))
    return MedianSummary(n, middle, low, high, "95 %")


def _names(blocks: Sequence[Block]) -> list[str]:
    return list(dict.fromkeys(name for block in blocks for name, values in block.items() if values))


def _median(blocks: Sequence[Block], name: str) -> float:
    return statistics.median(value for block in blocks for value in block.get(name, ()))
