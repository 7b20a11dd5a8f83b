"""Plans: every treatment in every block, in the seed's order, with unique names."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.definitions.experiment import Experiment
from pagecage.errors import PagecageError
from pagecage.model.cage import DiskLimits
from pagecage.model.plan import blocks, plan_from_json, plan_to_json
from pagecage.model.trial import Dataset, SetupStep, Workload
from pagecage.model.volume_model import volume_file_bytes
from pagecage.planning.plan import (
    PlanOptions,
    make_trials,
    parse_levels,
    parse_treatment,
    selected,
    treatments,
)
from pagecage.planning.treatments import covering
from pagecage.runner.resource_needs import needed_disk_bytes, resource_needs
from pagecage.units import GIB
from tests.builders.plans import BASE, CAGES, CHOICES, SIZES, level_table, plan_of, size_table

level_names = st.text(min_size=1, max_size=12)
factor_tables = st.dictionaries(
    st.text(min_size=1, max_size=8).filter(lambda name: name != "cage"),
    st.lists(level_names, min_size=1, max_size=3, unique=True).map(tuple),
    max_size=3,
)
experiments = st.builds(replace, st.just(BASE), factors=factor_tables)
choices = st.builds(
    replace, st.just(CHOICES), repeats=st.integers(1, 4), seed=st.integers(0, 2**32)
)


def count_of(experiment: Experiment) -> int:
    product = 1
    for levels in experiment.factors.values():
        product *= len(levels)
    return product


@given(experiments, choices)
def test_every_block_holds_every_treatment_once(
    experiment: Experiment, wanted: PlanOptions
) -> None:
    trials = make_trials(experiment, CAGES, wanted)
    expected = sorted(json.dumps(t) for t in treatments(experiment))
    assert len(expected) == count_of(experiment)
    for block in range(1, wanted.repeats + 1):
        held = [trial for trial in trials if trial.block == block]
        assert sorted(json.dumps(dict(trial.treatment)) for trial in held) == expected
        assert {trial.repeat for trial in held} == {block}
    assert [trial.position for trial in trials] == list(range(len(trials)))
    assert [trial.block for trial in trials] == sorted(trial.block for trial in trials)


@given(experiments, choices)
def test_one_seed_is_one_order(experiment: Experiment, wanted: PlanOptions) -> None:
    assert make_trials(experiment, CAGES, wanted) == make_trials(experiment, CAGES, wanted)


def test_another_seed_is_another_order() -> None:
    many = replace(BASE, factors={"a": tuple("abcdef"), "b": tuple("xyz")})
    orders = {
        tuple(t.trial_id for t in make_trials(many, CAGES, replace(CHOICES, seed=seed)))
        for seed in range(5)
    }
    assert len(orders) == 5


def test_blocks_are_shuffled_each_for_itself() -> None:
    many = replace(BASE, factors={"a": tuple("abcdefgh")})
    first, second = blocks(make_trials(many, CAGES, CHOICES), "block")
    assert [t.treatment for t in first] != [t.treatment for t in second]


@given(experiments, choices)
def test_names_are_unique_and_fit_a_unit(experiment: Experiment, wanted: PlanOptions) -> None:
    names = [trial.trial_id for trial in make_trials(experiment, CAGES, wanted)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9_]{1,120}", name) for name in names)


@pytest.mark.parametrize(
    "factors",
    [
        {"x": ("4k", "4K")},
        {"x": ("a-b", "a_b")},
        {"x": ("1.5x", "1_5x")},
        {"x": ("é", "ü")},
        {"x": ("a", "A", "a_1")},
        {"x": ("a_b", "a"), "y": ("c", "b_c")},
        {"x": ("l" * 300, "l" * 301)},
    ],
)
def test_levels_with_similar_names_get_different_ids(factors: dict[str, tuple[str, ...]]) -> None:
    experiment = replace(BASE, factors=factors)
    names = [trial.trial_id for trial in make_trials(experiment, CAGES, CHOICES)]
    assert len(set(names)) == len(names) == 2 * count_of(experiment)


def test_names_are_readable() -> None:
    experiment = replace(
        BASE, factors={"cage": ("uncaged",), "source": ("heap",), "pattern": ("random",)}
    )
    assert make_trials(experiment, CAGES, CHOICES)[0].trial_id == "r1_uncaged_heap_random"


def test_excluded_treatments_are_left_out() -> None:
    experiment = replace(
        BASE, factors={"a": ("1", "2"), "b": ("x", "y")}, exclude=({"a": "1", "b": "y"}, {"a": "2"})
    )
    assert list(treatments(experiment)) == [{"a": "1", "b": "x"}]


def test_levels_change_arguments_cache_read_ahead_and_cage() -> None:
    levels = {
        "pattern": {"random": level_table("--pattern", "random", cache="cold", read_ahead_kb=0)},
        "limits": {"tight": level_table(cage="tight")},
    }
    experiment = replace(
        BASE, factors={"pattern": ("random",), "limits": ("tight",)}, levels=levels
    )
    trial = make_trials(experiment, CAGES, CHOICES)[0]
    assert trial.workload.arguments == ("--file", "{file}", "--pattern", "random")
    assert (trial.cache, trial.read_ahead_kb, trial.cage.name) == ("cold", 0, "tight")


def test_a_cage_factors_level_is_a_cages_name() -> None:
    levels = {"cage": {"small": level_table(cage="tenth")}}
    experiment = replace(BASE, factors={"cage": ("uncaged", "small", "tight")}, levels=levels)
    cages = {t.treatment["cage"]: t.cage.name for t in make_trials(experiment, CAGES, CHOICES)}
    assert cages == {"uncaged": "uncaged", "small": "tenth", "tight": "tight"}


def test_no_factor_is_one_uncaged_treatment() -> None:
    [first, second] = make_trials(BASE, CAGES, CHOICES)
    assert (first.trial_id, second.trial_id) == ("r1", "r2")
    assert (first.cage.name, first.cache, first.read_ahead_kb) == ("uncaged", "any", 128)


def test_a_timeout_leaves_time_for_checks_as_long_as_the_measured_part() -> None:
    assert all(
        trial.timeout_seconds > 2 * (trial.max_seconds or 0) + 60
        for trial in make_trials(BASE, CAGES, CHOICES)
    )


@given(experiments, choices)
def test_a_plan_survives_json_and_keeps_its_hash(
    experiment: Experiment, wanted: PlanOptions
) -> None:
    plan = plan_of(experiment, wanted)
    written = json.loads(json.dumps(plan_to_json(plan)))
    back = plan_from_json(written)
    assert back.trials == plan.trials
    assert back.sha256 == plan.sha256 == written["plan_sha256"]


@pytest.mark.parametrize("key", ["seed", "command", "repeats", "definition", "trials"])
def test_a_change_anywhere_changes_the_hash(key: str) -> None:
    written = plan_to_json(plan_of())
    changed = plan_from_json({**written, key: [] if key == "trials" else "other"})
    assert changed.sha256 != written["plan_sha256"]


@given(experiments, choices)
def test_groups_share_a_machine_state(experiment: Experiment, wanted: PlanOptions) -> None:
    trials = make_trials(experiment, CAGES, wanted)
    counts = {"never": 1, "run": 1, "block": wanted.repeats, "trial": len(trials)}
    for fresh, count in counts.items():
        groups = blocks(trials, fresh)
        assert tuple(trial for group in groups for trial in group) == trials
        assert len(groups) == count
    assert blocks((), "never") == []


def level_pairs(chosen: list[dict[str, str]]) -> set[tuple[str, str]]:
    return {pair for treatment in chosen for pair in treatment.items()}


@given(experiments, st.data())
def test_covering_treatments_contain_every_level_and_none_that_is_excluded(
    experiment: Experiment, data: Any
) -> None:
    every = list(treatments(experiment))
    some = st.lists(st.sampled_from(every), max_size=3) if experiment.factors else st.just([])
    out = tuple(data.draw(some))
    left = list(treatments(replace(experiment, exclude=out)))
    chosen = covering(left)
    assert level_pairs(chosen) == level_pairs(left)
    assert all(treatment in left for treatment in chosen)
    assert len(chosen) <= len(left)
    assert chosen == covering(left)


@given(experiments)
def test_a_full_product_needs_as_many_treatments_as_its_largest_factor_has_levels(
    experiment: Experiment,
) -> None:
    chosen = covering(list(treatments(experiment)))
    assert len(chosen) == max(map(len, experiment.factors.values()), default=1)


def test_levels_of_one_factor_are_alternatives_unless_one_treatment_is_asked_for() -> None:
    words = ["a=2", "b=x", "a=1", "a=2"]
    assert parse_levels(words) == {"a": ("2", "1"), "b": ("x",)}
    assert parse_treatment(words[:2]) == {"a": "2", "b": "x"}
    with pytest.raises(PagecageError, match="a cannot be 2 and 1 here"):
        parse_treatment(words)
    made = replace(CHOICES, treatment=parse_levels(words)).to_json()
    assert made["treatment"] == {"a": ["2", "1"], "b": "x"}


def test_a_size_decides_whether_all_treatments_run() -> None:
    sizes = {**SIZES, "smoke": size_table(dataset="1MiB", treatments="covering")}
    experiment = replace(BASE, factors={"a": ("1", "2"), "b": ("x", "y")}, sizes=sizes)
    assert selected(experiment, "smoke") == [{"a": "1", "b": "x"}, {"a": "2", "b": "y"}]
    assert len(selected(experiment, "full")) == 4
    of_2 = [{"a": "2", "b": "x"}, {"a": "2", "b": "y"}]
    assert selected(experiment, "smoke", {"a": ("2",)}) == of_2
    of_both = [{"a": "1", "b": "x"}, {"a": "2", "b": "x"}]
    assert selected(experiment, "full", {"a": ("2", "1"), "b": ("x",)}) == of_both
    plan = plan_of(experiment)
    assert len(plan.trials) == 2 * CHOICES.repeats
    assert plan.document["treatments"] == "covering"


def test_a_levels_workload_replaces_the_experiments_and_all_arguments_follow_it() -> None:
    c = {"program": "pcscan-c", "arguments": ["--files", "{files}"], "min_memory_bytes": "9B"}
    levels = {
        "tool": {"own": level_table(), "c": level_table("--c", workload=c)},
        "pattern": {"random": level_table("--pattern", "random")},
    }
    experiment = replace(
        BASE, factors={"tool": ("own", "c"), "pattern": ("random",)}, levels=levels
    )
    ran = {t.treatment["tool"]: t.workload for t in make_trials(experiment, CAGES, CHOICES)}
    assert ran["own"] == Workload("pcread", ("--file", "{file}", "--pattern", "random"))
    assert ran["c"] == Workload(
        "pcscan-c", ("--files", "{files}", "--c", "--pattern", "random"), "handshake", 9
    )


def test_a_level_sets_a_step_a_storage_and_the_machines_memory() -> None:
    step = SetupStep("pcread", ("--file", "{file}"), "other")
    set_up = level_table(
        before={"program": "pcread", "arguments": ["--file", "{file}"], "slice": "other"},
        storage="container_layer",
        machine_memory_bytes={"dataset_fraction": 1.5},
    )
    levels = {"a": {"x": set_up}, "b": {"y": level_table()}}
    experiment = replace(BASE, factors={"a": ("x",), "b": ("y",)}, levels=levels)
    sizes = {**SIZES, "smoke": size_table(dataset="1MiB", files=3)}
    [trial, _] = make_trials(replace(experiment, sizes=sizes, fill="index"), CAGES, CHOICES)
    assert (trial.before, trial.storage) == (step, "container_layer")
    assert trial.machine_memory_bytes == 3 * 2**20 * 3 // 2
    assert [d.file_name for d in trial.datasets] == [f"index-1048576-{n}.bin" for n in (1, 2, 3)]
    assert trial.dataset_bytes == 3 * 2**20


def test_a_level_divides_the_data_of_a_size_among_its_files() -> None:
    levels = {"a": {"many": level_table(files=6), "one": level_table(files=1)}}
    sizes = {**SIZES, "smoke": size_table(dataset="1MiB", files=3)}
    experiment = replace(BASE, factors={"a": ("many", "one")}, levels=levels, sizes=sizes)
    trials = {t.treatment["a"]: t for t in make_trials(experiment, CAGES, CHOICES)}
    sizes_of = {len(t.datasets): t.datasets[-1].size_bytes for t in trials.values()}
    assert sizes_of == {6: 2**19, 1: 3 * 2**20}
    assert {t.dataset_bytes for t in trials.values()} == {3 * 2**20}
    assert needed_disk_bytes(list(trials.values())) == 6 * 2**20


def test_the_files_of_simulated_volumes_need_room_on_the_disk_of_the_data() -> None:
    trial = make_trials(BASE, CAGES, CHOICES)[0]
    cage = replace(trial.cage, enforced_by="volume", disks={"wal": DiskLimits({})})
    on_volumes = replace(trial, cage=cage, dataset=Dataset(GIB), writes_bytes=GIB)
    of_data = needed_disk_bytes([trial, on_volumes])
    assert of_data == needed_disk_bytes([trial, replace(on_volumes, cage=trial.cage)])
    with_volumes = needed_disk_bytes([trial, on_volumes], serves_volumes=True)
    assert with_volumes - of_data == 2 * volume_file_bytes(2 * GIB) == 6 * GIB


def test_a_file_of_an_index_is_an_array_of_whole_buckets() -> None:
    levels = {"a": {"x": level_table(files=28)}}
    sizes = {**SIZES, "smoke": size_table(dataset="64MiB")}
    experiment = replace(BASE, factors={"a": ("x",)}, levels=levels, sizes=sizes)
    of_index, of_noise = (
        make_trials(replace(experiment, fill=fill), CAGES, CHOICES)[0].datasets[0].size_bytes
        for fill in ("index", "random")
    )
    assert (of_index, of_noise) == (585 * 4096, 2**26 // 28)


def test_placeholders_of_a_size_are_filled_in_and_writes_are_kept() -> None:
    levels = {
        "a": {
            "x": level_table("--ops", "{ops}", dirty_bytes="8MiB"),
            "y": level_table(cage="{narrow}", dirty_background_bytes="5B"),
        }
    }
    small = size_table(places={"ops": 100, "narrow": "tight"}, writes="1GiB")
    experiment = replace(
        BASE, factors={"a": ("x", "y")}, levels=levels, sizes={**SIZES, "smoke": small}
    )
    trials = {t.treatment["a"]: t for t in make_trials(experiment, CAGES, CHOICES)}
    assert trials["x"].workload.arguments == ("--file", "{file}", "--ops", "100")
    assert (trials["x"].cage.name, trials["y"].cage.name) == ("uncaged", "tight")
    assert trials["x"].dirty_limits == {"dirty_bytes": 2**23}
    assert trials["y"].dirty_limits == {"dirty_background_bytes": 5}
    assert trials["x"].writes_bytes == 2**30
    assert trials["x"].dataset is None


def test_writes_need_disk_space_and_no_memory() -> None:
    sizes = {**SIZES, "smoke": size_table(dataset="1MiB", max_seconds=5.0, writes="3GiB")}
    plan, writing = plan_of(), plan_of(replace(BASE, sizes=sizes))
    assert resource_needs(writing).data_bytes == resource_needs(plan).data_bytes + 3 * 2**30
    assert resource_needs(writing).memory_bytes == resource_needs(plan).memory_bytes
