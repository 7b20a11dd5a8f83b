"""Tests of knees and of lengths of functions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from analysis.articles.rules import evaluate_source_lines
from analysis.articles.sides import evaluate_knee

LEVELS = ["1", "512", "1024", "8192"]
CLAIM = {
    "response": "full_pass_seconds",
    "along": "block",
    "tolerance_factor": 2.0,
}


def knee(*seconds: float | None, published: int = 1024) -> tuple[Any, Any]:
    trials: list[Any] = [
        SimpleNamespace(
            is_killed=False,
            record=SimpleNamespace(
                treatment={"block": level}, response={"full_pass_seconds": value}
            ),
        )
        for level, value in zip(LEVELS, seconds, strict=True)
    ]
    run: Any = SimpleNamespace(factors={"block": LEVELS})
    return evaluate_knee(run, {**CLAIM, "published": published}, trials)


def test_a_knee_is_the_level_from_which_on_nothing_is_gained() -> None:
    summary, (held, reason) = knee(80, 8, 4, 3.9)
    assert (summary.middle, held) == (1024, True)
    assert "above 1,024" in reason


@pytest.mark.parametrize("seconds", [(4, 4, 4, 4), (5, 4, 4, 4), (80, 40, 20, 10)])
def test_equal_times_or_falling_ones_have_no_knee(seconds: tuple[float, ...]) -> None:
    summary, (held, reason) = knee(*seconds)
    assert (summary, held) == (None, False)
    assert "there is no knee" in reason


def test_a_knee_elsewhere_does_not_hold() -> None:
    summary, (held, _) = knee(80, 8, 8, 8, published=8192)
    assert (summary.middle, held) == (512, False)


def test_a_level_without_a_figure_leaves_it_undecided() -> None:
    assert knee(80, None, 4, 4) == (None, (None, "no figure for block 512"))


def test_lines_of_a_function_are_counted_without_comments() -> None:
    claim = {"published": 10, "tolerance_factor": 2.0}
    lines, (held, _) = evaluate_source_lines(
        {**claim, "key": "workloads/java/Segment.java: long valueAt("}
    )
    assert (lines, held) == (3, False)
    nothing = {**claim, "key": "workloads/java/Segment.java: long nosuch("}
    assert evaluate_source_lines(nothing)[0] is None
