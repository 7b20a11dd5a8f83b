"""Tests of published ratios beside findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.articles.ratios import published_ratios
from analysis.data.load import Run, load_run
from analysis.views.narrative import answer_html
from analysis.views.run import run_report
from pagecage.report.model import to_markdown
from tests.fixtures.small_runs import unpacked


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return load_run(unpacked("constrained-sequential", tmp_path / "run"))


def test_two_published_times_give_the_ratio_of_a_finding(run: Run) -> None:
    assert published_ratios(run) == [
        "1.4× (15.5 s / 11.1 s)",
        "",
        "1× (1.5 s / 1.5 s)",
    ]


def test_a_published_ratio_of_the_same_trials_comes_first(run: Run) -> None:
    finding = run.definition["findings"][0]
    claim = {"rule": "ratio", "published": 36.0, "unit": "x"}
    same = {key: finding[key] for key in ("where", "over", "response")}
    run.definition["claims"].append({**claim, **same})
    assert published_ratios(run)[0] == "36×"
    run.definition["claims"][-1]["response"] = "major_faults"
    assert published_ratios(run)[0] == "1.4× (15.5 s / 11.1 s)"


def test_reports_state_it_beside_ours(run: Run) -> None:
    assert "(published: 1.4× (15.5 s / 11.1 s); " in to_markdown(run_report(run))
    assert "<small>Published: 1.4× (15.5 s / 11.1 s); " in answer_html(run)
