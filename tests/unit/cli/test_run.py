"""Trials that are measured once more: those that the verdicts of the analysis exclude."""

from __future__ import annotations

from pathlib import Path

from analysis.data.load import load_run
from pagecage.cli.execution import excluded_trials
from pagecage.runner.run_folder import RunFolder
from tests.fixtures.small_runs import unpacked


def test_the_excluded_trials_of_a_run_are_those_of_its_report(tmp_path: Path) -> None:
    folder = RunFolder(unpacked("append-fsync", tmp_path / "run"))
    judged = load_run(folder.path).trials
    expected = [trial.record.trial_id for trial in judged if trial.is_excluded]
    assert expected
    assert excluded_trials(folder) == expected
    plan = folder.plan()
    before = {trial.trial_id for trial in folder.remaining(plan)}
    folder.supersede(expected)
    assert {trial.trial_id for trial in folder.remaining(plan)} == before | set(expected)


def test_a_run_without_records_has_no_excluded_trial(tmp_path: Path) -> None:
    assert excluded_trials(RunFolder(tmp_path)) == []
