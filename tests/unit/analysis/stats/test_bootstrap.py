"""Tests of the exact bootstrap against resampling and against hand calculation."""

from __future__ import annotations

import itertools
import random
import statistics
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from analysis.stats.bootstrap import median_distribution, median_interval, ratio_interval
from analysis.stats.intervals import bca_interval, median_ratio, overall_ratio, summarise
from pagecage.process import run
from tests.tree import ROOT

RESAMPLES = 99_999


def draws(n, seed=1, middle=0.0):
    draw = random.Random(seed)
    return [draw.lognormvariate(middle, 0.4) for _ in range(n)]


def every_resample(values):
    """Return the distribution of the median, from each of the n^n resamples."""
    counts = Counter(
        statistics.median(drawn) for drawn in itertools.product(values, repeat=len(values))
    )
    return {value: count / len(values) ** len(values) for value, count in counts.items()}


@pytest.mark.parametrize(
    "values", [[1], [1, 2], [1, 2, 4], [1, 2, 4, 8], [3, 1, 1, 2, 9], [5, 5, 1, 7, 7, 2]]
)
def test_the_distribution_is_that_of_all_resamples(values):
    law, known = median_distribution(values), every_resample(values)
    assert dict(zip(law.values, law.weights, strict=True)) == pytest.approx(known)
    assert law.cumulative[-1] == pytest.approx(1)


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=60))
def test_the_distribution_sums_to_one_and_lies_within_the_data(values):
    law = median_distribution(values)
    assert sum(law.weights) == pytest.approx(1, abs=1e-6)
    assert min(values) <= law.values[0] <= law.values[-1] <= max(values)
    assert list(law.values) == sorted(set(law.values))


def drawn(sides, statistic):
    interval = scipy_stats.bootstrap(
        [np.array(side) for side in sides],
        statistic,
        vectorized=True,
        method="BCa",
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(1),
    ).confidence_interval
    return float(interval.low), float(interval.high)


@pytest.mark.parametrize("n", [6, 7, 8, 11, 20, 31, 50])
def test_the_interval_of_a_median_is_the_one_scipy_draws(n):
    values = draws(n, n)
    assert median_interval(values, 0.95) == pytest.approx(drawn([values], np.median))


@pytest.mark.parametrize("seed", [0, 3, 7])
def test_skew_moves_the_interval_as_it_does_with_scipy(seed):
    """The values are chosen so that the acceleration and its sign change an end of the interval."""
    draw = random.Random(seed)
    values = [round(draw.expovariate(1) ** 2 * 100, 1) for _ in range(15)]
    assert median_interval(values, 0.95) == pytest.approx(drawn([values], np.median))


@pytest.mark.parametrize(
    ("n", "m", "off"),
    [(6, 6, 0.03), (7, 12, 0.012), (15, 9, 0.012), (20, 20, 0.012), (30, 6, 0.012)],
)
def test_the_interval_of_a_ratio_is_the_one_scipy_draws(n, m, off):
    """Resampling finds the ends only approximately, so that their quantiles are compared."""
    over, under = draws(n, n, 1.0), draws(m, m + 100)
    ours = ratio_interval(over, under, 0.95)
    theirs = drawn(
        [over, under], lambda a, b, axis: np.median(a, axis=axis) / np.median(b, axis=axis)
    )
    tops, bottoms = (
        np.random.default_rng(7).choice(side, (20_000, len(side))) for side in (over, under)
    )
    ratios = np.median(tops, axis=1) / np.median(bottoms, axis=1)
    places = [[float(np.mean(ratios <= end)) for end in ends] for ends in (ours, theirs)]
    assert places[0] == pytest.approx(places[1], abs=off)


@given(st.lists(st.integers(1, 10**6), min_size=6, max_size=20), st.integers(-5, 5))
def test_intervals_scale_with_the_data(values, power):
    low, high = median_interval(values, 0.95)
    scaled = median_interval([2.0**power * value for value in values], 0.95)
    assert scaled == pytest.approx((2.0**power * low, 2.0**power * high))
    assert low <= high


def test_values_that_do_not_vary_are_their_own_interval():
    assert median_interval([3.0] * 9, 0.95) == (3, 3)
    assert ratio_interval([6.0] * 7, [2.0] * 8, 0.95) == (3, 3)


