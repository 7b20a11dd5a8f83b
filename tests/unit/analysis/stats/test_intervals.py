"""Tests of statistics against printed tables, hand calculation, and properties of all data."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.stats.intervals import median_ratio, summarise

VALUES = st.lists(st.floats(min_value=1e-3, max_value=1e6), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("n", "low", "high"),
    # Ranks of the 95 % interval of a median, from printed tables of the sign test.
    [
        (6, 1, 6),
        (8, 1, 8),
        (9, 2, 8),
        (10, 2, 9),
        (12, 3, 10),
        (15, 4, 12),
        (20, 6, 15),
        (25, 8, 18),
        (30, 10, 21),
    ],
)
def test_the_exact_interval_of_a_median_has_the_printed_ranks(n, low, high):
    found = summarise(random.Random(1).sample(range(1, n + 1), n))
    assert (found.low, found.high, found.kind) == (low, high, "95 %")


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_fewer_than_six_have_a_range_and_say_so(n):
    found = summarise(list(range(n, 0, -1)))
    assert (found.low, found.high, found.kind, found.n) == (1, n, "range", n)


def test_the_median_is_the_middle_not_the_mean():
    assert summarise([1, 2, 1000]).middle == 2
    assert summarise([1, 2, 3, 1000]).middle == 2.5


def test_the_median_of_no_values_is_an_error():
    with pytest.raises(ValueError, match="no values"):
        summarise([])
    with pytest.raises(ValueError, match="no values"):
        median_ratio([1.0], [])


def test_a_ratio_of_few_spans_its_extremes():
    found = median_ratio([10, 20, 30], [1, 2, 4])
    assert (found.middle, found.low, found.high, found.kind) == (10, 2.5, 30, "range")


def test_a_ratio_of_many_is_bootstrapped_the_same_each_time():
    draw = random.Random(5)
    over, under = ([draw.gauss(mean, 1) for _ in range(20)] for mean in (60, 20))
    first, second = median_ratio(over, under), median_ratio(over, under)
    assert first == second
    assert first.kind == "95 %"
    assert first.low < 3 < first.high
    assert first.high - first.low < 0.5


def test_the_exact_interval_covers_the_median():
    draw, covered = random.Random(11), 0
    for _ in range(40):
        over, under = ([draw.lognormvariate(mu, 0.3) for _ in range(15)] for mu in (1.0, 0.0))
        found = median_ratio(over, under)
        covered += found.low <= 2.718281828 <= found.high
    assert covered >= 33  # 38 of 40 are expected; the chance of 33 or fewer is 1 in 1000


def test_values_that_do_not_vary_have_a_ratio_too():
    found = median_ratio([6.0] * 7, [2.0] * 7)
    assert (found.middle, found.low, found.high) == (3, 3, 3)


@settings(deadline=None)  # a busy machine is not a failure
@given(values=VALUES)
def test_the_median_lies_within_its_interval_and_that_within_the_data(values):
    found = summarise(values)
    assert min(values) <= found.low <= found.middle <= found.high <= max(values)


@settings(deadline=None)  # a busy machine is not a failure
@given(
    over=st.lists(st.floats(1, 1e3), min_size=1, max_size=5),
    under=st.lists(st.floats(1, 1e3), min_size=1, max_size=5),
)
def test_the_inverse_ratio_has_the_inverse_interval(over, under):
    one, other = median_ratio(over, under), median_ratio(under, over)
    assert one.middle == pytest.approx(1 / other.middle)
    assert one.low == pytest.approx(1 / other.high)
