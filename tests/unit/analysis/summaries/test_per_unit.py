"""Tests of times per unit of work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.articles.figures import PerUnit, per_unit, per_unit_heading
from analysis.cells import make_cell, treatments
from analysis.data.load import Run, load_run
from analysis.views.run import cell_table
from tests.fixtures.small_runs import unpacked


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return load_run(unpacked("constrained-random", tmp_path / "run"))


def of(run: Run, **levels: str) -> PerUnit:
    [treatment] = [t for t in treatments(run) if levels.items() <= dict(t).items()]
    return per_unit(run, make_cell(run, treatment, run.response))


def test_a_time_of_32_mib_and_one_of_10_gib_are_both_given_per_gib(run: Run) -> None:
    found = of(run, cage="uncaged", source="heap", pattern="sequential")
    assert found == PerUnit("0.984 s °", "0.14 s")  # 30.8 ms for 32 MiB, published 1.4 s for 10 GiB


def test_a_figure_of_excluded_trials_or_of_a_part_stays_marked(run: Run) -> None:
    assert of(run, cage="tenth", source="unloaded", pattern="random").measured.startswith("(≈ ")


def test_a_killed_program_has_no_time_per_gib(run: Run) -> None:
    assert of(run, cage="tenth", source="heap", pattern="random") == PerUnit("", "")


def test_a_treatment_of_another_size_has_no_published_time_per_gib(run: Run) -> None:
    trials = [{**t, "dataset": {**t["dataset"], "size_bytes": 2**20}} for t in run.plan["trials"]]
    other: dict[str, Any] = {**run.plan, "trials": trials}
    found = of(replace(run, plan=other), cage="uncaged", source="heap", pattern="sequential")
    assert found == PerUnit("31.5 s °", "")


def test_a_time_of_all_records_is_given_per_call(tmp_path: Path) -> None:
    run = load_run(unpacked("append-log", tmp_path / "run"))
    found = of(run, bytes="128", procs="4", method="writev")
    assert found == PerUnit(
        "17.5 us °", "0.94 us"
    )  # 69.8 ms for 4,000 records, as the article divides
    assert of(run, method="direct-misaligned").measured == ""


def test_responses_that_do_not_grow_with_the_work_have_no_such_column() -> None:
    assert [per_unit_heading(name) for name in ("full_pass_seconds", "append_seconds")] == [
        "per GiB",
        "per call",
    ]
    assert {
        per_unit_heading(name) for name in ("gap_max_us", "stalled_seconds", "amplification")
    } == {None}


def test_the_table_has_the_column_beside_the_measured_time(run: Run) -> None:
    table = cell_table(run)
    assert ("sequential", "per GiB") in table.columns
    first = table["sequential", "per GiB"].iloc[0]
    assert first == "0.984 s °\npublished 0.14 s"
