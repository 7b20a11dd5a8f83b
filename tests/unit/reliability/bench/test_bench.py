"""The interval that the benchmark prints."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.data.load import load_run
from reliability.bench.bed import ratio_of_pairs
from reliability.bench.render import TREATMENTS, make_run


@pytest.mark.parametrize(("count", "left_out"), [(5, 0), (6, 0), (9, 1), (12, 2), (15, 3), (20, 5)])
def test_interval_leaves_out_as_many_as_the_binomial_distribution_says(
    count: int, left_out: int
) -> None:
    ratios = [1.0 + n for n in range(count)]
    _, low, high = ratio_of_pairs(ratios, [1.0] * count)
    assert (low, high) == (ratios[left_out], ratios[-1 - left_out])


@pytest.mark.parametrize("blocks", [1, 2])
def test_the_run_that_reports_are_timed_on_is_a_run(tmp_path: Path, blocks: int) -> None:
    run = load_run(make_run(tmp_path / "run", blocks * TREATMENTS, 50 * blocks * TREATMENTS))
    assert [trial.is_included for trial in run.trials] == [True] * blocks * TREATMENTS
    assert sum(len(trial.series.t) for trial in run.trials) == 50 * blocks * TREATMENTS
    assert {trial.verdicts.cache_state_reached.verdict for trial in run.trials} == {"reached"}


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=40))
def test_median_lies_inside(ratios: list[float]) -> None:
    middle, low, high = ratio_of_pairs(ratios, [1.0] * len(ratios))
    assert low <= middle <= high


def test_interval_holds_the_median_in_about_95_of_100_cases() -> None:
    draw = random.Random(1)
    held = 0
    for _ in range(1000):
        _, low, high = ratio_of_pairs([draw.lognormvariate(0, 0.3) for _ in range(15)], [1.0] * 15)
        held += low <= 1.0 <= high
    assert 940 <= held <= 985
