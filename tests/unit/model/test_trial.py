"""A trial as JSON data, and back."""

from __future__ import annotations

import json

from hypothesis import given

from pagecage.model.cage import Cage
from pagecage.model.trial import (
    Dataset,
    Trial,
    Workload,
    trial_from_json,
    trial_to_json,
)
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
    for key in (
        "files",
        "before",
        "storage",
        "storage_latency_us",
        "machine_memory_bytes",
        "dirty_limits",
        "writes_bytes",
        "driver",
    ):
        del old[key]
    assert trial_from_json(old).datasets == ()
