"""Statistics of repeated trials: intervals, rank tests, change points and gates."""

from __future__ import annotations

import itertools
import math
import operator
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

from pagecage.errors import PagecageError
from pagecage.units import parse_seconds, parse_size_bytes
from pagecage.verdicts.repeats import CONFIDENCE, FEWEST_OF_GATE, ranks_left_out
from pagecage.verdicts.repeats import FEWEST as FEWEST_OF_MEDIAN

FEWEST = 5
"""With five values per side, a rank test of about 5 % is possible: 252 orders, or 32 signs."""
_MOST_VALUES = 400
"""Of larger samples as many quantiles are compared, which moves no end by a rank of its own."""
_MOST_EXACT = 2_500
"""Pairs above which the normal approximation of the tests' distributions is exact to a rank."""
_ROUNDING = 1e-12


def ratio_of_samples(over: Sequence[float], under: Sequence[float]) -> MedianSummary:
    """Return the ratio of two samples with the interval of Mann and Whitney's test.

    The middle is the median of the ratios of all pairs (Hodges and Lehmann).
    """
    ratios = sorted(quotient(x, y) for x in _thinned(over) for y in _thinned(under))
    left_out, confidence = rank_sum_limits(len(over), len(under))
    n, share = min(len(over), len(under)), left_out / (len(over) * len(under))
    return _interval(n, ratios, share, confidence)


def ratio_of_pairs(ratios: Sequence[float]) -> MedianSummary:
    """Return the ratio of which each block gives one, by the signed-rank test of Wilcoxon.

    The middle is the median of the geometric means of every two, each one's own included.
    """
    pairs = itertools.combinations_with_replacement(_thinned(ratios), 2)
    means, n = sorted(_between(*pair) for pair in pairs), len(ratios)
    left_out, confidence = signed_rank_limits(n)
    return _interval(n, means, left_out / (n * (n + 1) / 2), confidence)


