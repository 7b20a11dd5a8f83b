"""The campaign that measures false alarms: it sees those of a rule that is wrong."""

from __future__ import annotations

import pytest

from analysis.stats.intervals import MedianSummary
from tests.trust import comparisons
from tests.trust.comparisons import compare_pairs, cover
from tests.trust.distributions import SHAPES, normal

ONE = {"normal": normal(0.02)}


def test_equal_samples_are_seldom_called_different() -> None:
    for row in compare_pairs(ONE, 200, seed=1):
        assert row.higher + row.lower <= 0.1 * row.pairs, row
        assert row.gate_failed == 0, row


def test_a_slow_down_of_a_fifth_is_always_found_in_little_noise() -> None:
    for row in compare_pairs(ONE, 40, seed=1, slowdown=1.2):
        assert row.higher == row.pairs, row


def test_the_same_seed_gives_the_same_figures() -> None:
    assert list(compare_pairs(ONE, 20, seed=3)) == list(compare_pairs(ONE, 20, seed=3))
    assert list(compare_pairs(ONE, 20, seed=3)) != list(compare_pairs(ONE, 20, seed=4))


def test_a_rule_without_a_noise_floor_is_seen_to_be_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparisons, "REPEATS", (3,))
    [with_floor] = compare_pairs(ONE, 500, seed=1)
    monkeypatch.setattr(comparisons, "noise_of", lambda _: None)
    [without] = compare_pairs(ONE, 500, seed=1)
    assert without.higher + without.lower > 2 * (with_floor.higher + with_floor.lower)


def test_intervals_that_are_too_narrow_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparisons, "REPEATS", (10,))
    [honest] = cover(ONE, 300, seed=1)
    assert honest.covering >= 0.93 * honest.intervals

    def narrow(values: list[float]) -> MedianSummary:
        middle = sorted(values)[5]
        return MedianSummary(len(values), middle, middle * 0.999, middle * 1.001, "95 %")

    monkeypatch.setattr(comparisons, "summarise", narrow)
    [wrong] = cover(ONE, 300, seed=1)
    assert wrong.covering < 0.5 * wrong.intervals


def test_the_shapes_are_around_their_names() -> None:
    assert {"skewed, 20 %", "two peaks"} <= SHAPES.keys()
