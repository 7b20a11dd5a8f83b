"""Fleet runs by Ansible over hosts that are folders: detached agents, lost hosts, interruptions and
resumed runs.
"""

from __future__ import annotations

import _thread
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from pagecage import ansible
from pagecage.errors import PagecageError
from pagecage.fleet import rounds
from pagecage.fleet.folder import FleetFolder, RoundResult, find_fleet
from pagecage.fleet.rounds import host_plans
from pagecage.model.record import Record
from tests.builders.known import known
from tests.builders.plans import BASE, CHOICES, plan_of
from tests.builders.waiting import wait_until
from tests.conftest import children
from tests.fake_host.rack import Rack
from tests.order.conftest import racked

THREE = replace(BASE, factors={"level": ("a", "b", "c")})


def outcomes(folder: FleetFolder) -> dict[str, list[str]]:
    runs = folder.host_folders()
    return {host: [record.outcome for record in run.records()] for host, run in runs.items()}


def records(folder: FleetFolder, host: str) -> list[Record]:
    return folder.host_folders()[host].records()


@dataclass(frozen=True)
class Fleet:
    """A run over five hosts, and the contents of its folder when it first ended."""

    rack: Rack
    folder: FleetFolder
    outcomes: Mapping[str, list[str]]
    ends: Mapping[str, RoundResult]
    streams: list[str]

    @property
    def trials(self) -> list[str]:
        """The plan's trials in order."""
        return [trial.trial_id for trial in self.folder.host_folders()["whole"].plan().trials]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A run with one good host, and hosts whose agent dies or refuses, that is lost, or that was
    reinstalled.
    """
    plan = plan_of(THREE, replace(CHOICES, repeats=1))
    first, second = (trial.trial_id for trial in plan.trials[:2])
    names = ("whole", "dying", "refusing", "lost", "anew")
    with racked(tmp_path_factory.mktemp("rack"), *names) as rack:
        rack.set_script("dying", {second: ["dies"]})
        rack.set_script("refusing", {"start": "refuses"})
        (rack.top / "units/lost").write_text("-lost-")
        folder = rack.begin(plan)
        begun = {"frame": "event", "event": "trial", "trial_id": first, "attempt": 1}
        (folder.path / "streams").mkdir()
        (folder.path / "streams/anew.1").write_text(json.dumps(begun) + "\n")
        rack.go(folder)
        streams = [path.name for path in (folder.path / "streams").iterdir()]
        yield Fleet(rack, folder, outcomes(folder), folder.last_results(), streams)


@pytest.fixture(scope="module")
def gone_on(fleet: Fleet) -> FleetFolder:
    """The same folder after the lost host returned, and after the frames of a host arrived
    twice.
    """
    folder = fleet.folder
    record = json.loads((folder.host_path("whole") / "records.jsonl").read_text().splitlines()[0])
    frame = json.dumps({"frame": "record", "record": record})
    (folder.path / "streams/whole.1").write_text(f"{frame}\n")
    (fleet.rack.top / "units/lost").unlink()
    fleet.rack.go(folder, "whole", "lost")
    return folder


def test_a_host_runs_the_whole_plan_and_leaves_an_ordinary_run(fleet: Fleet) -> None:
    run = fleet.folder.host_folders()["whole"]
    plan, (first, *_) = run.plan(), run.records()
    assert fleet.outcomes["whole"] == ["ok"] * 3
    assert plan.document["host"] == first.host == "whole"
    assert first.run_id == "20261121T100000Z-test-whole"
    assert first.plan_sha256 == plan.sha256 == fleet.folder.document()["hosts"]["whole"]
    assert (run.path / first.traces["sampler"]).read_bytes() == b'{"t": 1.0}\n' * 3
    assert len(list((run.path / "facts").iterdir())) == 1
    assert fleet.rack.agent_calls("whole") == [fleet.trials]
    assert not list((fleet.rack.top / "whole/fleet").iterdir())
    assert fleet.ends["whole"].outcome == "done"
    assert fleet.streams == ["lost.1"], "what a host's round has ended on is taken in"
    assert known(find_fleet(fleet.rack.top / "runs", "test@rack")).path == fleet.folder.path


def test_an_agent_that_dies_is_started_again_where_it_stood(fleet: Fleet) -> None:
    found = records(fleet.folder, "dying")
    reported = [(record.trial_id, record.attempt, record.outcome) for record in found]
    first, second, third = fleet.trials
    of_second = [(second, 1, "interrupted"), (second, 2, "ok")]
    assert reported == [(first, 1, "ok"), *of_second, (third, 1, "ok")]
    assert "status 9" in (found[1].error or "")
    assert "what I said last" in (found[1].error or "")
    assert fleet.ends["dying"].outcome == "done"


def test_an_agent_that_cannot_work_is_believed_and_the_others_go_on(fleet: Fleet) -> None:
    assert fleet.outcomes["refusing"] == []
    assert fleet.ends["refusing"].outcome == "refused"
    assert "another run is using this host" in fleet.ends["refusing"].reason
    assert len(fleet.rack.agent_calls("refusing")) == 1


def test_a_host_that_was_started_anew_has_lost_its_open_trial(fleet: Fleet) -> None:
    """Its agent had begun a trial when the host restarted; a resumed run finds nothing of it
    there.
    """
    lost, again, *others = records(fleet.folder, "anew")
    assert {lost.trial_id, again.trial_id} == {fleet.trials[0]}
    assert (lost.attempt, lost.outcome) == (1, "interrupted")
    assert lost.error == "nothing of its agent is left on the host"
    assert (again.attempt, again.outcome, again.error) == (2, "ok", None)
    assert len(others) == 2
    assert (fleet.ends["anew"].outcome, fleet.ends["anew"].round) == ("done", 2)


def test_a_host_that_is_lost_leaves_its_part_and_its_agent_is_not_forgotten(
    fleet: Fleet, gone_on: FleetFolder
) -> None:
    """The connection breaks and the agent finishes alone. A resumed run fetches that and requests
    nothing again.
    """
    assert fleet.outcomes["lost"] == []
    assert fleet.ends["lost"].outcome == "lost"
    assert "the host is gone" in fleet.ends["lost"].reason
    assert outcomes(gone_on)["lost"] == ["ok"] * 3
    assert len(fleet.rack.agent_calls("lost")) == 1
    assert gone_on.last_results()["lost"].outcome == "done"


def test_what_was_fetched_before_is_not_recorded_twice(fleet: Fleet, gone_on: FleetFolder) -> None:
    """As if the controller died after it received frames and before the round ended."""
    assert outcomes(gone_on)["whole"] == fleet.outcomes["whole"]
    assert list((gone_on.path / "streams").iterdir()) == []


def test_spread_deals_whole_blocks() -> None:
    plans = host_plans(plan_of(THREE, replace(CHOICES, repeats=3)), ("left", "right"), "spread")
    blocks = {name: {trial.block for trial in plan.trials} for name, plan in plans.items()}
    assert blocks == {"left": {1, 3}, "right": {2}}
    assert [len(plan.trials) for plan in plans.values()] == [6, 3]


def test_fewer_blocks_than_hosts_cannot_be_spread() -> None:
    plan = plan_of(THREE, replace(CHOICES, repeats=1))
    says = "1 repeats are too few to spread over 2 hosts"
    with pytest.raises(PagecageError, match=says) as caught:
        host_plans(plan, ("left", "right"), "spread")
    assert "--repeats 2" in caught.value.hint


@contextmanager
def interrupted_when_all_wait(
    rack: Rack, before: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Call `before` and press Ctrl-C when the trial of every host waits."""

    def interrupt() -> None:
        waits = [rack.top / name / "spool/waits" for name in rack.names]
        wait_until(lambda: all(path.exists() for path in waits), 60)
        before()
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    yield
    thread.join()