def _interval(n: int, ordered: Sequence[float], share: float, confidence: float) -> MedianSummary:
    left_out, half = round(share * len(ordered)), (len(ordered) - 1) // 2
    middle, kind = _between(ordered[half], ordered[len(ordered) // 2]), f"{100 * confidence:.0f} %"
    return MedianSummary(n, middle, ordered[left_out], ordered[-1 - left_out], kind)


def quotient(over: float, under: float) -> float:
    """Return the ratio of two figures: 1 if they are equal, else infinite to zero."""
    if over == under:
        return 1.0
    return over / under if under else math.inf


def _between(one: float, other: float) -> float:
    """Return the geometric mean of two ratios; 1 of zero and infinity."""
    if one == other:
        return one
    mean = math.sqrt(one) * math.sqrt(other)
    return 1.0 if math.isnan(mean) or abs(mean - 1) < _ROUNDING else mean


def _thinned(values: Sequence[float]) -> Sequence[float]:
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
    """Return the median with its exact 95 % interval, or with the range below six values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    middle, n = statistics.median(ordered), len(ordered)
    if n < FEWEST_OF_MEDIAN:
        return MedianSummary(n, middle, ordered[0], ordered[-1], RANGE)
    k = ranks_left_out(n)
    return MedianSummary(n, middle, ordered[k], ordered[-1 - k], "95 %")


def median_of_known(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are known; None without any."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


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
    return ratio_of_samples(numerator, denominator)


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
        two = [[quotient(*row[:2]), quotient(*row[2:]) if row[2:] else 1.0] for row in rows]
        return ratio_of_pairs([quotient(*pair) for pair in two])
    if not all(sides):
        raise ValueError("no values")
    if len(sides) == 2:
        return median_ratio(*sides)
    one, other = _range_of_ratios(*sides[:2]), _range_of_ratios(*sides[2:])
    low, high = quotient(one.low, other.high), quotient(one.high, other.low)
    middle = quotient(one.middle, other.middle)
    return MedianSummary(min(one.n, other.n), middle, low, high, RANGE)


def _range_of_ratios(numerator: Sequence[float], denominator: Sequence[float]) -> MedianSummary:
    middle = quotient(statistics.median(numerator), statistics.median(denominator))
    low = quotient(min(numerator), max(denominator))
    high = quotient(max(numerator), min(denominator))
    return MedianSummary(min(len(numerator), len(denominator)), middle, low, high, RANGE)


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

    def medians(blocks: Sequence[Block]) -> dict[str, float]:
        found: dict[str, list[float]] = {}
        for name, values in itertools.chain.from_iterable(block.items() for block in blocks):
            found.setdefault(name, []).extend(values)
        return {name: statistics.median(values) for name, values in found.items() if values}

    over, under = medians(numerator), medians(denominator)
    ratios = [quotient(middle, under[name]) for name, middle in over.items() if name in under]
    if not ratios or not all(0 < ratio < math.inf for ratio in ratios):
        return None
    sides: list[list[float]] = []
    for side in (numerator, denominator):
        relative = (
            [
                value / under[name]
                for name, values in block.items()
                for value in values
                if name in over and under.get(name) and value > 0
            ]
            for block in side
        )
        sides.append([statistics.geometric_mean(values) for values in relative if values])
    n = min(map(len, sides))
    if n < FEWEST:
        return MedianSummary(n, statistics.geometric_mean(ratios), min(ratios), max(ratios), RANGE)
    return median_ratio(*sides)


FEWEST_POINTS = 4
"""Shorter series have no two segments of two points."""
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
    """Return the indices at which a new level begins.

    Levels are compared by their ratio. A series with a value that is not positive is compared by
    differences, in units of its largest value.
    """
    if len(values) < FEWEST_POINTS:
        return []
    return _partition(_by_noise(values), _PENALTY * math.log(len(values)))


def _by_noise(values: Sequence[float]) -> list[float]:
    """Return the values as multiples of their noise around a level that changes rarely."""
    largest, is_positive = max(map(abs, values)) or 1.0, min(values) > 0
    scaled = [math.log(value) if is_positive else value / largest for value in values]
    steps = [after - before for before, after in itertools.pairwise(scaled)]
    middle = statistics.median(steps)
    deviation = statistics.median(abs(step - middle) for step in steps)
    noise = max(_MAD_TO_SIGMA * deviation / math.sqrt(2), LEAST_NOISE)
    return [value / noise for value in scaled]


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


MIN_TRIALS_PER_RUN = FEWEST_OF_GATE
_GATE = re.compile(
    r"\s*(?P<name>[a-z][a-z0-9_]*)\s*(?P<sign>[<>]=?)\s*"
    r"(?:(?P<percent>[+-][0-9]+(?:\.[0-9]+)?)\s*%|(?P<bound>[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*"
    r"(?P<unit>[A-Za-z]*))\s*"
)
_TIMES = {"seconds": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""Units that end a response's name, with their number in a second."""


@dataclass(frozen=True)
class Gate:
    """A condition on a response, or on its change.

    The gate fails if the figure compares to `bound` by `sign` (`> >= < <=`), or its change to
    `percent` if `bound` is None. `text` is the condition as typed. `unit` is that of `bound`; empty
    for the response's own.
    """

    text: str
    response: str
    sign: str
    percent: float = 0.0
    bound: float | None = None
    unit: str = ""

    @property
    def threshold(self) -> float:
        """The ratio, or for a bound the figure in the response's unit, from which the gate fails.

        Raises PagecageError if the bound has a unit of another kind than the response.
        """
        if self.bound is None:
            return 1 + self.percent / 100
        if not self.unit:
            return self.bound
        times = (scale for end, scale in _TIMES.items() if self.response.endswith(f"_{end}"))
        text, where = f"{self.bound:f}{self.unit}", f"--fail-if {self.text!r}"
        if (scale := next(times, None)) is not None:
            return parse_seconds(text, where) * scale
        if "bytes" not in self.response:
            raise PagecageError(
                f"{where}: {self.response} is neither a time nor a size", f"remove {self.unit}"
            )
        return float(parse_size_bytes(text, where))


def parse_gate(text: str) -> Gate:
    """Parse a gate `name op +N%` or `name op N`."""
    match = _GATE.fullmatch(text)
    if not match:
        raise PagecageError(
            f"--fail-if {text!r} is not a gate",
            "write it as 'read_seconds > +10%' with the sign, or as 'ready_seconds > 30s'",
        )
    name, sign = match["name"], match["sign"]
    if match["bound"]:
        return Gate(text.strip(), name, sign, bound=float(match["bound"]), unit=match["unit"])
    gate = Gate(text.strip(), name, sign, float(match["percent"]))
    if gate.threshold <= 0:
        raise PagecageError(
            f"--fail-if {text!r}: no figure falls below zero", "name a change above -100%"
        )
    return gate


def evaluate_gate(
    gate: Gate, ratio: MedianSummary | None, noise_share: float = 0.0
) -> tuple[str, str]:
    """Return `failed`, `passed` or `undecided`, and the reason; `ratio` is a bound's figure.

    A gate is decided if the whole interval lies on one side of its threshold. It does not fail for
    a change within `noise_share`, by which identical trials differ.
    """
    if ratio is None:
        return "undecided", "there is no ratio" if gate.bound is None else "there is no figure"
    if ratio.n < MIN_TRIALS_PER_RUN:
        fewer = f"fewer than {MIN_TRIALS_PER_RUN} trials per run do not show their spread"
        return "undecided", fewer
    is_met = _SIGNS[gate.sign]
    ends = [is_met(end, gate.threshold) for end in (ratio.low, ratio.high)]
    if gate.bound is None and all(ends) and max(ratio.middle, 1 / ratio.middle) <= 1 + noise_share:
        return "undecided", f"identical trials differ by up to {noise_share:.1%}"
    if all(ends):
        return "failed", "the whole interval is beyond the threshold"
    if any(ends):
        return "undecided", "the interval includes the threshold"
    return "passed", "the whole interval is within the threshold"


_SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
