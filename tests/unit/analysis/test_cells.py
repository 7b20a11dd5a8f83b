"""Cells of a result table, their proof, and stopping rules."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.articles.findings import GAP, evaluate_findings
from analysis.cells import (
    cache_state_tally,
    gap_sentence,
    make_cell,
    repeat_differences,
    response_value,
    stopping_rule_status,
    treatments,
)
from analysis.data.load import JudgedTrial, Run, load_run, series_of
from analysis.sweep import sweep_of, sweep_rows
from analysis.views.notebook import notices_html
from analysis.views.run import as_csv, as_json, run_report
from pagecage.model.json_codec import Json
from pagecage.model.record import read_records
from pagecage.report.model import to_markdown
from pagecage.verdicts.evaluate import evaluate
from pagecage.verdicts.verdict import Verdict
from tests.builders.run_edits import edit
from tests.fixtures.records import make_record, with_sections
from tests.fixtures.runs import build_run
from tests.fixtures.small_runs import unpacked


@pytest.mark.parametrize(
    ("coverage", "value"),
    [
        ({"covered_fraction": 1.0}, 4096.0),
        ({"covered_fraction": 0.5}, 8192.0),
        ({"covered_fraction": 0.0}, None),
        ({"covered_fraction": None}, 4096.0),
        ({}, 4096.0),
        ({"covered_fraction": None, "covered_times": 24.0}, None),
    ],
    ids=["whole", "half", "nothing", "command", "server", "fio over and over"],
)
def test_bytes_are_scaled_by_the_share_that_was_covered(
    coverage: Json, value: float | None
) -> None:
    record = make_record(response={"device_read_bytes": 4096.0, "read_seconds": 2.0, **coverage})
    trial = JudgedTrial(record, evaluate(record), series_of(()))
    assert response_value(trial, "device_read_bytes") == value
    assert response_value(trial, "read_seconds") == 2.0


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a run with a limit on each caged treatment, all of whose trials are proven."""
    loaded = load_run(unpacked("sweep-customer-replay", tmp_path / "run"))
    return changed(loaded, quiet="quiet", limits="enforced")


def changed(run: Run, *, quiet: str | None = None, limits: str | None = None) -> Run:
    trials = (_changed(trial, quiet, limits) for trial in run.trials)
    return replace(run, trials=tuple(trials))


def _changed(trial: JudgedTrial, quiet: str | None, limits: str | None) -> JudgedTrial:
    verdicts = replace(trial.verdicts, excluded=False, reasons=())
    if quiet:
        verdicts = replace(verdicts, host_quiet=Verdict(quiet, "It was."))
    if limits:
        judged = tuple(replace(limit, verdict=limits) for limit in verdicts.limits)
        verdicts = replace(verdicts, limits=judged)
    return replace(trial, verdicts=verdicts)


@pytest.mark.parametrize("gap", [{"quiet": "unknown"}, {"limits": "never_reached"}])
def test_a_figure_without_proof_is_marked_in_every_table(run: Run, gap: dict[str, str]) -> None:
    marked = changed(run, **gap)
    for before, after, has_mark in ((run, run, False), (run, marked, True)):
        cells = [make_cell(after, treatment, after.response) for treatment in treatments(before)]
        figures = [cell for cell in cells if cell.summary]
        assert figures
        assert all((" °" in cell.text) == has_mark for cell in figures)
        assert all(("without proof" in cell.spread) == has_mark for cell in figures)
        assert all(bool(cell.unproven) == has_mark for cell in figures)
        sweep = sweep_of(after)
        assert sweep is not None
        assert all(row["measured"].endswith("°") == has_mark for row in sweep_rows(sweep))
        assert bool(gap_sentence(after)) == has_mark
        assert ("without proof are averaged in" in notices_html(after)) == has_mark
        assert ("without proof are averaged in" in to_markdown(run_report(after))) == has_mark
        unproven = [line.rsplit(",", 1)[1] for line in as_csv(after).splitlines()[1:]]
        assert any(count != "0" for count in unproven) == has_mark