@pytest.mark.slow
def test_ctrl_c_ends_every_agent_in_good_order(rack: Rack) -> None:
    plan = plan_of(THREE, replace(CHOICES, repeats=1))
    second = plan.trials[1].trial_id
    for name in rack.names:
        rack.set_script(name, {second: ["waits"]})
    folder = rack.begin(plan)
    with interrupted_when_all_wait(rack), pytest.raises(KeyboardInterrupt):
        rack.go(folder)
    assert outcomes(folder) == {name: ["ok", "interrupted"] for name in rack.names}
    assert {end.outcome for end in folder.last_results().values()} == {"interrupted"}
    for name in rack.names:
        rack.set_script(name, {})
    rack.go(folder)
    assert outcomes(folder) == {name: ["ok", "interrupted", "ok", "ok"] for name in rack.names}


@pytest.mark.slow
def test_ctrl_c_ends_a_run_whose_ansible_hangs(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agents are stopped nevertheless, and the next run fetches what they have."""
    monkeypatch.setattr(rounds, "STOP_SECONDS", 8.0)
    monkeypatch.setattr(ansible, "TERMINATION_SECONDS", 0.2)
    plan = plan_of(THREE, replace(CHOICES, repeats=1))
    for name in rack.names:
        rack.set_script(name, {plan.trials[1].trial_id: ["waits"]})
    folder = rack.begin(plan)

    def hang() -> None:
        [pid] = [pid for pid, line in children().items() if "fleet.yml" in line]
        os.killpg(pid, signal.SIGSTOP)

    with interrupted_when_all_wait(rack, hang), pytest.raises(KeyboardInterrupt):
        rack.go(folder)
    assert {end.outcome for end in folder.last_results().values()} == {"lost"}
    for name in rack.names:
        rack.set_script(name, {})
    rack.go(folder)
    for found in outcomes(folder).values():
        assert [one for one in found if one != "interrupted"] == ["ok"] * 3
