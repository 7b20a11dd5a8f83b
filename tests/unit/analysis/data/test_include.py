"""Tests of --include: by trial, by verdict, and the notice that names the included trials."""

from __future__ import annotations

import json

import pytest

from analysis.cells import make_cell
from analysis.data.load import failed_verdicts, include_by_name, included_by_name_sentence, load_run
from analysis.views.narrative import notices_html
from analysis.views.notebook import Results
from pagecage.errors import PagecageError
from tests.builders.command_line import called
from tests.fixtures.records import outer
from tests.fixtures.runs import build_run

CELL = {"cage": "uncaged", "source": "unloaded", "pattern": "random"}


def spoiled(record):
    """Spoil one cell: the first trial is not cold, the second not quiet, the third neither."""
    if record["treatment"] != CELL:
        return
    if record["repeat"] in (1, 3):
        record["cache"]["resident_bytes_before"] = 4096
    if record["repeat"] in (2, 3):
        record["outer_host"] = {
            "before": outer(0.0),
            "after": outer(record["measured"]["seconds"], others=1.5),
        }


@pytest.fixture
def folder(tmp_path):
    return build_run(tmp_path / "run", spoiled)


def trials_of(run):
    return {t.record.repeat: t for t in run.trials if dict(t.record.treatment) == CELL}


def test_the_reason_for_exclusion_has_a_name(folder):
    found = {
        repeat: set(failed_verdicts(trial)) for repeat, trial in trials_of(load_run(folder)).items()
    }
    assert found == {
        1: {"cache_state_reached"},
        2: {"host_quiet"},
        3: {"cache_state_reached", "host_quiet"},
    }


@pytest.mark.parametrize(
    ("names", "repeats"),
    [
        ([], set()),
        (["host_quiet"], {2}),
        (["cache_state_reached"], {1}),
        (["host_quiet", "cache_state_reached"], {1, 2, 3}),
    ],
)
def test_a_verdict_includes_the_trials_that_fail_no_other(folder, names, repeats):
    run = include_by_name(load_run(folder), names)
    assert {repeat for repeat, trial in trials_of(run).items() if trial.is_included} == repeats
    assert sum(t.is_included_by_name for t in run.trials) == len(repeats)


def test_a_trial_is_included_by_its_name_and_counts(folder):
    run = load_run(folder)
    name = trials_of(run)[3].record.trial_id
    assert make_cell(run, CELL, run.response).text.endswith("†")
    cell = make_cell(include_by_name(run, [name]), CELL, run.response)
    assert (cell.summary.n, cell.excluded, cell.is_all_excluded) == (1, 2, False)


@pytest.mark.parametrize("name", ["limits", "nobody", "000-uncaged-heap-sequential-r1"])
def test_a_name_that_selects_no_excluded_trial_is_refused_with_those_that_would(folder, name):
    with pytest.raises(PagecageError, match=f"--include: {name} names no excluded trial") as caught:
        include_by_name(load_run(folder), [name])
    assert "(cache_state_reached and host_quiet)" in caught.value.hint


def test_terminal_data_and_report_name_the_included_trials(folder, capsys):
    name = trials_of(load_run(folder))[2].record.trial_id
    assert called(["show", str(folder), "--include", "host_quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["included_by_name"] == [name]
    assert called(["show", str(folder), "--include", "host_quiet"]) == 0
    assert "included by name" in capsys.readouterr().out
    results = Results(folder, ["host_quiet"])
    assert "2 of 36 trials are excluded" in results.heading.text
    assert f"An excluded trial is included by name: {name}." in notices_html(results.run)
    assert included_by_name_sentence(load_run(folder)) == ""


def test_a_report_is_made_with_included_trials(folder):
    assert called(["show", str(folder), "--html", "--include", "host_quiet"]) == 0
    assert "<strong>Included by name.</strong>" in (folder / "report.html").read_text()
    assert called(["show", str(folder), "--html", "--include", "nobody"]) == 2
