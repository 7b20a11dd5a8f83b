"""Intervals, rank tests and change points against other libraries, and as properties."""

from __future__ import annotations

import functools
import itertools
import math
import random
import sys
from collections.abc import Sequence
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruptures import Pelt
from scipy import stats as scipy_stats

from analysis import stats
from analysis.stats import (
    FEWEST,
    MedianSummary,
    blocked_ratio,
    median_ratio,
    overall_ratio,
    quotient,
    rank_sum_limits,
    ratio_of_pairs,
    ratio_of_samples,
    signed_rank_limits,
    summarise,
)
from pagecage.process import run
from tests.tree import ROOT

VALUES = st.lists(st.floats(min_value=1e-3, max_value=1e6), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("n", "low", "high"),
    # Ranks of the 95 % interval of a median, from printed tables of the sign test.
    [
        *((6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (12, 3, 10)),
        *((15, 4, 12), (20, 6, 15), (25, 8, 18), (30, 10, 21)),
    ],
)
def test_the_exact_interval_of_a_median_has_the_printed_ranks(n: int, low: int, high: int) -> None:
    found = summarise(random.Random(1).sample(range(1, n + 1), n))
    assert (found.low, found.high, found.kind) == (low, high, "95 %")


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_fewer_than_six_have_a_range_and_say_so(n: int) -> None:
    found = summarise(list(range(n, 0, -1)))
    assert (found.low, found.high, found.kind, found.n) == (1, n, "range", n)


def test_the_median_is_the_middle_not_the_mean() -> None:
    assert summarise([1, 2, 1000]).middle == 2
    assert summarise([1, 2, 3, 1000]).middle == 2.5


def test_the_median_of_no_values_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        summarise([])
    with pytest.raises(ValueError, match="no values"):
        median_ratio([1.0], [])


def test_a_ratio_of_few_spans_its_extremes() -> None:
    found = median_ratio([10, 20, 30], [1, 2, 4])
    assert (found.middle, found.low, found.high, found.kind) == (10, 2.5, 30, "range")


def test_a_ratio_of_five_has_the_interval_of_a_test_and_states_its_confidence() -> None:
    found = median_ratio([10.0, 11.0, 12.0, 13.0, 14.0], [5.0] * 5)
    assert (found.n, found.middle, found.kind) == (5, 2.4, "94 %")
    assert (found.low, found.high) == (2.0, 2.8)
    assert median_ratio([1.0] * 10, [1.0] * 10).kind == "95 %"


def test_pairs_within_blocks_are_free_of_what_drifts() -> None:
    """The host slows down to a half, and one side takes a tenth longer."""
    under = [1.0 + 0.1 * n for n in range(10)]
    over = [1.1 * value * (1 + 0.001 * n) for n, value in enumerate(under)]
    apart = blocked_ratio([over, under], [])
    assert apart.low < 1 < apart.high
    found = blocked_ratio([over, under], list(zip(over, under, strict=True)))
    assert (found.n, found.kind) == (10, "95 %")
    assert 1.1 <= found.low <= found.middle <= found.high <= 1.11


def test_fewer_than_five_rows_are_compared_as_independent_samples() -> None:
    over, under = [float(n) for n in range(10, 16)], [float(n) for n in range(5, 11)]
    rows = [[10.0, 5.0]] * 4
    assert blocked_ratio([over, under], rows) == median_ratio(over, under)
    assert blocked_ratio([[2.0], [1.0]], [[2.0, 1.0]]).kind == "range"
    with pytest.raises(ValueError, match="no values"):
        blocked_ratio([[1.0], []], [])


def test_a_ratio_of_ratios_is_that_of_its_rows_or_spans_what_its_sides_span() -> None:
    few = blocked_ratio([[4.0, 6.0], [1.0], [2.0], [1.0]], [])
    assert (few.middle, few.low, few.high, few.kind) == (2.5, 2.0, 3.0, "range")
    rows = [[6.0 + n, 1.0, 3.0 + n / 2, 1.0] for n in range(6)]
    many = blocked_ratio([list(side) for side in zip(*rows, strict=True)], rows)
    assert (many.middle, many.low, many.high, many.kind) == (2, 2, 2, "94 %")
    with pytest.raises(ValueError, match="no values"):
        blocked_ratio([[1.0], [1.0], [], [1.0]], [])


def test_values_that_do_not_vary_have_a_ratio_too() -> None:
    found = median_ratio([6.0] * 7, [2.0] * 7)
    assert (found.middle, found.low, found.high) == (3, 3, 3)


@given(values=VALUES)
def test_the_median_lies_within_its_interval_and_that_within_the_data(values: list[float]) -> None:
    found = summarise(values)
    assert min(values) <= found.low <= found.middle <= found.high <= max(values)


@given(
    over=st.lists(st.floats(1, 1e3), min_size=1, max_size=5),
    under=st.lists(st.floats(1, 1e3), min_size=1, max_size=5),
)
def test_the_inverse_ratio_has_the_inverse_interval(over: list[float], under: list[float]) -> None:
    one, other = median_ratio(over, under), median_ratio(under, over)
    assert one.middle == pytest.approx(1 / other.middle)
    assert one.low == pytest.approx(1 / other.high)


def blocks(
    count: int, treatments: int, shift: float = 0.0, together: float = 0.0, seed: int = 1
) -> list[dict[str, list[float]]]:
    """Return blocks with one trial per treatment; disturbances up to `together` affect a block."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        log = shift + draw.gauss(0, together)
        found.append(
            {f"t{n}": [math.exp(n + log + draw.gauss(0, 0.02))] for n in range(treatments)}
        )
    return found


def overall(over: Sequence[stats.Block], under: Sequence[stats.Block]) -> MedianSummary:
    found = overall_ratio(over, under)
    assert found is not None
    return found


def test_the_overall_ratio_is_the_geometric_mean_of_its_treatments() -> None:
    under = [{"a": [1.0], "b": [10.0]}] * 2
    over = [{"a": [2.0], "b": [80.0]}] * 2
    found = overall(over, under)
    assert found.middle == pytest.approx(4)
    assert (found.low, found.high, found.kind) == (2, 8, "range")
    assert overall_ratio([{"a": [1.0]}], [{"b": [1.0]}]) is None
    assert overall_ratio([{"a": [1.0]}], [{"a": [0.0]}]) is None


def test_a_block_without_a_treatment_is_compared_by_those_that_it_has() -> None:
    under, over = blocks(8, 2, seed=1), blocks(8, 2, shift=math.log(1.2), seed=2)
    for number in (1, 4, 6):
        del over[number]["t1"]  # the slower of the two
    found = overall(over, under)
    assert (found.n, found.kind) == (8, "95 %")
    assert found.low > 1.15
    assert found.high < 1.25


def test_the_overall_ratio_has_a_known_value() -> None:
    found = overall(blocks(12, 8, shift=math.log(1.2), seed=1), blocks(12, 8, seed=2))
    assert found.kind == "95 %"
    assert found.low < 1.2 < found.high
    assert found.high - found.low < 0.03


def test_what_disturbs_whole_blocks_widens_the_interval() -> None:
    """Drawing single trials would hide that the treatments of a block rise and fall together."""
    alone, together = (
        overall(*(blocks(12, 8, together=share, seed=seed) for seed in (1, 2)))
        for share in (0, 0.2)
    )
    assert together.high - together.low > 4 * (alone.high - alone.low)


def test_the_overall_ratio_covers_its_value() -> None:
    held = 0
    for seed in range(60):
        sides = (blocks(10, 4, together=0.1, seed=each) for each in (seed, 1000 + seed))
        found = overall(*sides)
        held += found.low <= 1 <= found.high
    assert held >= 51  # 57 of 60 are expected; the chance of 50 or fewer is below 1 in 200


def test_ratios_need_no_slow_imports() -> None:
    program = (
        "import sys; from analysis.stats import median_ratio; median_ratio(range(1, 9),"
        " range(2, 12)); print({'numpy', 'scipy', 'pandas'} & set(sys.modules))"
    )
    assert run([sys.executable, "-c", program], cwd=ROOT).stdout.strip() == "set()"


RATIOS = st.floats(0.01, 100)
SAMPLES = st.lists(RATIOS, min_size=FEWEST, max_size=12)


def is_different(found: MedianSummary) -> bool:
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
    exact: functools._lru_cache_wrapper[tuple[int, float]],
    sizes: Sequence[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    approximate = exact.__wrapped__(*sizes)
    monkeypatch.setattr(stats, "_MOST_EXACT", 10**9)
    whole = exact.__wrapped__(*sizes)
    assert approximate[1] == 0.95
    assert whole[1] == pytest.approx(0.95, abs=0.001)
    assert abs(approximate[0] - whole[0]) <= 1


def test_quantiles_of_many_values_give_the_interval_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    over, under = drawn(1, 1500, 0.1), drawn(2, 900)
    few = ratio_of_samples(over, under), ratio_of_pairs(over)
    monkeypatch.setattr(stats, "_MOST_VALUES", 10**9)
    every = ratio_of_samples(over, under), ratio_of_pairs(over)
    for short, whole in zip(few, every, strict=True):
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
def test_the_inverse_ratio_of_a_test_has_the_inverse_interval(
    over: list[float], under: list[float]
) -> None:
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


def series(seed: int, length: int) -> list[float]:
    """Return a series whose level changes at random."""
    values: list[float] = []
    draw, level = random.Random(seed), 0.0
    for _ in range(length):
        level += draw.choice([0.0] * 6 + [0.2, -0.2])
        values.append(math.exp(level + draw.gauss(0, 0.05)))
    return values


def by_ruptures(values: Sequence[float]) -> list[int]:
    signal = np.array(stats._by_noise(values)).reshape(-1, 1)
    found = Pelt(model="l2", min_size=2, jump=1).fit(signal)
    return [int(end) for end in found.predict(pen=stats._PENALTY * math.log(len(values)))[:-1]]


@pytest.mark.parametrize("length", [4, 5, 8, 15, 40, 120])
def test_segments_are_those_of_ruptures(length: int) -> None:
    pairs = [
        (stats.change_points(values), by_ruptures(values))
        for values in (series(seed, length) for seed in range(25))
    ]
    assert all(mine == theirs for mine, theirs in pairs)
    assert length < 8 or any(mine for mine, _ in pairs)


def test_a_long_series_takes_no_second() -> None:
    values = series(1, 1000)
    assert stats.change_points(values) == by_ruptures(values)


def test_a_treatment_that_mostly_reads_nothing_divides_nothing() -> None:
    """Its median is zero on both sides, and one of its values is not."""
    read, nothing = {"a": [4.0], "b": [3.0]}, {"a": [4.0], "b": [0.0]}
    blocks = [read, nothing, nothing, nothing, nothing]
    assert overall(blocks, blocks).middle == 1.0
