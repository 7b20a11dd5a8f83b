"""Latency histograms of NVMe volumes, their differences, and the quantiles that follow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

COUNT_WRAPS = 2**32
"""Counts are unsigned numbers of 32 bits (struct nvme_histogram_bin of Amazon's log page 0xD0)."""
OPEN_US = 2**32
"""A bin whose upper edge lies above this, more than an hour, is taken as open."""
_DIGITS = 9  # of a probability


@dataclass(frozen=True)
class HistogramBin:
    """The number of requests that took at least `lower_us` and less than `upper_us`."""

    lower_us: int
    upper_us: int
    count: int


def read_bins(tree: Any) -> tuple[HistogramBin, ...]:
    """Return the bins of a histogram, as nvme-cli prints it.

    Raises ValueError if a value is not a number, or if the bins overlap or fall.
    """
    bins = tuple(
        HistogramBin(*(_natural(row[key], key) for key in ("lower", "upper", "count")))
        for row in tree["bins"]
    )
    for one in bins:
        if one.upper_us < one.lower_us:
            raise ValueError(f"a bin from {one.lower_us} to {one.upper_us} us")
    for low, high in itertools.pairwise(bins):
        if high.lower_us < low.upper_us:
            raise ValueError(f"bins that overlap at {high.lower_us} us")
    return bins


def _natural(value: Any, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{key} = {value!r}")
    return value


def subtract_bins(
    after: Sequence[HistogramBin], before: Sequence[HistogramBin]
) -> tuple[HistogramBin, ...]:
    """Return the requests between two readings. A count that fell has wrapped at 2**32."""
    earlier = {(one.lower_us, one.upper_us): one.count for one in before}
    return tuple(
        HistogramBin(
            one.lower_us,
            one.upper_us,
            (one.count - earlier.get((one.lower_us, one.upper_us), 0)) % COUNT_WRAPS,
        )
        for one in after
    )


def count(bins: Sequence[HistogramBin]) -> int:
    """Return the number of requests in a histogram."""
    return sum(one.count for one in bins)


def quantiles(bins: Sequence[HistogramBin]) -> tuple[tuple[float, float], ...]:
    """Return pairs of a probability and microseconds at the edges of the bins that are not empty.

    Requests of the bin that begins at 0 take its upper edge, because a logarithm needs a latency
    above 0. Those of an open bin take its lower edge. After empty bins, the latency rises within
    half a request. Raises ValueError for a histogram without requests.
    """
    total = count(bins)
    if not total:
        raise ValueError("a histogram without requests")
    points: list[tuple[float, float]] = []
    below = 0
    for one in bins:
        if one.count:
            low_us, high_us = _edges(one)
            if not points:
                points.append((0.0, low_us))
            elif low_us > points[-1][1]:
                _append(points, (below + 0.5) / total, low_us)
            below += one.count
            _append(points, below / total, high_us)
    return tuple(points)


def _edges(one: HistogramBin) -> tuple[float, float]:
    upper = one.lower_us if one.upper_us >= OPEN_US else one.upper_us
    return float(max(one.lower_us or upper, 1)), float(max(upper, 1))


def _append(points: list[tuple[float, float]], probability: float, us: float) -> None:
    """Append a point, which replaces one of the same rounded probability."""
    rounded = round(probability, _DIGITS)
    if rounded <= points[-1][0]:
        points.pop()
    points.append((rounded, us))
