"""Explanations of rows that do not hold, stored beside the bundles of the runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.articles.scorecard import (
    FILE,
    Deviation,
    ScoredClaim,
    read_deviations,
    unexplained,
    with_figures,
)
from pagecage.errors import PagecageError

ONE = '[[deviations]]\nclaims = ["000-1"]\ncause = "a faster disk"\nevidence = ["fio-matrix"]\n'


def row(id_: str, verdict: str) -> ScoredClaim:
    return ScoredClaim(
        id_, "smoke", "says", 1, "s", 2.0, None, None, 1, verdict, "reason", "", "run"
    )


def test_without_a_file_nothing_is_explained(tmp_path: Path) -> None:
    assert read_deviations(tmp_path) == ()


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(ONE)
    assert read_deviations(tmp_path) == (Deviation(("000-1",), "a faster disk", ("fio-matrix",)),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[", "is not a list of deviations"),
        ("", "is not a list of deviations"),
        (ONE.replace("cause", "reason"), "is incomplete"),
        (ONE.replace('["fio-matrix"]', "[]"), "is incomplete"),
        (ONE + ONE, "explains 000-1 twice"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(PagecageError, match=message):
        read_deviations(tmp_path)


def test_only_rows_that_do_not_hold_need_an_explanation() -> None:
    rows = [row("000-1", "not_held"), row("000-2", "held"), row("000-3", "not_held")]
    assert unexplained(rows, [Deviation(("000-1",), "cause", ("smoke",))]) == ["000-3"]


def test_a_cause_quotes_measured_figures() -> None:
    assert with_figures("it reads at {003-1}", {"003-1": "2 GB/s"}) == "it reads at 2 GB/s"
    with pytest.raises(PagecageError, match="names 003-1, which has no measured figure"):
        with_figures("it reads at {003-1}", {})
