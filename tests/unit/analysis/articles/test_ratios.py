"""Ratios compared with the published ones, and classes of hosts."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.articles.ratios import (
    EMULATED_GUEST,
    REAL_CPU,
    WITHOUT_RUN,
    hosted_as_json,
    hosted_scorecard,
    published_ratios,
    ratio_tables,
    real_cpu_sentence,
    run_by_experiment,
    runs_by_class,
)
from analysis.articles.tables import ratio_sections
from analysis.data.load import Run, bundled_runs, load_run
from analysis.views.notebook import answer_html
from analysis.views.run import run_report
from pagecage.errors import PagecageError
from pagecage.model.json_codec import Json
from pagecage.model.published_figures import read_rows
from pagecage.report.model import Report, to_markdown
from tests.builders.record_changes import updated
from tests.fixtures.runs import DEFINITION, build_run
from tests.fixtures.small_runs import unpacked
from tests.tree import ROOT


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return load_run(unpacked("constrained-sequential", tmp_path / "run"))


def test_two_published_times_give_the_ratio_of_a_finding(run: Run) -> None:
    assert published_ratios(run) == ["1.4× (15.5 s / 11.1 s)", "", "1× (1.5 s / 1.5 s)"]


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


TABLE = {
    "title": "Random over sequential",
    "rows": "cage",
    "columns": "source",
    "of": {"pattern": "random"},
    "over": {"pattern": "sequential"},
    "published": 2.0,
}


def run_with(tmp_path: Path, table: Json) -> Run:
    definition = {**copy.deepcopy(DEFINITION), "ratio_tables": [table]}

    def twice_as_long_at_random(record: Json) -> None:
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


EXPERIMENTS = ROOT / "experiments"


ON_REAL_CPU = updated(emulated=False)


def built(folder: Path, hour: int, *, emulated: bool, size: str = "emulated") -> Run:
    name = f"20261121T{hour:02}0000Z-constrained-random-{'vm' if emulated else 'local'}"
    return load_run(build_run(folder / name, None if emulated else ON_REAL_CPU, size=size))


@pytest.fixture
def guest(tmp_path: Path) -> Run:
    return built(tmp_path, 12, emulated=True)


@pytest.fixture
def real(tmp_path: Path) -> Run:
    return built(tmp_path, 10, emulated=False)


def test_each_class_has_its_newest_run_above_smoke_size(tmp_path: Path, guest: Run) -> None:
    smoke = built(tmp_path, 13, emulated=True, size="smoke")
    older = built(tmp_path, 11, emulated=True)
    found = runs_by_class([smoke, guest, older])
    assert found == {REAL_CPU: {}, EMULATED_GUEST: {"constrained-random": guest}}
    assert runs_by_class([smoke])[EMULATED_GUEST] == {"constrained-random": smoke}


def test_a_disk_of_pagecages_own_is_named_with_the_machine(tmp_path: Path, real: Run) -> None:
    def on_own_disk(record: Json) -> None:
        ON_REAL_CPU(record)
        record["device"] |= {"node": "/dev/loop3", "own_disk": "/data/disk.img"}

    name = "20261121T140000Z-constrained-random-local"
    own = load_run(build_run(tmp_path / name, size="emulated", change=on_own_disk))
    facts = ({"cpu_model": "a processor", "cpus": 2, "kernel": "6.18"},)
    said = "Measured on a real CPU: a processor, 2 processors, unknown of memory, kernel 6.18"
    assert real_cpu_sentence(replace(real, facts=facts)) == said
    said += "; the disk is /dev/loop3, pagecage's own: /data/disk.img by loop"
    assert real_cpu_sentence(replace(own, facts=facts)) == said


def test_a_report_is_of_the_real_cpu_unless_only_the_guest_has_more_than_smoke(
    tmp_path: Path, guest: Run, real: Run
) -> None:
    assert run_by_experiment([guest, real]) == {"constrained-random": real}
    smoke = built(tmp_path, 9, emulated=False, size="smoke")
    assert run_by_experiment([guest, smoke]) == {"constrained-random": guest}


def test_a_real_cpu_is_preferred_and_each_row_names_its_host(guest: Run, real: Run) -> None:
    scored = hosted_scorecard(EXPERIMENTS, [guest, real])
    rows = {row.id: row for row in scored.card.rows}
    measured = rows["003-178"]
    assert (measured.run, scored.host_class(measured)) == (real.plan["run_id"], REAL_CPU)
    assert scored.host_class(rows["000-13"]) == WITHOUT_RUN
    assert len(scored.card.rows) == len(read_rows(EXPERIMENTS))
    lines = {line["id"]: line["host_class"] for line in hosted_as_json(scored)["rows"]}
    assert (lines["003-178"], lines["000-13"]) == (REAL_CPU, None)


def test_a_decided_guest_is_preferred_to_an_undecided_real_cpu(guest: Run, real: Run) -> None:
    without_answer = replace(real, trials=())
    scored = hosted_scorecard(EXPERIMENTS, [guest, without_answer])
    decided = [row for row in scored.card.rows if row.run and row.verdict in ("held", "not_held")]
    assert decided
    assert {scored.host_class(row) for row in decided} == {EMULATED_GUEST}


def test_the_verdict_of_the_other_class_is_in_the_reason(tmp_path: Path, real: Run) -> None:
    def read_twice(record: Json) -> None:
        if record["response"].get("amplification"):
            record["response"]["amplification"] *= 100
            record["workload"]["end"]["distinct_bytes"] /= 100

    folder = tmp_path / "20261121T120000Z-constrained-random-vm"
    other = load_run(build_run(folder, change=read_twice))
    rows = hosted_scorecard(EXPERIMENTS, [other, real]).card.rows
    told = [row for row in rows if "emulated guest: not held (20261121T12" in row.reason]
    assert told
    assert {row.run for row in told} == {real.plan["run_id"]}


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PagecageError, match="is not a folder"), bundled_runs(tmp_path / "gone"):
        pass
