"""A trial travels as JSON and comes back the same."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pagecage.model.cage import Cage
from pagecage.model.trial import (
    CACHE_STATES,
    COLLECTORS,
    DRIVERS,
    STORAGES,
    Dataset,
    SetupStep,
    Trial,
    Workload,
    trial_from_json,
    trial_to_json,
)
from tests.unit.test_cage import cages

words = st.text(max_size=15)
datasets = st.builds(Dataset, st.integers(1, 2**60), st.integers(0, 2**31), st.sampled_from(["random", "zero"]))
trials = st.builds(
    Trial,
    trial_id=words, experiment=words, treatment=st.dictionaries(words, words, max_size=3), repeat=st.integers(1, 99),
    block=st.integers(1, 99), position=st.integers(0, 999),
    workload=st.builds(
        Workload, words, st.lists(words, max_size=4).map(tuple), st.sampled_from(["handshake", "command", "fio"]),
        st.integers(0, 2**40),
    ),
    cage=cages, cache=st.sampled_from(CACHE_STATES), dataset=st.none() | datasets,
    read_ahead_kb=st.none() | st.integers(0, 4096),
    collectors=st.lists(st.sampled_from(COLLECTORS), unique=True).map(tuple),
    max_seconds=st.none() | st.floats(0.1, 1e6), timeout_seconds=st.floats(0.1, 1e6),
    files=st.integers(1, 200),
    before=st.none() | st.builds(SetupStep, words, st.lists(words).map(tuple), st.sampled_from(["same", "other"])),
    storage=st.sampled_from(STORAGES), storage_latency_us=st.none() | st.integers(1, 10**6),
    machine_memory_bytes=st.none() | st.integers(1, 2**50),
    dirty_limits=st.dictionaries(st.sampled_from(["dirty_bytes", "dirty_background_bytes"]), st.integers(8192, 2**40)),
    writes_bytes=st.integers(0, 2**50), driver=st.sampled_from(DRIVERS),
)  # fmt: skip


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
