"""The rounds of a search, which follow from the plan and the records alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pagecage.memory_search.rounds import (
    GIVE_UP,
    LEAST_GIVE_UP_SECONDS,
    SECOND_OPINION,
    answer_of_run,
    figures_of,
    measured_levels,
    with_rounds,
)
from pagecage.model.trial import trial_from_json
from pagecage.verdicts.evaluate import evaluate
from tests.builders.memory_runs import (
    RULE,
    SECONDS,
    WORKING_SET,
    document,
    recorded,
    reference,
    run_all,
)
from tests.fixtures.records import after, caged, make_record


def test_it_finds_the_working_set() -> None:
    plan = document()
    last = run_all(plan)
    found = answer_of_run(with_rounds(plan, last, evaluate), last, evaluate)
    assert found is not None
    assert found.is_complete
    for need in found.needs:
        assert WORKING_SET <= need.needed_bytes <= 1.02 * WORKING_SET
        assert need.short_bytes is not None
        assert need.short_bytes < WORKING_SET


def test_the_plan_is_never_changed_and_the_rounds_are_always_the_same() -> None:
    """A reader of half of the records gets the first half of the trials."""
    plan = document()
    before = copy.deepcopy(plan)
    last = run_all(plan)
    whole = with_rounds(plan, last, evaluate)["trials"]
    assert plan == before
    assert [trial["trial_id"] for trial in whole] == list(last)
    for count in range(len(last) + 1):
        some = dict(list(last.items())[:count])
        partial = with_rounds(plan, some, evaluate)["trials"]
        assert partial == whole[: len(partial)]
        assert len(partial) > min(count, len(whole) - 1)


def test_every_trial_can_run_in_a_cage_of_its_own() -> None:
    plan = document()
    last = run_all(plan)
    trials = with_rounds(plan, last, evaluate)["trials"]
    for position, data in enumerate(trials):
        trial = trial_from_json(data)
        limit = trial.cage.properties.get("MemoryMax")
        assert (trial.position, trial.treatment["cage"]) == (position, data["treatment"]["cage"])
        assert trial.cage.properties["MemorySwapMax"] == 0
        if limit is not None:
            assert trial.cage.name == trial.treatment["cage"]
            assert "MemoryMax" in trial.cage.name
            longest = max(LEAST_GIVE_UP_SECONDS, GIVE_UP * SECONDS)
            assert trial.workload.command is not None
            assert trial.timeout_seconds == trial.workload.command.timeout_seconds == longest
    names = {trial["trial_id"] for trial in trials}
    assert len(names) == len(trials)
    levels = with_rounds(plan, last, evaluate)["definition"]["factors"]["cage"]
    assert set(levels) == {trial["treatment"]["cage"] for trial in trials}


def test_the_last_trial_is_watched_by_damon_and_does_not_count() -> None:
    plan = document()
    last = run_all(plan)
    trials = with_rounds(plan, last, evaluate)["trials"]
    assert trials[-1]["trial_id"] == SECOND_OPINION
    assert trials[-1]["collectors"] == ["damon"]
    without = {name: record for name, record in last.items() if name != SECOND_OPINION}
    assert answer_of_run(with_rounds(plan, last, evaluate), last, evaluate) == answer_of_run(
        with_rounds(plan, without, evaluate), without, evaluate
    )
    measured = measured_levels(with_rounds(plan, last, evaluate), last, evaluate)
    assert measured is not None
    assert None not in {level.limit_bytes for level in measured.levels}
    alone = document(memory_search={"rule": RULE})
    assert SECOND_OPINION not in run_all(alone)


def test_an_unfinished_trial_holds_the_search_up() -> None:
    plan = document()
    last = {t["trial_id"]: recorded(t) for t in plan["trials"]}
    last["r3_own"] = make_record(outcome="not_prepared", trial_id="r3_own")
    assert with_rounds(plan, last, evaluate)["trials"] == plan["trials"]


def test_other_plans_are_left_alone() -> None:
    plan = {"trials": [reference(1)]}
    assert with_rounds(plan, {}, evaluate) is plan
    assert answer_of_run({**document(), "memory_search": None}, {}, evaluate) is None


@pytest.mark.parametrize(
    ("changes", "is_short", "is_cut"),
    [
        ({"outcome": "oom_killed"}, True, False),
        ({"outcome": "failed", "exit": {"status": 1, "ended_by_itself": True}}, True, False),
        ({"outcome": "timed_out"}, True, False),
        ({"outcome": "timed_out", "outer_host": None, "foreign": 1}, False, True),
        ({}, False, False),
    ],
)
def test_the_end_of_a_trial_tells_whether_memory_was_short(
    changes: dict[str, Any], is_short: bool, is_cut: bool
) -> None:
    foreign = {"foreign": 500_000_000} if changes.pop("foreign", None) else {}
    figures = {"read_bytes": 1_000_000, "reads": 10, **foreign}
    record = make_record(
        **changes, cage=caged({}), counters=after(**figures), response={"wall_seconds": 1.0}
    )
    found = figures_of(record, "wall_seconds", evaluate(record))
    assert (found.is_short, found.is_cut) == (is_short, is_cut)
    assert (found.seconds is not None) is (record.outcome == "ok")


def test_a_trial_on_a_busy_host_has_refaults_but_no_time() -> None:
    record = make_record(
        counters=after(foreign=500_000_000, refaults=123),
        cage=caged({}),
        response={"wall_seconds": 1.0},
    )
    found = figures_of(record, "wall_seconds", evaluate(record))
    assert (found.seconds, found.refaults) == (None, 123)


def test_a_trial_whose_limit_leaked_has_neither() -> None:
    cage = caged({"MemoryMax": 13_418_496})
    cage["read_back"]["memory.max"] = "max"
    record = make_record(cage=cage, response={"wall_seconds": 1.0})
    found = figures_of(record, "wall_seconds", evaluate(record))
    assert (found.seconds, found.refaults) == (None, None)
