"""Excluded trials let in by name: one, or all that fail a verdict and no other; and that it is said."""

from __future__ import annotations

import json

import pytest

from analysis.__main__ import main
from analysis.data.include import failed_verdicts, let_in, told
from analysis.data.load import load_run
from analysis.summaries.cells import make_cell
from analysis.views.narrative import notices
from analysis.views.notebook import Results
from pagecage.errors import PagecageError
from tests.fixtures.records import outer
from tests.fixtures.runs import build_run

CELL = {"cage": "uncaged", "source": "unloaded", "pattern": "random"}


def spoiled(record):
    """In one cell the first trial was not cold, the second not quiet, the third neither."""
    if record["treatment"] != CELL:
        return
    if record["repeat"] in (1, 3):
        record["cache"]["resident_bytes_before"] = 4096
    if record["repeat"] in (2, 3):
        record["outer_host"] = {"before": outer(0.0), "after": outer(record["measured"]["seconds"], others=1.5)}


@pytest.fixture
def folder(tmp_path):
    return build_run(tmp_path / "run", spoiled)


def trials_of(run):
    return {t.record.repeat: t for t in run.trials if dict(t.record.treatment) == CELL}


def test_what_excludes_a_trial_has_a_name(folder):
    found = {repeat: set(failed_verdicts(trial)) for repeat, trial in trials_of(load_run(folder)).items()}
    assert found == {1: {"cache_state_reached"}, 2: {"host_quiet"}, 3: {"cache_state_reached", "host_quiet"}}


@pytest.mark.parametrize(
    ("names", "repeats"),
    [
        ([], set()), (["host_quiet"], {2}), (["cache_state_reached"], {1}),
        (["host_quiet", "cache_state_reached"], {1, 2, 3}),
    ],
)  # fmt: skip
def test_a_verdict_lets_in_what_fails_no_other(folder, names, repeats):
    run = let_in(load_run(folder), names)
    assert {repeat for repeat, trial in trials_of(run).items() if trial.is_included} == repeats
    assert sum(t.is_let_in for t in run.trials) == len(repeats)


def test_a_trial_is_let_in_by_its_name_and_counts(folder):
    run = load_run(folder)
    name = trials_of(run)[3].record.trial_id
    assert make_cell(run, CELL, run.response).text.endswith("†")
    cell = make_cell(let_in(run, [name]), CELL, run.response)
    assert (cell.summary.n, cell.excluded, cell.is_all_excluded) == (1, 2, False)


@pytest.mark.parametrize("name", ["limits", "nobody", "000-uncaged-heap-sequential-r1"])
def test_a_name_that_lets_nothing_in_is_refused_with_those_that_would(folder, name):
    with pytest.raises(PagecageError, match=f"--include: {name} lets no excluded trial in") as caught:
        let_in(load_run(folder), [name])
    assert "(cache_state_reached and host_quiet)" in caught.value.hint


def test_terminal_data_and_report_say_who_was_let_in(folder, capsys):
    name = trials_of(load_run(folder))[2].record.trial_id
    assert main(["show", str(folder), "--include", "host_quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["let_in"] == [name]
    assert main(["show", str(folder), "--include", "host_quiet"]) == 0
    assert "let in by name" in capsys.readouterr().out
    results = Results(folder, ["host_quiet"])
    assert "2 of 36 trials are excluded" in results.heading.text
    assert f"An excluded trial was let in by name and averaged in: {name}." in notices(results.run)
    assert told(load_run(folder)) == ""


def test_a_report_is_made_with_them(folder):
    assert main(["render", str(folder), "--include", "host_quiet"]) == 0
    assert "<strong>Let in.</strong>" in (folder / "report.html").read_text()
    assert main(["render", str(folder), "--include", "nobody"]) == 2
