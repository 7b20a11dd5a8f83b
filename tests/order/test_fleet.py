"""Fleet runs by Ansible itself, over hosts that are folders here: agents alone, lost, interrupted and gone on with."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import pytest

from pagecage.errors import PagecageError
from pagecage.fleet.folder import FleetFolder, find_fleet
from pagecage.fleet.plans import host_plans
from pagecage.record import Record
from tests.fake_host.rack import Rack
from tests.unit.test_plan import BASE, CHOICES, plan_of

THREE = replace(BASE, factors={"level": ("a", "b", "c")})


def outcomes(folder: FleetFolder) -> dict[str, list[str]]:
    return {host: [record.outcome for record in run.records()] for host, run in folder.host_folders().items()}


def records(folder: FleetFolder, host: str) -> list[Record]:
    return folder.host_folders()[host].records()


def test_every_host_runs_the_whole_plan_and_leaves_an_ordinary_run(rack: Rack) -> None:
    folder = rack.begin(plan_of(THREE, replace(CHOICES, repeats=1)))
    rack.go(folder)
    assert outcomes(folder) == {"left": ["ok"] * 3, "right": ["ok"] * 3}
    for host, run in folder.host_folders().items():
        plan, (first, *_) = run.plan(), run.records()
        assert (plan.document["host"], first.host, first.run_id) == (host, host, f"20261121T100000Z-test-{host}")
        assert first.plan_sha256 == plan.sha256 == folder.document()["hosts"][host]
        assert (run.path / first.traces["sampler"]).read_bytes() == b'{"t": 1.0}\n' * 3
        assert len(list((run.path / "facts").iterdir())) == 1
        assert rack.agent_calls(host) == [[trial.trial_id for trial in plan.trials]]
        assert not (rack.top / host / "fleet").exists() or not list((rack.top / host / "fleet").iterdir())
    assert {host: end.outcome for host, end in folder.last_ends().items()} == {"left": "done", "right": "done"}
    assert list((folder.path / "streams").iterdir()) == []
    assert (found := find_fleet(rack.top / "runs", "test@rack")) is not None
    assert found.path == folder.path


def test_spread_deals_whole_blocks(rack: Rack) -> None:
    folder = rack.begin(plan_of(THREE, replace(CHOICES, repeats=3)), "spread")
    rack.go(folder)
    assert {r.block for r in records(folder, "left")} == {1, 3}
    assert {r.block for r in records(folder, "right")} == {2}
    assert [len(ids) for ids in outcomes(folder).values()] == [6, 3]


def test_fewer_blocks_than_hosts_cannot_be_spread() -> None:
    with pytest.raises(PagecageError, match="1 repeats cannot be spread over 2 hosts") as told:
        host_plans(plan_of(THREE, replace(CHOICES, repeats=1)), ("left", "right"), "spread")
    assert "--repeats 2" in told.value.hint


def test_an_agent_that_dies_is_started_again_where_it_stood(rack: Rack) -> None:
    plan = plan_of(THREE, replace(CHOICES, repeats=1))
    second = plan.trials[1].trial_id
    rack.tell("right", {second: ["dies"]})
    folder = rack.begin(plan)
    rack.go(folder)
    assert outcomes(folder)["left"] == ["ok"] * 3
    told = [(r.trial_id, r.attempt, r.outcome) for r in records(folder, "right")]
    first, _, third = (trial.trial_id for trial in plan.trials)
    assert told == [(first, 1, "ok"), (second, 1, "interrupted"), (second, 2, "ok"), (third, 1, "ok")]
    assert "status 9" in (records(folder, "right")[1].error or "")
    assert "what I said last" in (records(folder, "right")[1].error or "")
    assert [end.outcome for end in folder.last_ends().values()] == ["done", "done"]


def test_a_host_that_is_lost_leaves_its_part_and_its_agent_is_not_forgotten(rack: Rack) -> None:
    """The connection breaks; the agent finishes alone. Going on fetches that, and asks for nothing again."""
    folder = rack.begin(plan_of(THREE, replace(CHOICES, repeats=1)))
    (rack.top / "units/lost").write_text("-right-")
    rack.go(folder)
    assert outcomes(folder) == {"left": ["ok"] * 3, "right": []}
    lost = folder.last_ends()["right"]
    assert lost.outcome == "lost"
    assert "the host is gone" in lost.because
    (rack.top / "units/lost").unlink()
    rack.go(folder, "right")
    assert outcomes(folder)["right"] == ["ok"] * 3
    assert len(rack.agent_calls("right")) == len(rack.agent_calls("left")) == 1
    assert folder.last_ends()["right"].outcome == "done"


def test_what_was_fetched_before_is_not_recorded_twice(rack: Rack) -> None:
    """The controller died after it had taken frames in and before the round had ended."""
    folder = rack.begin(plan_of(THREE, replace(CHOICES, repeats=1)))
    rack.go(folder)
    stream = json.dumps({"frame": "record", "record": json.loads(
        (folder.host_path("left") / "records.jsonl").read_text().splitlines()[0])})  # fmt: skip
    (folder.path / "streams/left.1").write_text(stream + "\n")
    rack.go(folder, "left")
    assert outcomes(folder)["left"] == ["ok"] * 3
    assert list((folder.path / "streams").iterdir()) == []


def test_an_agent_that_cannot_work_is_believed_and_the_others_go_on(rack: Rack) -> None:
    rack.tell("left", {"start": "refuses"})
    folder = rack.begin(plan_of(THREE, replace(CHOICES, repeats=1)))
    rack.go(folder)
    assert outcomes(folder) == {"left": [], "right": ["ok"] * 3}
    refused = folder.last_ends()["left"]
    assert (refused.outcome, "another run is using this host" in refused.because) == ("refused", True)
    assert len(rack.agent_calls("left")) == 1


def test_ctrl_c_ends_every_agent_in_good_order(rack: Rack) -> None:
    plan = plan_of(THREE, replace(CHOICES, repeats=1))
    second = plan.trials[1].trial_id
    for name in rack.names:
        rack.tell(name, {second: ["waits"]})
    folder = rack.begin(plan)

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not all((rack.top / name / "spool/waits").exists() for name in rack.names):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        import _thread

        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        rack.go(folder)
    thread.join()
    assert outcomes(folder) == {"left": ["ok", "interrupted"], "right": ["ok", "interrupted"]}
    assert {end.outcome for end in folder.last_ends().values()} == {"interrupted"}
    for name in rack.names:
        rack.tell(name, {})
    rack.go(folder)
    assert outcomes(folder) == {"left": ["ok", "interrupted", "ok", "ok"], "right": ["ok", "interrupted", "ok", "ok"]}


def test_a_host_that_was_started_anew_has_lost_its_open_trial(rack: Rack) -> None:
    """Its agent had begun a trial when the host went; whoever goes on finds nothing of it there."""
    plan = plan_of(THREE, replace(CHOICES, repeats=1))
    folder, first = rack.begin(plan), plan.trials[0].trial_id
    (folder.path / "streams").mkdir()
    begun = {"frame": "event", "event": "trial", "trial_id": first, "attempt": 1}
    (folder.path / "streams/left.1").write_text(json.dumps(begun) + "\n")
    rack.go(folder, "left")
    told = [(record.trial_id, record.attempt, record.outcome, record.error) for record in records(folder, "left")]
    assert told[:2] == [
        (first, 1, "interrupted", "nothing of its agent is left on the host"), (first, 2, "ok", None),
    ]  # fmt: skip
    assert len(told) == 4
    assert folder.last_ends()["left"].round == 2
