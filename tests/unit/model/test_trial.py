"""A trial as JSON data, and its packages with their fixes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given

from pagecage.model.cage import Cage
from pagecage.model.requirements import Requirement, check_trial
from pagecage.model.trial import (
    Dataset,
    Package,
    Trial,
    Workload,
    missing_packages,
    trial_from_json,
    trial_to_json,
)
from tests.builders.facts import FIT
from tests.builders.strategies import datasets, trials


@given(trials)
def test_a_trial_travels_unchanged(trial: Trial) -> None:
    assert trial_from_json(json.loads(json.dumps(trial_to_json(trial)))) == trial


@given(datasets, datasets)
def test_equal_names_mean_equal_bytes(one: Dataset, other: Dataset) -> None:
    assert (one.file_name == other.file_name) == (one == other)
    assert "/" not in one.file_name


@given(trials)
def test_a_trials_files_are_different_files(trial: Trial) -> None:
    names = [dataset.file_name for dataset in trial.datasets]
    assert len(set(names)) == len(names) == (trial.files if trial.dataset else 0)
    assert trial.dataset_bytes == sum(dataset.size_bytes for dataset in trial.datasets)


def test_a_plan_written_before_steps_were_known_is_still_read() -> None:
    old = trial_to_json(Trial("r1", "e", {}, 1, 1, 0, Workload("pcread", ()), Cage("uncaged", {})))
    later = "files before storage machine_memory_bytes dirty_limits writes_bytes"
    for key in (*later.split(), "driver"):
        del old[key]
    assert trial_from_json(old).datasets == ()


POSTGRESQL, GIT = Package("postgresql", "postgresql-server"), Package("git", "git")


TRIAL = Trial(
    "r1", "test", {}, 1, 1, 0, Workload("git", (), "command"), Cage("c", {}), packages=(GIT,)
)


@pytest.mark.parametrize(
    ("family", "versions", "expected"),
    [
        ("debian", {"postgresql": "17+278", "git": "1:2.47.3"}, None),
        (
            "debian",
            {"postgresql": None, "git": "1:2.47.3"},
            ("package postgresql is missing", "sudo apt-get install postgresql"),
        ),
        (
            "redhat",
            {},
            (
                "packages postgresql-server, git are missing",
                "sudo dnf install postgresql-server git",
            ),
        ),
        (None, {}, None),
    ],
)
def test_missing_packages_are_named_as_the_distribution_names_them(
    family: str | None, versions: dict[str, str | None], expected: tuple[str, str] | None
) -> None:
    facts = {"packages": {"family": family, "versions": versions}}
    assert missing_packages(facts, (POSTGRESQL, GIT)) == expected


def test_a_package_that_a_distribution_does_not_have_is_not_asked_for() -> None:
    facts = {"packages": {"family": "redhat", "versions": {}}}
    assert missing_packages(facts, (Package("git", None),)) is None


def test_a_trial_is_refused_where_its_package_is_missing() -> None:
    lacking = {**FIT, "packages": {"family": "debian", "versions": {"git": None}}}
    [missed] = check_trial(lacking, TRIAL)
    assert missed.requirement is Requirement.PACKAGES
    assert (missed.reason, missed.hint) == ("package git is missing", "sudo apt-get install git")
    assert check_trial(lacking, replace(TRIAL, packages=())) == []


def test_a_trial_keeps_its_packages_as_json() -> None:
    data = trial_to_json(TRIAL)
    assert data["packages"] == [{"debian": "git", "redhat": "git"}]
    assert trial_from_json(data) == TRIAL
    del data["packages"]  # a plan from before there were packages
    assert trial_from_json(data) == replace(TRIAL, packages=())
