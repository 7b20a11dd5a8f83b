"""Quantiles and the mean of a latency that is given by quantiles, as the plugin draws it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

_STEPS = 20_000


def quantile_us(distributions: Sequence[Mapping[str, Any]], size_bytes: int, p: float) -> float:
    """Return the latency in microseconds at a probability, for requests of a size; 0 without any.

    Between two quantiles, and between two sizes, logarithms are interpolated linearly
    (volume/src/latency.rs).
    """
    sizes = sorted(distributions, key=lambda one: float(one["size_bytes"]))
    if not sizes:
        return 0.0
    above = bisect_left([one["size_bytes"] for one in sizes], size_bytes)
    if above == 0 or above == len(sizes):
        return _at(sizes[min(above, len(sizes) - 1)]["quantiles"], p)
    low, high = sizes[above - 1], sizes[above]
    share = math.log(size_bytes / low["size_bytes"]) / math.log(
        high["size_bytes"] / low["size_bytes"]
    )
    return _between(_at(low["quantiles"], p), _at(high["quantiles"], p), share)


def mean_latency_us(distributions: Sequence[Mapping[str, Any]], size_bytes: int) -> float | None:
    """Return the mean latency of requests of a size; None without a distribution."""
    if not distributions:
        return None
    total = sum(
        quantile_us(distributions, size_bytes, (step + 0.5) / _STEPS) for step in range(_STEPS)
    )
    return total / _STEPS


def _at(points: Sequence[Sequence[float]], p: float) -> float:
    above = bisect_left([point[0] for point in points], p)
    if above == 0:
        return float(points[0][1])
    if above == len(points):
        return float(points[-1][1])
    (low_p, low_us), (high_p, high_us) = points[above - 1], points[above]
    return _between(low_us, high_us, (p - low_p) / (high_p - low_p))


def _between(low: float, high: float, share: float) -> float:
    return float(low * (high / low) ** share)
