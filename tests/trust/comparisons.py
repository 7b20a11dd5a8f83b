"""False alarms and power of comparisons and gates, and the coverage of intervals."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from analysis.stats.gates import evaluate_gate, parse_gate
from analysis.stats.intervals import median_ratio, summarise
from analysis.summaries.comparison import change_word
from analysis.summaries.noise import noise_of
from tests.trust.distributions import Draw

REPEATS = (3, 5, 10, 30)
SLOW_REPEATS = 30
"""Samples of this size take seconds per thousand, so that there are fewer of them."""
_FEWER = 4
SLOWDOWNS = (1.02, 1.05, 1.10, 1.20)
GATE = parse_gate("read_seconds > +5%")
_POPULATION = 200_001
Words = tuple[str, str]


@dataclass(frozen=True)
class Alarms:
    """Pairs of samples of one distribution, and how many of them a comparison calls different.

    `gate_failed` counts the pairs for which a gate at +5 % fails, and `gate_passed` those for which
    it passes; the others are undecided. `slowdown` is what the second sample was multiplied by.
    """

    shape: str
    repeats: int
    slowdown: float
    pairs: int
    higher: int
    lower: int
    gate_failed: int
    gate_passed: int


def compare_pairs(
    shapes: Mapping[str, Draw], pairs: int, seed: int, slowdown: float = 1.0
) -> Iterator[Alarms]:
    """Yield the alarms of each shape and number of repeats."""
    for shape, draw in shapes.items():
        for repeats in REPEATS:
            source = random.Random(f"{seed} {shape} {repeats} {slowdown}")
            count = pairs // _FEWER if repeats >= SLOW_REPEATS else pairs
            found = [_judge(source, draw, repeats, slowdown) for _ in range(count)]
            words, gates = [word for word, _ in found], [gate for _, gate in found]
            yield Alarms(
                shape,
                repeats,
                slowdown,
                count,
                words.count("higher"),
                words.count("lower"),
                gates.count("failed"),
                gates.count("passed"),
            )


def _judge(source: random.Random, draw: Draw, repeats: int, slowdown: float) -> Words:
    """Return the word of a comparison of two samples, and the verdict of the gate."""
    first = [draw(source) for _ in range(repeats)]
    second = [draw(source) * slowdown for _ in range(repeats)]
    floors = [floor for floor in map(noise_of, (first, second)) if floor]
    floor = max(floors, key=lambda one: one.share, default=None)
    ratio = median_ratio(second, first)
    gate, _ = evaluate_gate(GATE, ratio, floor.share if floor else 0.0)
    return change_word(ratio, floor), gate


@dataclass(frozen=True)
class Coverage:
    """How many of the intervals around a median contain the median of the distribution.

    `kind` is the name that a table gives the interval, `95 %` or `range`.
    """

    shape: str
    repeats: int
    kind: str
    intervals: int
    covering: int
    ratios_covering: int


def cover(shapes: Mapping[str, Draw], count: int, seed: int) -> Iterator[Coverage]:
    """Yield the coverage of intervals of medians, and of ratios of two equal distributions."""
    for shape, draw in shapes.items():
        truth = median(draw(random.Random(f"{seed} {n}")) for n in range(_POPULATION))
        for repeats in REPEATS:
            source = random.Random(f"{seed} {shape} {repeats} coverage")
            drawn = count // _FEWER if repeats >= SLOW_REPEATS else count
            samples = [[draw(source) for _ in range(repeats)] for _ in range(drawn)]
            summaries = [summarise(sample) for sample in samples]
            ratios = (
                median_ratio(one, other)
                for one, other in zip(samples[::2], samples[1::2], strict=True)
            )
            yield Coverage(
                shape,
                repeats,
                summaries[0].kind,
                drawn,
                sum(one.low <= truth <= one.high for one in summaries),
                sum(one.low <= 1 <= one.high for one in ratios),
            )


def as_json(rows: Iterator[Any]) -> list[dict[str, Any]]:
    """Return rows as plain data."""
    return [asdict(row) for row in rows]
