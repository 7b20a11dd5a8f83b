"""Distributions of trials' figures, from which samples are drawn with a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

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


def recorded(values: Sequence[float]) -> Draw:
    """Return the recorded values, each as likely as the others."""
    return lambda source: source.choice(values)


SHAPES: Mapping[str, Draw] = {
    "normal, 2 %": normal(0.02),
    "normal, 10 %": normal(0.10),
    "skewed, 20 %": skewed(0.20),
    "two peaks": two_peaked(0.02),
    "long tail": long_tailed(0.03),
}
"""Shapes that times were seen to have, by name."""
