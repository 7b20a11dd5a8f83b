"""The campaign that measures false alarms: it sees those of a rule that is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from analysis.stats import FEWEST, MedianSummary
from reliability import statistics
from reliability.campaign import RESULTS
from reliability.statistics import (
    BEFORE,
    HOSTS,
    NOW,
    SHAPES,
    Sample,
    compare_pairs,
    compare_treatments,
    cover,
    normal,
    without_blocks,
)

ONE = {"normal": normal(0.02)}
Row = dict[str, Any]


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
    [with_floor] = compare_pairs(ONE, 500, seed=1, repeats=[3])
    monkeypatch.setattr(statistics, "noise_of", lambda _: None)
    [without] = compare_pairs(ONE, 500, seed=1, repeats=[3])
    assert without.higher + without.lower > 1.5 * (with_floor.higher + with_floor.lower)


def test_a_rule_that_does_not_know_the_blocks_is_seen_to_be_worse() -> None:
    hosts = {"1 % a trial": HOSTS["1 % a trial"]}
    for now, before in zip(
        compare_treatments(hosts, 100, seed=1, slowdown=1.05),
        compare_treatments(hosts, 100, seed=1, slowdown=1.05, compare=without_blocks),
        strict=True,
    ):
        assert now.higher > before.higher + 20, now


def test_intervals_that_are_too_narrow_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    [honest] = cover(ONE, 300, seed=1, repeats=[10])
    assert honest.covering >= 0.93 * honest.intervals

    def narrow(values: Sample) -> MedianSummary:
        middle = sorted(values)[5]
        return MedianSummary(len(values), middle, middle * 0.999, middle * 1.001, "95 %")

    monkeypatch.setattr(statistics, "summarise", narrow)
    [wrong] = cover(ONE, 300, seed=1, repeats=[10])
    assert wrong.covering < 0.5 * wrong.intervals


def stored(name: str, part: str) -> list[Row]:
    return list(json.loads((RESULTS / name).read_text())[part])


def test_the_stored_false_alarms_are_those_of_a_test_of_five_percent() -> None:
    rows = [*stored(NOW, "between"), *stored(NOW, "within")]
    equal = [row for row in rows if row["slowdown"] == 1 and row["repeats"] >= FEWEST]
    assert {row["noise"] for row in equal} == {*SHAPES, *HOSTS}
    shares = {(row["noise"], row["repeats"]): different(row) for row in equal}
    assert {key: share for key, share in shares.items() if abs(share - 0.05) > 0.015} == {}


def different(row: Row) -> float:
    return float(row["higher"] + row["lower"]) / float(row["pairs"])


def test_the_stored_power_is_that_of_a_rank_test_in_every_cell() -> None:
    rows = [row for row in stored(NOW, "between") if row["repeats"] >= FEWEST]
    assert len(rows) == 5 * 5 * 3
    missed = [row for row in rows if row["higher"] < row["test_higher"] - 0.02 * row["pairs"]]
    assert missed == []


def test_on_a_host_that_drifts_at_least_twice_as_many_changes_are_found_as_before() -> None:
    """Nine of ten are enough where more than half were found before.

    A change of state between two trials of a block is in one pair of ten, which no test of so few
    can tell from a change of the program.
    """
    before = {key(row): row["higher"] / row["pairs"] for row in stored(BEFORE, "within")}
    drifting = [row for row in stored(NOW, "within") if row["noise"] != "none"]
    slowed = [row for row in drifting if row["slowdown"] > 1]
    assert len(slowed) == 3 * 3 * 3
    for row in slowed:
        factor = 1.5 if row["noise"] == "two states" else 2
        assert row["higher"] / row["pairs"] >= min(0.9, factor * before[key(row)]), row


def key(row: Row) -> tuple[str, int, float]:
    return row["noise"], row["repeats"], row["slowdown"]


def test_the_shapes_are_around_their_names() -> None:
    assert {"skewed, 20 %", "two peaks"} <= SHAPES.keys()
