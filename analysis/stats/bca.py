"""The BCa interval of a statistic, by resampling.

Bias-corrected and accelerated (B. Efron and R. J. Tibshirani, "An Introduction to the Bootstrap",
1993, chapter 14). With the same seed it draws what `scipy.stats.bootstrap` draws. scipy itself is
not needed, which would be a third of an installation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

Statistic = Callable[..., Any]
"""A function of one array per side and of `axis`, along which it reduces them."""
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Resampling:
    """The confidence of an interval, the number of resamples, and the seed of their draws."""

    confidence: float
    resamples: int
    seed: int


def resampled_interval(
    sides: Sequence[Sequence[float]], statistic: Statistic, resampling: Resampling
) -> tuple[float, float]:
    """Return the BCa interval of a statistic of independent sides.

    Where BCa is undefined, because the values of a side or all resamples are equal, it is the
    percentile interval.
    """
    arrays = [np.asarray(side, dtype=float) for side in sides]
    draw = np.random.default_rng(resampling.seed)
    shapes = [(resampling.resamples, len(side)) for side in arrays]
    drawn = statistic(
        *(
            side[draw.integers(0, len(side), shape)]
            for side, shape in zip(arrays, shapes, strict=True)
        ),
        axis=-1,
    )
    tail = (1 - resampling.confidence) / 2
    quantiles = _corrected(arrays, statistic, drawn, tail) or (tail, 1 - tail)
    low, high = np.quantile(drawn, quantiles)
    return float(low), float(high)


def _corrected(
    arrays: Sequence[Any], statistic: Statistic, drawn: Any, tail: float
) -> tuple[float, float] | None:
    """Return the quantiles of the resamples that are the ends of the interval; None without any."""
    middle = statistic(*arrays, axis=-1)
    below = (np.count_nonzero(drawn < middle) + np.count_nonzero(drawn <= middle)) / (
        2 * len(drawn)
    )
    if not 0 < below < 1 or any(len({*side.tolist()}) < 2 for side in arrays):
        return None
    bias, acceleration = _NORMAL.inv_cdf(below), _acceleration(arrays, statistic)
    steps = [bias + _NORMAL.inv_cdf(tail), bias - _NORMAL.inv_cdf(tail)]
    low, high = (_NORMAL.cdf(bias + step / (1 - acceleration * step)) for step in steps)
    return low, high


def _acceleration(arrays: Sequence[Any], statistic: Statistic) -> float:
    """Return the skewness of the statistic, each side's values being left out one at a time."""
    cubes = squares = 0.0
    for number, side in enumerate(arrays):
        count = len(side)
        without = [np.delete(side, left_out) for left_out in range(count)]
        values = np.array(
            [statistic(*arrays[:number], rest, *arrays[number + 1 :], axis=-1) for rest in without]
        )
        influence = (count - 1) * (values.mean() - values)
        cubes += float((influence**3).sum()) / count**3
        squares += float((influence**2).sum()) / count**2
    return cubes / squares**1.5 / 6 if squares else 0.0
