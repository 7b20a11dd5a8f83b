"""Tests of numeric levels and table layouts."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.data.load import numeric_levels, sort_levels, table_layout


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (["128", "0", "64"], [0, 64, 128]),
        (["64KiB", "4KiB", "1MiB"], [4096, 65536, 2**20]),
        (["t24", "t1", "t4"], [1, 4, 24]),
        (["10ms", "none", "1ms"], [0, 0.001, 0.01]),
        (["0.5", "2"], [0.5, 2]),
    ],
)
def test_numeric_levels_are_sorted(levels, expected):
    found = numeric_levels(levels)
    assert [found[level] for level in sort_levels(levels)] == pytest.approx(expected)


@pytest.mark.parametrize(
    "levels",
    [
        ["sync1", "threads8"],
        ["cold", "resident"],
        ["8", "8.0"],
        ["4KiB", "4XiB"],
        ["iops-500", "uncaged"],
        ["1"],
        ["none", "off"],
    ],
)
def test_other_levels_stay_as_the_definition_has_them(levels):
    assert numeric_levels(levels) is None
    assert sort_levels(levels) == levels


@given(st.lists(st.integers(0, 10**6), min_size=2, unique=True))
def test_order_is_a_permutation_and_by_number(values):
    levels = [f"ra{value}" for value in values]
    assert sort_levels(levels) == [f"ra{value}" for value in sorted(values)]


def plan(factors):
    return [
        dict(zip(factors, levels, strict=True)) for levels in itertools.product(*factors.values())
    ]


def test_three_factors_have_the_last_one_across():
    factors = {"cage": ["a", "b"], "source": ["x", "y", "z"], "pattern": ["s", "r"]}
    layout = table_layout(factors, plan(factors))
    assert (layout.down, layout.across, layout.constant) == (("cage", "source"), "pattern", {})


def test_a_factor_with_one_level_left_is_constant():
    factors = {"cage": ["a", "b"], "source": ["x", "y"], "pattern": ["s", "r"]}
    layout = table_layout(factors, [t for t in plan(factors) if t["cage"] == "b"])
    assert (layout.down, layout.across, layout.constant) == (("source",), "pattern", {"cage": "b"})


def test_many_factors_many_levels_gaps_and_a_single_factor_are_rows():
    four = {name: ["1", "2"] for name in "abcd"}
    wide = {"a": ["1", "2"], "b": [str(n) for n in range(9)]}
    square = {"a": ["1", "2", "3"], "b": ["1", "2", "3"]}
    assert table_layout(four, plan(four)).across is None
    assert table_layout(wide, plan(wide)).across is None
    assert table_layout(square, [{"a": n, "b": n} for n in "123"]).across is None
    assert table_layout({"a": ["1", "2"]}, [{"a": "1"}, {"a": "2"}]).down == ("a",)


@given(st.integers(1, 5), st.integers(0, 2**32))
def test_every_factor_stands_somewhere_and_once(count, seed):
    draw = random.Random(seed)
    factors = {f"f{n}": [str(level) for level in range(draw.randint(1, 6))] for n in range(count)}
    layout = table_layout(
        factors, draw.sample(plan(factors), draw.randint(1, min(30, len(plan(factors)))))
    )
    used = [*layout.down, *([layout.across] if layout.across else []), *layout.constant]
    assert sorted(used) == sorted(factors)
    assert layout.down
