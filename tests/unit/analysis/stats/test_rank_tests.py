"""Rank tests against scipy's, against every order of small samples, and as properties."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from analysis import stats
from analysis.stats import (
    FEWEST,
    RatioInterval,
    quotient,
    rank_sum_limits,
    ratio_of_pairs,
    ratio_of_samples,
    signed_rank_limits,
)

RATIOS = st.floats(0.01, 100)
SAMPLES = st.lists(RATIOS, min_size=FEWEST, max_size=12)


def is_different(found: RatioInterval) -> bool:
    return not found.low <= 1 <= found.high


def drawn(seed: int, count: int, middle: float = 0.0) -> list[float]:
    source = random.Random(seed)
    return [source.lognormvariate(middle, 0.3) for _ in range(count)]


@pytest.mark.parametrize("sizes", [(5, 5), (5, 6), (6, 5), (7, 5)])
def test_of_all_orders_of_two_samples_the_stated_share_is_rejected(sizes: tuple[int, int]) -> None:
    values = [2.0**n for n in range(sum(sizes))]
    orders = list(itertools.combinations(values, sizes[0]))
    rejected = sum(
        is_different(ratio_of_samples(order, [v for v in values if v not in order]))
        for order in orders
    )
    assert rejected / len(orders) == pytest.approx(1 - rank_sum_limits(*sizes)[1])


@pytest.mark.parametrize("count", [5, 6, 7, 8, 10])
def test_of_all_signs_of_pairs_the_stated_share_is_rejected(count: int) -> None:
    sizes = [1.1**n for n in range(1, count + 1)]
    signs = list(itertools.product((1, -1), repeat=count))
    rejected = sum(
        is_different(ratio_of_pairs([size**sign for size, sign in zip(sizes, one, strict=True)]))
        for one in signs
    )
    assert rejected / len(signs) == pytest.approx(1 - signed_rank_limits(count)[1])


def test_from_five_values_on_false_alarms_are_within_a_point_and_a_half_of_five_percent() -> None:
    sizes = itertools.product(range(FEWEST, 41), repeat=2)
    levels = {(m, n): 1 - rank_sum_limits(m, n)[1] for m, n in sizes}
    levels |= {(n, 0): 1 - signed_rank_limits(n)[1] for n in range(FEWEST, 41)}
    assert {size: level for size, level in levels.items() if abs(level - 0.05) > 0.015} == {}


@pytest.mark.parametrize("sizes", [(5, 5), (5, 9), (12, 7), (20, 20), (49, 51)])
def test_two_samples_differ_where_scipys_exact_test_rejects(sizes: tuple[int, int]) -> None:
    words = set()
    for seed in range(60):
        over, under = drawn(seed, sizes[0], 0.2), drawn(seed + 1000, sizes[1])
        p = scipy_stats.mannwhitneyu(over, under, method="exact").pvalue
        level = 1 - rank_sum_limits(*sizes)[1]
        assert is_different(ratio_of_samples(over, under)) is bool(p <= level + 1e-9), seed
        words.add(bool(p <= level))
    assert words == {True, False}


@pytest.mark.parametrize("count", [5, 6, 9, 15, 30])
def test_pairs_differ_where_scipys_exact_test_rejects(count: int) -> None:
    words = set()
    for seed in range(60):
        ratios = drawn(seed, count, 0.15)
        p = scipy_stats.wilcoxon([math.log(ratio) for ratio in ratios], method="exact").pvalue
        level = 1 - signed_rank_limits(count)[1]
        assert is_different(ratio_of_pairs(ratios)) is bool(p <= level + 1e-9), seed
        words.add(bool(p <= level))
    assert words == {True, False}


@pytest.mark.parametrize(
    ("exact", "sizes"),
    [(rank_sum_limits, (60, 60)), (rank_sum_limits, (30, 100)), (signed_rank_limits, (80,))],
)
def test_the_approximation_of_many_is_the_exact_rank(
    exact: object, sizes: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    approximate = exact.__wrapped__(*sizes)  # type: ignore[attr-defined]
    monkeypatch.setattr(stats, "_MOST_EXACT", 10**9)
    whole = exact.__wrapped__(*sizes)  # type: ignore[attr-defined]
    assert approximate[1] == 0.95
    assert whole[1] == pytest.approx(0.95, abs=0.001)
    assert abs(approximate[0] - whole[0]) <= 1


def test_quantiles_of_many_values_give_the_interval_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over, under = drawn(1, 1500, 0.1), drawn(2, 900)
    few = ratio_of_samples(over, under), ratio_of_pairs(over)
    monkeypatch.setattr(stats, "_MOST_VALUES", 10**9)
    for short, whole in zip(
        few, (ratio_of_samples(over, under), ratio_of_pairs(over)), strict=True
    ):
        width = math.log(whole.high / whole.low)
        for end in ("low", "middle", "high"):
            assert abs(math.log(getattr(short, end) / getattr(whole, end))) < 0.05 * width


@given(SAMPLES, SAMPLES)
def test_the_middle_is_the_median_of_all_ratios_and_within_its_interval(
    over: list[float], under: list[float]
) -> None:
    found = ratio_of_samples(over, under)
    logs = [math.log(x / y) for x in over for y in under]
    assert math.log(found.middle) == pytest.approx(median(logs), abs=1e-9)
    assert min(over) / max(under) <= found.low <= found.middle <= found.high
    assert found.high <= max(over) / min(under)


@given(SAMPLES)
def test_the_middle_of_pairs_is_the_median_of_their_means(ratios: list[float]) -> None:
    found = ratio_of_pairs(ratios)
    pairs = itertools.combinations_with_replacement(map(math.log, ratios), 2)
    assert math.log(found.middle) == pytest.approx(median(sum(p) / 2 for p in pairs), abs=1e-9)
    assert min(ratios) <= found.low <= found.middle <= found.high <= max(ratios)


@given(SAMPLES, SAMPLES)
def test_the_inverse_ratio_has_the_inverse_interval(over: list[float], under: list[float]) -> None:
    one, other = ratio_of_samples(over, under), ratio_of_samples(under, over)
    ends = [(one.middle, other.middle), (one.low, other.high), (one.high, other.low)]
    assert all(end == pytest.approx(1 / inverse) for end, inverse in ends)


def test_equal_counts_are_no_difference_and_zeros_are_compared() -> None:
    equal = ratio_of_samples([7.0] * 5, [7.0] * 6)
    assert (equal.low, equal.middle, equal.high) == (1, 1, 1)
    assert (quotient(0, 0), quotient(0, 2), quotient(2, 0)) == (1, 0, math.inf)
    zero = ratio_of_samples([0.0] * 5, [0.0, 0.0, 0.0, 3.0, 4.0])
    assert (zero.low, zero.high) == (0, 1)
    assert ratio_of_samples([1.0] * 5, [0.0] * 5).low == math.inf


def test_ratios_that_cancel_are_exactly_one() -> None:
    """sqrt(1/2) * sqrt(2) is a little more than 1 in binary, and would be a difference."""
    assert ratio_of_pairs([0.5, 2, 0.5, 2, 0.5, 2]).middle == 1
    assert ratio_of_pairs([2, 0.5, 2, 2, 2, 2]).low == 1