def test_bca_needs_six_values_and_of_many_is_drawn():
    assert bca_interval([1, 2, 3, 4, 5]) is None
    many = draws(101)
    assert bca_interval(many) == pytest.approx(median_interval(many, 0.95), rel=0.03)


def test_bca_covers_less_than_the_exact_interval():
    """With seven values BCa covers the median in 87 % of cases; tables show the exact one."""
    draw, held = random.Random(2), Counter()
    for _ in range(600):
        values = [draw.lognormvariate(0, 0.3) for _ in range(7)]
        exact, (low, high) = summarise(values), bca_interval(values)
        held.update(exact=exact.low <= 1 <= exact.high, bca=low <= 1 <= high)
    assert held["exact"] >= 570  # 98.4 % are expected
    assert 480 <= held["bca"] <= 555


def blocks(count, treatments, shift=0.0, together=0.0, seed=1):
    """Return blocks with one trial per treatment; disturbances up to `together` affect a block."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        block = draw.gauss(0, together)
        found.append(
            {f"t{n}": [np.exp(n + shift + block + draw.gauss(0, 0.02))] for n in range(treatments)}
        )
    return found


def test_the_overall_ratio_is_the_geometric_mean_of_its_treatments():
    under = [{"a": [1.0], "b": [10.0]}] * 2
    over = [{"a": [2.0], "b": [80.0]}] * 2
    found = overall_ratio(over, under)
    assert (found.middle, found.low, found.high, found.kind) == (pytest.approx(4), 2, 8, "range")
    assert overall_ratio([{"a": [1.0]}], [{"b": [1.0]}]) is None
    assert overall_ratio([{"a": [1.0]}], [{"a": [0.0]}]) is None


def test_the_overall_ratio_has_a_known_value():
    found = overall_ratio(blocks(12, 8, shift=np.log(1.2), seed=1), blocks(12, 8, seed=2))
    assert found.kind == "95 %"
    assert found.low < 1.2 < found.high
    assert found.high - found.low < 0.03


def test_what_disturbs_whole_blocks_widens_the_interval():
    """Drawing single trials would hide that the treatments of a block rise and fall together."""
    alone = overall_ratio(blocks(12, 8, seed=1), blocks(12, 8, seed=2))
    together = overall_ratio(
        blocks(12, 8, together=0.2, seed=1), blocks(12, 8, together=0.2, seed=2)
    )
    assert together.high - together.low > 4 * (alone.high - alone.low)


def test_the_overall_ratio_covers_its_value():
    held = 0
    for seed in range(60):
        found = overall_ratio(
            blocks(10, 4, together=0.1, seed=seed), blocks(10, 4, together=0.1, seed=1000 + seed)
        )
        held += found.low <= 1 <= found.high
    assert held >= 51  # 57 of 60 are expected; the chance of 50 or fewer is below 1 in 200


def test_many_trials_of_a_block_are_drawn_within_it():
    one, other = ([{"a": draws(5, seed + k)} for k in range(8)] for seed in (1, 50))
    found = overall_ratio(one, other)
    assert found.low < found.middle < found.high
    assert found == overall_ratio(one, other)


def test_ratios_need_no_slow_imports():
    program = (
        "import sys; from analysis.stats.intervals import median_ratio; median_ratio(range(1, 9),"
        " range(2, 12)); print({'numpy', 'scipy', 'pandas'} & set(sys.modules))"
    )
    assert run([sys.executable, "-c", program], cwd=ROOT).stdout.strip() == "set()"


def test_the_command_line_starts_without_what_only_some_verbs_need():
    program = "import sys, pagecage.cli.main; print(*sys.modules)"
    loaded = set(run([sys.executable, "-c", program], cwd=ROOT).stdout.split())
    late = {"pydantic", "qemu", "rich.console", *(f"pagecage.{part}" for part in LATE)}
    assert not {name for name in loaded if any(f"{name}.".startswith(f"{part}.") for part in late)}
    assert "pagecage.cli.failures" in loaded


LATE = (
    "agent",
    "bundle",
    "definitions",
    "hosts",
    "model.experiment",
    "model.record",
    "planning",
    "runner",
    "verdicts",
)
"""Parts of pagecage that are slow to import and that only some verbs need."""


def test_a_ratio_of_few_is_still_its_extremes():
    assert median_ratio([10, 20, 30], [1, 2, 4]).kind == "range"
