"""Medians and ratios with their intervals, for small samples of skewed times.

Sources: H. A. David and H. N. Nagaraja, "Order Statistics", 3rd ed. (2003), section 7.1 (the exact
interval of a median); T. Kalibera and R. Jones, "Rigorous Benchmarking in Reasonable Time" (2013)
(report the size of a difference with its interval instead of a significance test).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.stats.rank_tests import (
    FEWEST,
    RatioInterval,
    quotient,
    ratio_of_pairs,
    ratio_of_samples,
)
from pagecage.verdicts.median_interval import FEWEST as FEWEST_OF_MEDIAN
from pagecage.verdicts.median_interval import ranks_left_out

Block = Mapping[str, Sequence[float]]
"""The figures of one block's trials, by treatment."""
RANGE = "range"


@dataclass(frozen=True)
class MedianSummary:
    """A median, or a ratio, with an interval from `low` to `high`.

    `kind` names the interval: `range`, or the share of cases in which it covers its figure, such as
    `95 %`.
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
    if n < FEWEST_OF_MEDIAN:
        return MedianSummary(n, middle, ordered[0], ordered[-1], RANGE)
    k = ranks_left_out(n)
    return MedianSummary(n, middle, ordered[k], ordered[-1 - k], "95 %")


def median_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> MedianSummary:
    """Return the ratio of two independent samples with its interval.

    From five values on each side it is the median of the ratios of all pairs, with the interval of
    a rank test. Below that it is the ratio of the medians, with the range of all ratios. A ratio to
    zero is infinite; zero by zero is 1, because both sides are equal. Raises ValueError if a side
    has no values.
    """
    if not numerator or not denominator:
        raise ValueError("no values")
    if min(len(numerator), len(denominator)) < FEWEST:
        return _range_of_ratios(numerator, denominator)
    found = ratio_of_samples(numerator, denominator)
    return _summary(min(len(numerator), len(denominator)), found)


def blocked_ratio(
    sides: Sequence[Sequence[float]], rows: Sequence[Sequence[float]]
) -> MedianSummary:
    """Return the ratio of two sides of one run; of four, the first ratio divided by the second.

    A row has a figure of each side from one block, so that a drift of the host changes none of
    their ratios. From five rows on, the ratio is that of the rows, with the interval of a
    signed-rank test. With fewer, two sides are compared as independent samples, and four by their
    ranges. Raises ValueError if a side has no values.
    """
    if len(rows) >= FEWEST:
        ratios = [
            quotient(quotient(*row[:2]), quotient(*row[2:]) if row[2:] else 1.0) for row in rows
        ]
        return _summary(len(rows), ratio_of_pairs(ratios))
    if not all(sides):
        raise ValueError("no values")
    if len(sides) == 2:
        return median_ratio(*sides)
    one, other = _range_of_ratios(*sides[:2]), _range_of_ratios(*sides[2:])
    return MedianSummary(
        min(one.n, other.n),
        quotient(one.middle, other.middle),
        quotient(one.low, other.high),
        quotient(one.high, other.low),
        RANGE,
    )


def _range_of_ratios(numerator: Sequence[float], denominator: Sequence[float]) -> MedianSummary:
    return MedianSummary(
        min(len(numerator), len(denominator)),
        quotient(statistics.median(numerator), statistics.median(denominator)),
        quotient(min(numerator), max(denominator)),
        quotient(max(numerator), min(denominator)),
        RANGE,
    )


def _summary(n: int, found: RatioInterval) -> MedianSummary:
    return MedianSummary(n, found.middle, found.low, found.high, f"{100 * found.confidence:.0f} %")


def median_of_hosts(hosts: Sequence[Sequence[float]]) -> MedianSummary:
    """Return the median of the hosts' medians; `n` counts the values of all of them.

    Below six hosts the interval is the range of their medians, because so few cannot represent
    others. Raises ValueError if there are no hosts.
    """
    found = summarise([statistics.median(values) for values in hosts])
    kind = f"{RANGE} of medians" if found.kind == RANGE else found.kind
    return replace(found, n=sum(map(len, hosts)), kind=kind)


def overall_ratio(numerator: Sequence[Block], denominator: Sequence[Block]) -> MedianSummary | None:
    """Return the ratio over all treatments.

    None if no treatment has figures on both sides. Each block has one figure: the geometric mean of
    its values, each divided by its treatment's median. What disturbs a block therefore counts once.
    Blocks are compared as the values of independent samples. Below five blocks on a side it is the
    geometric mean of the treatments' ratios, with their range.
    """
    names = [name for name in _names(numerator) if name in _names(denominator)]
    middles = {name: _median(denominator, name) for name in names}
    ratios = [quotient(_median(numerator, name), middle) for name, middle in middles.items()]
    if not ratios or not all(0 < ratio < math.inf for ratio in ratios):
        return None
    sides = [_block_figures(side, middles) for side in (numerator, denominator)]
    n = min(map(len, sides))
    if n < FEWEST:
        return MedianSummary(n, statistics.geometric_mean(ratios), min(ratios), max(ratios), RANGE)
    return median_ratio(*sides)


def _block_figures(blocks: Sequence[Block], middles: Mapping[str, float]) -> list[float]:
    relative = (
        [
            value / middles[name]
            for name, values in block.items()
            for value in values
            if name in middles and value > 0
        ]
        for block in blocks
    )
    return [statistics.geometric_mean(values) for values in relative if values]


def _names(blocks: Sequence[Block]) -> list[str]:
    return list(dict.fromkeys(name for block in blocks for name, values in block.items() if values))


def _median(blocks: Sequence[Block], name: str) -> float:
    return statistics.median(value for block in blocks for value in block.get(name, ()))
