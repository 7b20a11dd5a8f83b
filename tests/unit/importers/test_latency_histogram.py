"""Histograms of NVMe volumes as quantiles: exact at the edges, honest at both ends."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.importers.nvme import (
    OPEN_US,
    HistogramBin,
    count,
    quantiles,
    read_bins,
    subtract_bins,
)
from pagecage.model.volume_model import latency_at

EDGES = [0, *(2**n for n in range(28))]


def bins(counts: dict[int, int]) -> tuple[HistogramBin, ...]:
    return tuple(HistogramBin(low, high, counts.get(low, 0)) for low, high in pairwise(EDGES))


def test_percentiles_lie_at_the_edges() -> None:
    """The reads that a gp3 served at 1,000 per second."""
    found = quantiles(bins({256: 15_869, 512: 43_877, 1024: 514, 2048: 66, 4096: 3}))
    shares = [0, 15_869 / 60_329, 59_746 / 60_329, 60_260 / 60_329, 60_326 / 60_329, 1]
    assert [us for _, us in found] == [256, 512, 1024, 2048, 4096, 8192]
    assert [p for p, _ in found] == pytest.approx(shares, abs=1e-9)


def test_empty_bins_are_crossed_within_half_a_request() -> None:
    found = quantiles(bins({256: 3, 65_536: 1}))
    assert found == ((0.0, 256.0), (0.75, 512.0), (0.875, 65_536.0), (1.0, 131_072.0))


def test_the_bin_from_zero_is_taken_at_its_upper_edge() -> None:
    assert quantiles(bins({0: 1, 1: 1})) == ((0.0, 1.0), (0.5, 1.0), (1.0, 2.0))
    assert quantiles((HistogramBin(0, 256, 5),)) == ((0.0, 256.0), (1.0, 256.0))
    assert quantiles((HistogramBin(0, 0, 5),)) == ((0.0, 1.0), (1.0, 1.0))


@pytest.mark.parametrize("upper", [OPEN_US, 2**64 - 1])
def test_an_open_bin_is_taken_at_its_lower_edge(upper: int) -> None:
    found = quantiles((HistogramBin(512, 1024, 1), HistogramBin(1024, upper, 1)))
    assert found == ((0.0, 512.0), (0.5, 1024.0), (1.0, 1024.0))


def test_a_histogram_of_nothing_has_no_quantiles() -> None:
    with pytest.raises(ValueError, match="without requests"):
        quantiles(bins({}))


histograms = st.dictionaries(
    st.sampled_from(EDGES[:-1]), st.integers(0, 2**32 - 1), min_size=1
).filter(lambda counts: any(counts.values()))


@given(histograms)
def test_quantiles_rise_from_zero_to_one(counts: dict[int, int]) -> None:
    """pcvolume refuses probabilities that do not rise and latencies that fall."""
    found = quantiles(bins(counts))
    assert (found[0][0], found[-1][0]) == (0.0, 1.0)
    assert all(low[0] < high[0] and 0 < low[1] <= high[1] for low, high in pairwise(found))


@given(
    histograms.map(lambda counts: {low: n % 50 for low, n in counts.items()}).filter(
        lambda counts: any(counts.values())
    )
)
def test_drawing_gives_the_histogram_back(counts: dict[int, int]) -> None:
    """One draw in the middle of each request's share of the probability falls into its bin."""
    source = bins(counts)
    found, total = quantiles(source), count(source)
    number = 0
    for one in source:
        for _ in range(one.count):
            us = latency_at(found, (number + 0.5) / total)
            assert max(one.lower_us, 1) * (1 - 1e-3) <= us <= max(one.upper_us, 1) * (1 + 1e-3)
            number += 1


def test_a_difference_matches_bins_by_their_edges_and_counts_wrap() -> None:
    before = (HistogramBin(256, 512, 2**32 - 5), HistogramBin(512, 1024, 7))
    after = (HistogramBin(256, 512, 10), HistogramBin(512, 1024, 9), HistogramBin(1024, 2048, 1))
    assert [one.count for one in subtract_bins(after, before)] == [15, 2, 1]


def rows(*edges: tuple[object, object, object]) -> dict[str, object]:
    names = ("lower", "upper", "count")
    return {"num_bins": len(edges), "bins": [dict(zip(names, row, strict=True)) for row in edges]}


def test_bins_of_equal_edges_are_read() -> None:
    """Edges of fine bins round to one microsecond."""
    assert count(read_bins(rows((0, 1, 2), (1, 1, 3), (1, 2, 4)))) == 9


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ((512, 256, 1), "a bin from 512 to 256 us"),
        ((-1, 256, 1), "lower = -1"),
        ((0, 256, -1), "count = -1"),
        ((0, 256, "5"), "count = '5'"),
        ((0, 256, True), "count = True"),
        ((0, math.inf, 5), "upper = inf"),
        ((0, 5000, 5), "bins that overlap at 4096 us"),
    ],
)
def test_a_bin_that_makes_no_sense_is_refused(
    bad: tuple[object, object, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read_bins(rows(bad, (4096, 8192, 1)))
