"""Statistics of repeated trials: intervals, rank tests, change points and gates."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

from pagecage.errors import PagecageError
from pagecage.verdicts.repeats import CONFIDENCE, ranks_left_out
from pagecage.verdicts.repeats import FEWEST as FEWEST_OF_MEDIAN

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


MIN_TRIALS_PER_RUN = 3
"""Minimum trials per run for a decision.

With three trials in each of two runs, all trials of one exceed all of the other by chance once in
twenty times.
"""
_GATE = re.compile(
    r"\s*(?P<name>[a-z][a-z0-9_]*)\s*(?P<sign>[<>]=?)\s*(?P<percent>[+-][0-9]+(?:\.[0-9]+)?)\s*%\s*"
)


@dataclass(frozen=True)
class Gate:
    """A condition on the change of a response.

    The gate fails if the change compares to `percent` by `sign` (`> >= < <=`). `text` is the
    condition as typed.
    """

    text: str
    response: str
    sign: str
    percent: float

    @property
    def threshold(self) -> float:
        """The ratio at which the gate begins to fail."""
        return 1 + self.percent / 100


def parse_gate(text: str) -> Gate:
    """Parse a gate `name op +N%`. Raises PagecageError for any other text."""
    match = _GATE.fullmatch(text)
    if not match:
        raise PagecageError(
            f"--fail-if {text!r} is not a gate",
            "write it as 'read_seconds > +10%', including the sign",
        )
    gate = Gate(text.strip(), match["name"], match["sign"], float(match["percent"]))
    if gate.threshold <= 0:
        raise PagecageError(
            f"--fail-if {text!r}: no figure falls below zero", "name a change above -100%"
        )
    return gate


def evaluate_gate(
    gate: Gate, ratio: MedianSummary | None, noise_share: float = 0.0
) -> tuple[str, str]:
    """Return `failed`, `passed` or `undecided`, and the reason.

    A gate is decided if the whole interval lies on one side of its threshold. It does not fail for
    a change within `noise_share`, by which identical trials differ.
    """
    if ratio is None:
        return "undecided", "there is no ratio"
    if ratio.n < MIN_TRIALS_PER_RUN:
        return (
            "undecided",
            f"fewer than {MIN_TRIALS_PER_RUN} trials per run do not show their spread",
        )
    ends = [_is_met(gate, end) for end in (ratio.low, ratio.high)]
    if all(ends) and max(ratio.middle, 1 / ratio.middle) <= 1 + noise_share:
        return "undecided", f"identical trials differ by up to {noise_share:.1%}"
    if all(ends):
        return "failed", "the whole interval is beyond the threshold"
    return (
        ("undecided", "the interval includes the threshold")
        if any(ends)
        else ("passed", "the whole interval is within the threshold")
    )


def _is_met(gate: Gate, value: float) -> bool:
    match gate.sign:
        case ">":
            return value > gate.threshold
        case ">=":
            return value >= gate.threshold
        case "<":
            return value < gate.threshold
    return value <= gate.threshold
