"""Latencies and means of distributions that are given by quantiles.

Between two quantiles the logarithm of the latency is linear in the probability. Below the lowest
and above the highest quantile the latency is constant. The simulated volume draws in this way
(volume/src/latency.rs).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from pagecage.model.simulation import LatencyQuantiles

Quantiles = Sequence[tuple[float, ...]]
_STEPS = 2000
"""Steps of the integral over a distribution between two sizes."""


def latency_at(quantiles: Quantiles, probability: float) -> float:
    """Return the latency at a probability in microseconds."""
    if probability <= quantiles[0][0]:
        return quantiles[0][1]
    for (low_p, low_us), (high_p, high_us) in itertools.pairwise(quantiles):
        if probability <= high_p:
            share = (probability - low_p) / (high_p - low_p)
            return float(low_us * (high_us / low_us) ** share)
    return quantiles[-1][1]


def mean_us(quantiles: Quantiles) -> float:
    """Return the mean of a distribution in microseconds."""
    (first_p, first_us), (last_p, last_us) = quantiles[0], quantiles[-1]
    total = first_p * first_us + (1 - last_p) * last_us
    for (low_p, low_us), (high_p, high_us) in itertools.pairwise(quantiles):
        total += (high_p - low_p) * _logarithmic_mean(low_us, high_us)
    return total


def latency_at_size(
    sizes: Sequence[LatencyQuantiles], size_bytes: float, probability: float
) -> float:
    """Return the latency of requests of a size at a probability; 0 without distributions.

    Between two sizes, the logarithm of the latency is linear in that of the size.
    """
    ordered = sorted(sizes, key=lambda one: one.size_bytes)
    near = [one for one in ordered if one.size_bytes <= size_bytes][-1:]
    near += [one for one in ordered if one.size_bytes > size_bytes][:1]
    found = [latency_at(one.quantiles, probability) for one in near]
    if len(near) < 2 or near[0].size_bytes == size_bytes:
        return found[0] if found else 0.0
    low, high = near[0].size_bytes, near[1].size_bytes
    share = math.log(size_bytes / low) / math.log(high / low)
    return float(found[0] * (found[1] / found[0]) ** share)


def mean_us_at_size(sizes: Sequence[LatencyQuantiles], size_bytes: float) -> float:
    """Return the mean for requests of a size; 0 without distributions."""
    for one in sizes:
        if one.size_bytes == size_bytes or len(sizes) == 1:
            return mean_us(one.quantiles)
    middles = ((step + 0.5) / _STEPS for step in range(_STEPS))
    return sum(latency_at_size(sizes, size_bytes, middle) for middle in middles) / _STEPS


def _logarithmic_mean(low: float, high: float) -> float:
    """Return the mean of an exponential curve between two values."""
    ratio = high / low
    return low if ratio - 1 < 1e-9 else (high - low) / math.log(ratio)
