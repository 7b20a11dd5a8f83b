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


def mean_us_at_size(sizes: Sequence[LatencyQuantiles], size_bytes: float) -> float:
    """Return the mean for requests of a size; 0 without distributions.

    Between two sizes, the logarithm of the mean is taken as linear in that of the size.
    """
    ordered = sorted(sizes, key=lambda one: one.size_bytes)
    below = [one for one in ordered if one.size_bytes <= size_bytes][-1:]
    above = [one for one in ordered if one.size_bytes >= size_bytes][:1]
    means = [mean_us(one.quantiles) for one in (*below, *above)]
    if len(means) < 2 or below == above:
        return means[0] if means else 0.0
    low, high = below[0].size_bytes, above[0].size_bytes
    share = math.log(size_bytes / low) / math.log(high / low)
    return float(means[0] * (means[1] / means[0]) ** share)


def _logarithmic_mean(low: float, high: float) -> float:
    """Return the mean of an exponential curve between two values."""
    ratio = high / low
    return low if ratio - 1 < 1e-9 else (high - low) / math.log(ratio)
