"""Our BCa interval against scipy's, which draws the same resamples."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy import stats

from analysis.stats.bca import Resampling, resampled_interval

RESAMPLING = Resampling(0.95, 2000, 7)


def quotient(*drawn, axis):
    """Return the ratio of two medians, or the median of one side."""
    medians = [np.median(side, axis=axis) for side in drawn]
    return medians[0] / medians[1] if len(medians) == 2 else medians[0]


def scipys(sides, method):
    interval = stats.bootstrap(
        tuple(map(np.asarray, sides)),
        quotient,
        vectorized=True,
        confidence_level=RESAMPLING.confidence,
        n_resamples=RESAMPLING.resamples,
        method=method,
        rng=np.random.default_rng(RESAMPLING.seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)


@pytest.mark.parametrize("sizes", [(6,), (31,), (120,), (6, 9), (40, 7)])
@pytest.mark.parametrize("sigma", [0.01, 0.4, 1.5])
def test_it_is_scipys(sizes, sigma):
    draw = random.Random(sizes[0])
    sides = [[draw.lognormvariate(0, sigma) for _ in range(size)] for size in sizes]
    assert resampled_interval(sides, quotient, RESAMPLING) == pytest.approx(
        scipys(sides, "BCa"), rel=1e-12
    )


@pytest.mark.parametrize("sides", [[[3.0] * 8], [[3.0] * 8, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]]])
def test_where_bca_is_undefined_it_is_the_percentile_interval(sides):
    assert resampled_interval(sides, quotient, RESAMPLING) == scipys(sides, "percentile")
