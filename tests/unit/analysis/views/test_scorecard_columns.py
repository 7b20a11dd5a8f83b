"""Tests of the columns of published figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pytest

from analysis.articles import tables
from analysis.articles.pages import scorecard_page
from analysis.articles.ratios import HostedScorecard
from analysis.articles.scorecard import Scorecard, ScoredClaim
from analysis.articles.tables import columns, format_scored_measurement
from pagecage.report.model import to_markdown

ROW = ScoredClaim("003-1", "a", "x;y", 2.0, "s", 1.5, 1.25, 1.75, 3, "held", "because", "", None)
TITLES = {"003": {"title": "a tour", "remark": "It counts bits."}}


@dataclass(frozen=True)
class DatedClaim(ScoredClaim):
    """A row with the date of its rule."""

    rule_changed: str | None = None


def scored(row: ScoredClaim) -> HostedScorecard:
    return HostedScorecard(Scorecard((row,), TITLES), {})


def test_a_row_has_its_figures_with_the_interval_and_no_host_without_a_run() -> None:
    shown = {column.heading: column.text(ROW) for column in columns(scored(ROW))}
    expected = {
        "figure": "003-1",
        "experiment": "a",
        "statement": "x, y",
        "published": "2 s",
        "measured": "1.5 s (1.25 – 1.75 s)",
        "verdict": "✓ held",
        "host": "–",
        "run": "–",
        "reason": "because",
    }
    assert {heading: shown[heading] for heading in expected} == expected


def test_the_date_of_a_rule_is_shown_where_rows_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ScoredClaim", DatedClaim)
    dated = DatedClaim(**{**asdict(ROW), "rule_changed": "2026-11-20"})
    shown = {column.heading: column.text(dated) for column in columns(scored(dated))}
    assert shown["rule changed"] == "2026-11-20"


def test_a_figure_of_excluded_trials_is_in_brackets() -> None:
    row = ScoredClaim(**{**asdict(ROW), "verdict": "no_data", "n": 1})
    assert format_scored_measurement(row) == "(1.5 s) †"


def test_a_row_about_the_set_up_is_counted_apart_from_measured_ones() -> None:
    page = to_markdown(scorecard_page(scored(ROW)))
    assert "0 of 1 rows have a measured figure, from 0 runs. 1 more describe the set-up" in page
    assert "## 003: a tour\n\nIt counts bits.\n" in page
