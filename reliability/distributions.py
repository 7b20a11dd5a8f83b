"""Distributions of trials' figures, from which samples are drawn with a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

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