def test_a_finding_without_proof_says_so(tmp_path: Path) -> None:
    run = load_run(unpacked("append-fsync", tmp_path / "run"))
    for quiet, has_mark in (("quiet", False), ("unknown", True)):
        judged = changed(run, quiet=quiet, limits="enforced")
        notes = [one.note for one in evaluate_findings(judged) if one.value is not None]
        assert notes
        assert all((GAP in note) == has_mark for note in notes)


def test_an_excluded_trial_is_no_figure_without_proof(run: Run) -> None:
    unknown = changed(run, quiet="unknown")
    left_out = tuple(
        replace(trial, verdicts=replace(trial.verdicts, excluded=True)) for trial in unknown.trials
    )
    assert gap_sentence(replace(unknown, trials=left_out)) == ""


def with_record(trial: JudgedTrial, output: str = "unknown", **sections: Any) -> JudgedTrial:
    verdicts = replace(trial.verdicts, output=Verdict(output, "It printed."))
    return replace(trial, record=with_sections(trial.record, **sections), verdicts=verdicts)


def test_differences_between_repeats_are_told(run: Run) -> None:
    assert list(repeat_differences(run)) == []
    first = run.trials[0]
    trials = (
        with_record(first, "differs", machine={"before": {"nice": 0}}),
        with_record(first, "same", machine={"before": {"nice": 5}}),
    )
    told = list(repeat_differences(replace(run, trials=trials)))
    assert len(told) == 2
    assert "the standard output of 1 of 2 repeats differs" in told[0]
    assert "different nice values: 1 × 0, 1 × 5" in told[1]
    assert told[1] in to_markdown(run_report(replace(run, trials=trials)))


def test_a_cold_state_has_the_layers_that_may_be_warm(run: Run) -> None:
    layers = [{"layer": "loop0", "kind": "loop"}, {"layer": "dm-1", "kind": "dm-cache"}]
    trial = with_record(
        run.trials[0],
        cache={"requested": "cold", "metadata": "warm"},
        device={"caches_below": layers},
    )
    told = cache_state_tally([trial, trial])
    assert told == "2 reached (metadata warm, above loop, above dm-cache)"
    older = with_record(run.trials[0], cache={"requested": "cold"})
    assert cache_state_tally([older]) == "1 reached"


def steady(record: Json) -> None:
    if record["response"]:
        record["response"]["full_pass_seconds"] = 10 + 0.01 * record["repeat"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_run(tmp_path_factory.mktemp("stopped") / "run", steady, repeats=8, until_ci=0.05)


def cut(folder: Path, count: int) -> Path:
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (folder / "records.jsonl").write_text("".join(lines[: 12 * count]))
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "run")


def test_blocks_after_the_end_are_neither_run_nor_missing(folder: Path) -> None:
    run = load_run(cut(folder, 6))
    assert len(run.trials) == len(run.plan["trials"]) == 72
    assert stopping_rule_status(run).endswith("8 times at most: reached after 6")
    assert all(cell["unanswered"] == 0 for cell in as_json(run)["cells"])
    assert "Unfinished" not in notices_html(run)
    assert "Stopping rule." in notices_html(run)


def test_a_run_in_progress_reports_what_is_too_wide(folder: Path) -> None:
    run = load_run(cut(folder, 3))
    assert "8 times at most: not yet: " in stopping_rule_status(run)
    assert "uncaged · heap · sequential none" in stopping_rule_status(run)
    assert "Unfinished" in notices_html(run)


def test_a_reached_bound_reports_what_is_too_wide(folder: Path) -> None:
    def wide(record: Json) -> None:
        if record["response"] and record["treatment"]["pattern"] == "random":
            record["response"]["full_pass_seconds"] *= record["repeat"]

    edit(folder / "records.jsonl", wide)
    run = load_run(folder)
    assert len(list(read_records(folder / "records.jsonl"))) == len(run.trials) == 96
    assert "not reached: uncaged · heap · random " in stopping_rule_status(run)
    assert "sequential" not in stopping_rule_status(run)
