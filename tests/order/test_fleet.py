"""Fleet runs by Ansible itself, over hosts that are folders here: agents alone, lost, interrupted and gone on with."""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent.facts import read_facts
from pagecage.errors import HostError, PagecageError
from pagecage.fleet.campaign import FleetCampaign
from pagecage.fleet.folder import FleetFolder, find_fleet
from pagecage.fleet.inventory import FleetHost
from pagecage.fleet.lane import Lane
from pagecage.fleet.look import Seen, look, unlike
from pagecage.fleet.plans import host_plans
from pagecage.fleet.play import Stage, make_stage
from pagecage.hosts.kit import Kit
from pagecage.plan import Plan
from pagecage.record import Record
from tests.record_schema import breaches_under
from tests.tree import ROOT
from tests.unit.test_plan import BASE, CHOICES, plan_of

HERE = Path(__file__).resolve().parents[1] / "fake_host"
THREE = replace(BASE, factors={"level": ("a", "b", "c")})
FIT = {
    "kernel": "6.12", "machine": platform.machine(), "cpu_model": "a", "cpus": 1, "memory_bytes": 2**31,
    "systemd": {"pid1": True, "version": 257, "user": False},
    "cgroup": {"v2": True, "controllers": ["io", "memory"], "manager": "systemd"}, "disk": {"filesystem": "ext4"},
}  # fmt: skip


