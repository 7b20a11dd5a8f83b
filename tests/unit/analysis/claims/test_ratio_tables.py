"""Tables of ratios over two factors."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from analysis.articles.ratios import ratio_tables
from analysis.articles.tables import ratio_sections
from analysis.data.load import Run, load_run
from pagecage.report.model import Report, to_markdown
from tests.fixtures.runs import DEFINITION, build_run

TABLE = {
    "title": "Random over sequential",
    "rows": "cage",
    "columns": "source",
    "of": {"pattern": "random"},
    "over": {"pattern": "sequential"},
    "published": 2.0,
}


def run_with(tmp_path: Path, table: dict[str, Any]) -> Run:
    definition = {**copy.deepcopy(DEFINITION), "ratio_tables": [table]}

    def twice_as_long_at_random(record: dict[str, Any]) -> None:
        if record["response"]:
            is_random = record["treatment"]["pattern"] == "random"
            record["response"]["full_pass_seconds"] = 6.0 if is_random else 3.0

    return load_run(build_run(tmp_path / "run", twice_as_long_at_random, definition=definition))


def test_a_table_has_a_ratio_for_each_combination_of_levels(tmp_path: Path) -> None:
    run = run_with(tmp_path, TABLE)
    [table] = ratio_tables(run)
    assert set(table.rows) <= set(run.factors["cage"])
    assert set(table.columns) <= set(run.factors["source"])
    assert {ratio.middle for ratio in table.ratios.values()} == {2.0}
    assert all(map(table.is_as_published, table.ratios.values()))


def test_ratios_near_the_published_one_are_marked(tmp_path: Path) -> None:
    text = to_markdown(Report("run", tuple(ratio_sections(run_with(tmp_path / "near", TABLE)))))
    assert "| ● 2×" in text
    assert "are the published 2× within a factor of 1.5" in text
    far = run_with(tmp_path / "far", {**TABLE, "published": 4.0})
    text = to_markdown(Report("run", tuple(ratio_sections(far))))
    assert "0 of" in text
    assert "| ●" not in text


def test_without_figures_there_is_no_table(tmp_path: Path) -> None:
    run = run_with(tmp_path, {**TABLE, "response": "lookup_p99_us"})
    assert ratio_tables(run) == []


@pytest.mark.parametrize("published", [None, 2.0])
def test_a_table_without_a_published_ratio_marks_nothing(
    tmp_path: Path, published: float | None
) -> None:
    run = run_with(tmp_path, {**TABLE, "published": published})
    [table] = ratio_tables(run)
    marked = any(map(table.is_as_published, table.ratios.values()))
    assert marked == (published is not None)
