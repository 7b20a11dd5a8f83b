"""The benches of the harness's own cost: their plans, their steps, and a small run of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pagecage.model.record import append_record
from pagecage.model.trial import COLLECTORS
from reliability.bench import fleet_growth, growth, observers, peers
from reliability.bench.peers import differences
from tests.fixtures.records import make_record


def test_trials_and_peers_take_turns() -> None:
    names = [name for name, _ in peers.steps({"a": ["a"], "b": ["b"]}, 2, "/x")]
    assert names == ["one", "first", "a", "b", "a", "b", "a", "b", "second"]


def records_at(path: Path, starts: list[float]) -> Path:
    for number, start in enumerate(starts):
        phase = {"name": "run", "start_wall_seconds": start, "start_monotonic_seconds": start}
        phases = [{**phase, "seconds": 0.5}]
        append_record(path, make_record(trial_id=f"t{number}", outcome="ok", phases=phases))
    return path


def test_a_trial_costs_what_several_add(tmp_path: Path) -> None:
    def row(name: str, seconds: float, cpu: float) -> dict[str, Any]:
        return {"name": name, "seconds": seconds, "cpu_seconds": cpu, "most_bytes": 7}

    rows = [row("one", 9, 1.0), row("first", 9, 3.0), row("second", 9, 4.0)]
    rows += [row("a", 50, 9), row("a", 1, 0.1), row("a", 3, 0.3)]
    first = records_at(tmp_path / "first.jsonl", [0, 1, 3])
    second = records_at(tmp_path / "second.jsonl", [0, 4])
    found = peers.costs_of("m", rows, [first, second])
    assert found.trial.seconds == (1.0, 2.0, 4.0)
    assert found.trial.cpu_seconds == pytest.approx((3.0 + 4.0 - 2.0) / 3)
    assert found.peers["a"].seconds == (1, 3), "the first round is not counted"
    assert found.peers["a"].cpu_seconds == pytest.approx(0.2)
    assert found.phases == {"run": 0.5}


def test_moments_that_follow_each_other() -> None:
    assert differences([1.0, 3.0, 6.0]) == [2.0, 3.0]


def test_every_set_of_collectors_takes_turns_with_none_on_a_machine_state_of_its_own() -> None:
    plan = observers.plan_of_reading(observers.IN_GUEST, 2, "systemd-scope")
    blocks: dict[int, list[tuple[str, str]]] = {}
    for trial in plan.trials:
        shown = trial.treatment["reader"], trial.treatment["collectors"]
        blocks.setdefault(trial.block, []).append(shown)
    assert len({trial.trial_id for trial in plan.trials}) == len(plan.trials)
    names = [*observers.IN_GUEST, "all"]
    sets = [("cold", name) for name in names]
    sets += [("resident", name) for name in (*names, "busy")]
    found = [[one for one in turns if one[1] != "none"] for turns in blocks.values()]
    assert [turns[0] for turns in found] == sets * 2
    assert {*names} == {"all", *set(COLLECTORS) - {"perf-mem"}}
    turns = [collectors for _, collectors in blocks[1]]
    assert turns == ["none", "iostat", "iostat", "none", "none", "iostat"]
    turns = [collectors for _, collectors in blocks[1 + len(sets)]]
    assert turns == ["iostat", "none", "none", "iostat", "iostat", "none"]
    assert blocks[len(sets)] == [("resident", "busy")] * 3


def test_each_reader_starts_from_its_own_cache_state() -> None:
    plan = observers.plan_of_reading(("sar",), 1, "systemd-scope")
    states = {(trial.treatment["reader"], trial.cache) for trial in plan.trials}
    assert {("cold", "cold"), ("resident", "warm")} <= states


def test_the_controller_is_measured_on_a_whole_run() -> None:
    found = growth.run_plan(growth.BLOCK, "block")
    assert (found.trials, found.fresh) == (growth.BLOCK, "block")
    assert found.run_seconds > 0
    assert found.resume_seconds > 0


def test_a_fleet_is_measured_on_every_host() -> None:
    found = fleet_growth.in_child(2)
    assert (found.hosts, found.trials) == (2, 2 * growth.BLOCK)