def agent_archive(path: Path) -> Path:
    """The scripted agent as one file, as the real one travels."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(HERE / "fleet_agent.py", "__main__.py")
        archive.write(HERE / "scripted_agent.py", "scripted_agent.py")
    return path


@dataclass
class Rack:
    """Hosts that are folders of this machine, which Ansible reaches by its local connection."""

    top: Path
    names: tuple[str, ...] = ("left", "right")
    heard: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def make(self) -> None:
        for folder in ("units", *(f"{name}/spool" for name in self.names), *(f"{name}/data" for name in self.names)):
            (self.top / folder).mkdir(parents=True)
        for name in self.names:
            self.tell(name, {})
            self.is_like(name, **FIT)
        hosts = {host.name: dict(host.variables) for host in self.hosts()}
        (self.top / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts}}))

    def tell(self, name: str, script: Mapping[str, Any]) -> None:
        (self.top / name / "spool/script.json").write_text(json.dumps(script))

    def is_like(self, name: str, **facts: Any) -> None:
        (self.top / name / "spool/facts.json").write_text(json.dumps(facts))

    def hosts(self) -> tuple[FleetHost, ...]:
        return tuple(self.host(name) for name in self.names)

    def host(self, name: str) -> FleetHost:
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        own = {"pagecage_data_dir": f"{self.top / name}/data", "campaign_spool": f"{self.top / name}/spool"}
        patience = {"campaign_dir": f"{self.top / name}/fleet", "campaign_patience_seconds": 0}
        return FleetHost(name, name, {**local, **own, **patience})

    def kit(self) -> Kit:
        return Kit(agent_archive(self.top / "agent.pyz"), (), "0" * 64)

    def stage(self) -> Stage:
        return make_stage(ROOT, self.kit(), self.top / "scratch", self.top / "inventory.json")

    def seen(self) -> tuple[Seen, ...]:
        return tuple(Seen(host, FIT) for host in self.hosts())

    def begin(self, plan: Plan, mode: str = "replicate") -> FleetFolder:
        return FleetFolder.create(self.top / "runs", plan, "rack", mode, host_plans(plan, self.names, mode))

    def go(self, folder: FleetFolder, *names: str) -> None:
        """Carry out what is lacking on these hosts, or on all."""
        runs, streams = folder.host_folders(), folder.path / "streams"
        streams.mkdir(exist_ok=True)
        lanes = [
            Lane(one.place, runs[one.host.name].plan(), runs[one.host.name], streams, self.hear)
            for one in self.seen() if one.host.name in (names or self.names)
        ]  # fmt: skip
        FleetCampaign(self.stage(), folder, lanes, self.kit(), self.hear).run()

    def hear(self, host: str, event: Mapping[str, Any]) -> None:
        self.heard.append((host, event))

    def agent_calls(self, name: str) -> list[list[str]]:
        path = self.top / name / "spool/calls"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rack]:
    made = Rack(tmp_path)
    made.make()
    monkeypatch.setenv("FAKE_UNITS", str(tmp_path / "units"))
    monkeypatch.setenv("PATH", f"{HERE / 'fleet_bin'}:{os.environ['PATH']}")
    yield made
    assert not breaches_under(tmp_path)
    assert [path.name for path in (tmp_path / "units").iterdir() if path.suffix != ".status"
            and not path.with_name(f"{path.name}.status").exists()] == [], "an agent was left"  # fmt: skip


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


def test_a_look_tells_who_can_serve(rack: Rack) -> None:
    found = look(rack.stage(), "rack", rack.hosts())
    assert [one.host.name for one in found.seen] == ["left", "right"]
    assert found.seen[0].facts == FIT
    assert (found.unreachable, found.unfit) == ({}, {})
    assert list(unlike(found.seen)) == []


def test_a_look_says_why_a_host_cannot_serve(rack: Rack, tmp_path: Path) -> None:
    (tmp_path / "right/data").rmdir()
    rack.is_like("left", **{**FIT, "machine": "riscv64"})
    found = look(rack.stage(), "rack", rack.hosts())
    assert found.seen == ()
    assert "left is riscv64" in found.unfit["left"].message
    assert "right: it was never made fit for experiments (no-data-dir)" in found.unfit["right"].message
    assert found.unfit["right"].hint == "make provision HOST=right"


def test_a_host_without_limits_is_unfit(rack: Rack) -> None:
    rack.is_like("left", **{**FIT, "cgroup": {**FIT["cgroup"], "controllers": ["memory"]}})
    found = look(rack.stage(), "rack", rack.hosts())
    assert "the io controller is not available" in found.unfit["left"].message
    assert found.unfit["left"].hint == "make provision HOST=rack"


def test_hosts_that_differ_are_told_apart(rack: Rack) -> None:
    left, right = rack.seen()
    other = replace(right, facts={**FIT, "kernel": "6.1", "disk": {"filesystem": "xfs"}, "memory_bytes": 2**30})
    assert list(unlike([left, other])) == [
        "kernel is 6.12 on left, 6.1 on right", "disk.filesystem is ext4 on left, xfs on right",
        "their memory differs by more than 5 %",
    ]  # fmt: skip


def test_a_host_that_does_not_answer_is_named(rack: Rack) -> None:
    gone = {**rack.host("right").variables, "ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    hosts = {"left": dict(rack.host("left").variables), "right": gone}
    (rack.top / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    found = look(rack.stage(), "rack", (rack.host("left"), FleetHost("right", "127.0.0.1", gone)))
    assert [one.host.name for one in found.seen] == ["left"]
    assert isinstance(found.unreachable["right"], HostError)
    assert "Connection refused" in found.unreachable["right"].message


def test_an_empty_group_and_a_host_without_a_directory_are_refused(rack: Rack) -> None:
    with pytest.raises(PagecageError, match="the group rack has no host now"):
        look(rack.stage(), "rack", ())
    with pytest.raises(PagecageError, match="left has no pagecage_data_dir"):
        look(rack.stage(), "rack", (FleetHost("left", "left", {}),))
    with pytest.raises(PagecageError, match="cannot be the name of a run's folder"):
        look(rack.stage(), "rack", (FleetHost("a/b", "left", {"pagecage_data_dir": "/x"}),))


def test_facts_that_a_look_reads_are_those_that_agents_tell(tmp_path: Path) -> None:
    assert set(FIT) <= set(read_facts(tmp_path, False))
