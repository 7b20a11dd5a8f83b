"""Latencies between quantiles, and their mean beside that of many draws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.model.cage import LatencyQuantiles
from pagecage.model.volume_model import latency_at, mean_us, mean_us_at_size
from tests.builders.strategies import latency_quantiles


@pytest.mark.parametrize(
    "quantiles",
    [
        ((0.5, 410.0),),
        ((0.0, 100.0), (1.0, 1000.0)),
        ((0.5, 440.0), (0.95, 720.0)),
        ((0.25, 10.0), (0.5, 10.0), (0.75, 4000.0), (0.999, 4000.0)),
    ],
)
def test_the_mean_is_that_of_many_draws(quantiles: tuple[tuple[float, ...], ...]) -> None:
    count = 20_000
    mean = math.fsum(latency_at(quantiles, (n + 0.5) / count) for n in range(count)) / count
    assert mean_us(quantiles) == pytest.approx(mean, rel=1e-3)


def test_between_two_quantiles_the_logarithm_is_linear() -> None:
    """The values of volume/src/latency.rs for the same quantiles."""
    quantiles = ((0.25, 100.0), (0.75, 10_000.0))
    found = [latency_at(quantiles, p) for p in (0, 0.25, 0.5, 0.625, 0.75, 1)]
    assert found == pytest.approx([100, 100, 1000, 3162.28, 10_000, 10_000])


@given(latency_quantiles)
def test_a_mean_lies_within_the_quantiles(latency: LatencyQuantiles) -> None:
    lowest, highest = latency.quantiles[0][1], latency.quantiles[-1][1]
    assert lowest * (1 - 1e-9) <= mean_us(latency.quantiles) <= highest * (1 + 1e-9)


@given(latency_quantiles, st.integers(1, 2**31))
def test_one_size_holds_for_all(latency: LatencyQuantiles, size_bytes: int) -> None:
    assert mean_us_at_size([latency], size_bytes) == mean_us(latency.quantiles)


def test_a_size_between_two_has_a_mean_between_theirs() -> None:
    sizes = [
        LatencyQuantiles(65_536, ((0.5, 1600.0),)),
        LatencyQuantiles(4096, ((0.5, 400.0),)),
    ]
    means = [mean_us_at_size(sizes, size) for size in (512, 4096, 16_384, 65_536, 2**20)]
    assert means == pytest.approx([400, 400, 800, 1600, 1600])
    assert mean_us_at_size([], 4096) == 0
