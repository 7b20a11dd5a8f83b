"""False alarms and power of comparisons and gates, and the coverage of intervals.

The names of `analysis` that are used here exist in earlier states of it too, but for that of the
comparison within blocks, so that the same pairs are judged by both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from scipy.stats import mannwhitneyu

from analysis.cells import noise_of
from analysis.comparison import change_word
from analysis.stats import MedianSummary, evaluate_gate, median_ratio, parse_gate, summarise

Draw = Callable[[random.Random], float]
_LONG_TAIL = 0.05


def normal(spread: float) -> Draw:
    """Return a bell around 1."""
    return lambda source: source.gauss(1, spread)


def skewed(spread: float) -> Draw:
    """Return a log-normal distribution with the median 1, whose tail is on the right."""
    return lambda source: source.lognormvariate(0, spread)


def two_peaked(spread: float) -> Draw:
    """Return peaks at 1 and 1.3 with 60 and 40 % of the values: a cache that is warm or not."""
    return lambda source: source.gauss(1.0 if source.random() < 0.6 else 1.3, spread)


def long_tailed(spread: float) -> Draw:
    """Return a bell of which one value in 20 takes 1.5 to 4 times as long."""

    def draw(source: random.Random) -> float:
        value = source.gauss(1, spread)
        return value * source.uniform(1.5, 4) if source.random() < _LONG_TAIL else value

    return draw


SHAPES: Mapping[str, Draw] = {
    "normal, 2 %": normal(0.02),
    "normal, 10 %": normal(0.10),
    "skewed, 20 %": skewed(0.20),
    "two peaks": two_peaked(0.02),
    "long tail": long_tailed(0.03),
}
"""Shapes that times were seen to have, by name."""

Host = Callable[[random.Random, int], list[float]]
"""A function that returns by what factor a host is slower at each of so many trials in a row."""


def steady(source: random.Random, trials: int) -> list[float]:
    return [1.0] * trials


def sloping(source: random.Random, trials: int) -> list[float]:
    """Return a host that is slower by 1 % at each trial."""
    return [1 + 0.01 * place for place in range(trials)]


def state_per_block(source: random.Random, trials: int) -> list[float]:
    """Return a host that starts anew before each two trials, and is then a fifth slower or not."""
    factors = (source.choice((1.0, 1.2)) for _ in range(0, trials, 2))
    return [factor for factor in factors for _ in range(2)]


def two_states(source: random.Random, trials: int) -> list[float]:
    """Return a host that is a fifth slower in one of two states, which one trial in ten ends."""
    factors, is_slow = [], source.random() < 0.5
    for _ in range(trials):
        is_slow ^= source.random() < 0.1
        factors.append(1.2 if is_slow else 1.0)
    return factors


HOSTS: Mapping[str, Host] = {
    "none": steady,
    "1 % a trial": sloping,
    "a state per block": state_per_block,
    "two states": two_states,
}
"""Hosts by how they drift."""


REPEATS = (3, 5, 10, 30)
SLOWDOWNS = (1.02, 1.05, 1.10, 1.20)
BLOCKS = (5, 10, 30)
"""Repeats of two treatments of one run. With fewer, blocks are not compared."""
SLOWDOWNS_WITHIN = (1.02, 1.05, 1.10)
GATE = parse_gate("read_seconds > +5%")
_LEVEL = 0.05
_POPULATION = 200_001
_NOISE = normal(0.02)
Sample = list[float]


@dataclass(frozen=True)
class Alarms:
    """Pairs of samples of one kind of noise, and how many of them a comparison calls different.

    `slowdown` is what the second sample was multiplied by. `gate_failed` counts the pairs for which
    a gate at +5 % fails. `test_higher` and `test_lower` count those of which scipy's test of Mann
    and Whitney (two-sided, 5 %) says so.
    """

    noise: str
    repeats: int
    slowdown: float
    pairs: int
    higher: int
    lower: int
    gate_failed: int
    test_higher: int
    test_lower: int


def compare_pairs(
    shapes: Mapping[str, Draw],
    pairs: int,
    seed: int,
    slowdown: float = 1.0,
    repeats: Sequence[int] = REPEATS,
) -> Iterator[Alarms]:
    """Yield the alarms of samples of two runs, by shape and number of repeats."""
    for shape, draw in shapes.items():
        for count in repeats:
            source = random.Random(f"{seed} {shape} {count} {slowdown}")
            drawn = [
                (
                    [draw(source) for _ in range(count)],
                    [draw(source) * slowdown for _ in range(count)],
                )
                for _ in range(pairs)
            ]
            judged = [_judge(first, second) for first, second in drawn]
            words, gates = [word for word, _ in judged], [gate for _, gate in judged]
            yield Alarms(
                shape,
                count,
                slowdown,
                pairs,
                words.count("higher"),
                words.count("lower"),
                gates.count("failed"),
                *_tested(drawn),
            )


def _judge(first: Sample, second: Sample) -> tuple[str, str]:
    floors = [floor for floor in map(noise_of, (first, second)) if floor]
    floor = max(floors, key=lambda one: one.share, default=None)
    ratio = median_ratio(second, first)
    gate, _ = evaluate_gate(GATE, ratio, floor.share if floor else 0.0)
    return change_word(ratio, floor), gate


def _tested(drawn: Sequence[tuple[Sample, Sample]]) -> tuple[int, int]:
    first, second = ([pair[side] for pair in drawn] for side in (0, 1))
    found = mannwhitneyu(second, first, axis=1, method="exact")
    is_more = found.statistic > len(first[0]) * len(second[0]) / 2
    differs = found.pvalue <= _LEVEL
    return int((differs & is_more).sum()), int((differs & ~is_more).sum())


Compare = Callable[[Sample, Sample], MedianSummary]
"""The ratio of the second treatment's figures to the first's, each in the order of the blocks."""


def in_blocks(first: Sample, second: Sample) -> MedianSummary:
    from analysis.stats import blocked_ratio

    return blocked_ratio([second, first], list(zip(second, first, strict=True)))


def without_blocks(first: Sample, second: Sample) -> MedianSummary:
    """Compare as reports did before, without the blocks."""
    return median_ratio(second, first)


def compare_treatments(
    hosts: Mapping[str, Host],
    pairs: int,
    seed: int,
    slowdown: float = 1.0,
    repeats: Sequence[int] = BLOCKS,
    compare: Compare = in_blocks,
) -> Iterator[Alarms]:
    """Yield the alarms of two treatments of one run, by host and number of blocks.

    A treatment differs if the interval does not contain 1, which is the rule for claims.
    """
    for name, host in hosts.items():
        for count in repeats:
            source = random.Random(f"{seed} {name} {count} {slowdown}")
            drawn = [_run(source, host, count, slowdown) for _ in range(pairs)]
            ratios = [compare(first, second) for first, second in drawn]
            higher, lower = (
                sum(ratio.low > 1 for ratio in ratios),
                sum(ratio.high < 1 for ratio in ratios),
            )
            yield Alarms(name, count, slowdown, pairs, higher, lower, 0, *_tested(drawn))


def _run(source: random.Random, host: Host, blocks: int, slowdown: float) -> tuple[Sample, Sample]:
    factors = host(source, 2 * blocks)
    sides: tuple[Sample, Sample] = [], []
    for block in range(blocks):
        for place, side in enumerate(source.sample((0, 1), 2)):
            figure = _NOISE(source) * factors[2 * block + place]
            sides[side].append(figure * slowdown if side else figure)
    return sides


@dataclass(frozen=True)
class Coverage:
    """How many of the intervals around a median contain the median of the distribution.

    `kind` is the name that a table gives the interval, `95 %` or `range`.
    """

    noise: str
    repeats: int
    kind: str
    intervals: int
    covering: int
    ratios_covering: int


def cover(
    shapes: Mapping[str, Draw], count: int, seed: int, repeats: Sequence[int] = REPEATS
) -> Iterator[Coverage]:
    """Yield the coverage of intervals of medians, and of ratios of two equal distributions."""
    for shape, draw in shapes.items():
        truth = median(draw(random.Random(f"{seed} {n}")) for n in range(_POPULATION))
        for size in repeats:
            source = random.Random(f"{seed} {shape} {size} coverage")
            samples = [[draw(source) for _ in range(size)] for _ in range(count)]
            summaries = [summarise(sample) for sample in samples]
            ratios = (
                median_ratio(one, other)
                for one, other in zip(samples[::2], samples[1::2], strict=True)
            )
            yield Coverage(
                shape,
                size,
                summaries[0].kind,
                count,
                sum(one.low <= truth <= one.high for one in summaries),
                sum(one.low <= 1 <= one.high for one in ratios),
            )


def as_json(rows: Iterator[Any]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
