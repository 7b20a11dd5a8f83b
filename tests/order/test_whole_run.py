"""Controller and real agent together: killed, interrupted, resumed, and concurrent runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent.protocol import request_to_json
from pagecage.errors import HostError
from pagecage.hosts.agent_package import AgentPackage
from pagecage.model.record import Record, read_records
from pagecage.model.trial import Dataset
from pagecage.planning.plan import Plan, make_plan
from pagecage.process import PIPE, spawn
from pagecage.runner.campaign import Campaign, RunSummary
from pagecage.runner.run_folder import RunFolder
from tests.builders.plans import BASE, CHOICES, HARNESS
from tests.fake_host.hosts import TestHost, on_fakes
from tests.fake_host.machine import (
    CAGE,
    DATASET,
    WORKLOADS,
    Machine,
    frames_of,
    make_request,
    make_trial,
)

ONCE = replace(CHOICES, repeats=1)


def a_plan(*programs: str, collectors: tuple[str, ...] = ("iostat", "sar", "vmtouch")) -> Plan:
    """Return one trial per program, in this order, in the tight cage."""
    plan = make_plan(
        "20261121T100000Z-test-vm", BASE, {"uncaged": CAGE}, ONCE, "pagecage run test", HARNESS
    )
    trial = make_trial(collectors=collectors, timeout_seconds=20.0)
    trials = tuple(
        replace(
            trial,
            trial_id=f"r1_{n}_{name.removesuffix('.py')}",
            position=n,
            workload=replace(trial.workload, program=name),
        )
        for n, name in enumerate(programs)
    )
    return replace(plan, trials=trials)


class Whole:
    """A run of a plan by the real agent on the fake machine."""

    def __init__(self, machine: Machine, package: AgentPackage, plan: Plan) -> None:
        self.machine, self.package, self.plan = machine, package, plan
        self.folder = RunFolder.create(machine.root / "runs", plan)
        self.host: TestHost = on_fakes(package.agent, machine)

    def go(self, listener: Any = lambda _: None) -> RunSummary:
        return Campaign(self.host, self.plan, self.folder, self.package, listener).run()

    def records(self) -> list[Record]:
        return list(read_records(self.folder.records_path))


def test_a_run_from_plan_to_records_and_traces(machine: Machine, package: AgentPackage) -> None:
    whole = Whole(machine, package, a_plan("good.py", "out_of_memory.py"))
    assert whole.go() == RunSummary(2, 0)
    good, killed = whole.records()
    assert (good.outcome, killed.outcome) == ("ok", "oom_killed")
    assert set(good.traces) == {"sampler", "iostat", "sar", "vmtouch"}
    for path in good.traces.values():
        assert (whole.folder.path / path).stat().st_size > 0
    assert good.harness["agent_sha256"] == "0" * 64
    assert good.emulated is True
    assert machine.left() == []
    facts = json.loads(next((whole.folder.path / "facts").iterdir()).read_text())
    assert facts["disk"]["maj_min"] == "259:7"


def test_a_killed_agent_leaves_nothing_after_the_next_start(
    machine: Machine, package: AgentPackage
) -> None:
    """SIGKILL leaves slice, limits, queue settings, tools and traces to the next agent."""
    whole = Whole(machine, package, a_plan("never_ends.py", "good.py"))
    left: list[str] = []

    def kill(event: Mapping[str, Any]) -> None:
        if event["event"] == "go" and not left:
            os.kill(int(machine.agent_pid.read_text()), signal.SIGKILL)
            time.sleep(0.1)
            left.extend(machine.left())
            shutil.copy2(WORKLOADS / "good.py", machine.root / "programs/never_ends.py")

    assert whole.go(kill) == RunSummary(2, 0)
    assert any("pagecage-r1_0" in path for path in left)
    assert any("queue-settings.json" in path for path in left)
    assert any("children" in path for path in left)
    assert machine.left() == []
    results = [(record.attempt, record.outcome) for record in whole.records()]
    assert results == [(1, "interrupted"), (2, "ok"), (1, "ok")]
    assert machine.log_lines().count("iostat begins") == 3
    assert (
        machine.log_lines().count("iostat ends") == 2
    )  # the cleanup killed the first, whose agent was gone


def test_ctrl_c_ends_the_trial_and_keeps_its_record(
    machine: Machine, package: AgentPackage
) -> None:
    whole = Whole(machine, package, a_plan("good.py", "never_ends.py", "good.py"))

    def interrupt(event: Mapping[str, Any]) -> None:
        if event["event"] == "go" and "never_ends" in event["trial_id"]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        whole.go(interrupt)
    results = [(record.outcome, record.phase, record.error) for record in whole.records()]
    assert results == [("ok", "record", None), ("interrupted", "run", "ended from outside")]
    assert machine.left() == []
    assert len(whole.folder.remaining(whole.plan)) == 2


def test_a_second_run_on_a_host_is_refused(machine: Machine, package: AgentPackage) -> None:
    """The second run is refused, and the first one's slice and workload continue."""
    first = Whole(machine, package, a_plan("never_ends.py"))
    second = on_fakes(package.agent, machine)
    elsewhere = RunFolder.make(machine.root / "elsewhere", first.plan)
    refusals: list[HostError] = []

    def meet(event: Mapping[str, Any]) -> None:
        if event["event"] != "go":
            return
        before = machine.left()
        with pytest.raises(HostError) as caught:
            Campaign(second, first.plan, elsewhere, package, lambda _: None).run()
        refusals.append(caught.value)
        assert machine.left() == before
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.go(meet)
    assert "another run is using this host (process" in refusals[0].message
    assert machine.left() == []


@pytest.mark.parametrize("program", ["never_ends.py", "floods_for_ever.py"])
def test_the_end_of_the_controller_is_noticed(
    machine: Machine, package: AgentPackage, program: str
) -> None:
    """SIGKILL of the controller closes the agent's input.

    The agent cleans up and saves its record.
    """
    host = on_fakes(package.agent, machine)
    request = make_request(machine, make_trial(program), make_trial(trial_id="r1_next"))
    agent = spawn(host.agent_command(), stdin=PIPE, stdout=PIPE, stderr=PIPE, new_session=True)
    assert agent.stdin is not None
    assert agent.stdout is not None
    assert agent.stderr is not None
    agent.stdin.write(json.dumps(request_to_json(request)).encode() + b"\n")
    output = b""
    while b'"event":"go"' not in output:
        output += agent.stdout.readline()
    agent.stdin.close()
    agent.stdout.close()
    stderr = agent.stderr.read().decode()
    agent.stderr.close()
    assert agent.wait(30) != 0
    assert "Traceback" not in stderr
    assert machine.left() == []
    [record] = read_records(machine.records)
    assert record.outcome == "interrupted"


@pytest.mark.parametrize("line", [b"", b"\n", b"{}\n", b"[]\n", b'{"run_id": "cut'])
def test_an_incomplete_request_starts_nothing(
    machine: Machine, package: AgentPackage, line: bytes
) -> None:
    agent = spawn(
        on_fakes(package.agent, machine).agent_command(), stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    assert agent.stderr is not None
    agent.stdin.write(line)
    agent.stdin.close()
    assert agent.wait(30) != 0
    assert agent.stdout.read() == b""
    agent.stdout.close()
    agent.stderr.close()
    assert machine.log_lines() == []


def test_an_agent_that_cannot_work_reports_the_reason(
    machine: Machine, package: AgentPackage
) -> None:
    host = on_fakes(package.agent, machine)
    request = replace(
        make_request(machine, make_trial()), spool_dir=str(machine.root / "log/spool")
    )
    agent = spawn(host.agent_command(), stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert agent.stdin is not None
    assert agent.stdout is not None
    assert agent.stderr is not None
    agent.stdin.write(json.dumps(request_to_json(request)).encode() + b"\n")
    frames = frames_of(agent.stdout.read())
    stderr = agent.stderr.read().decode()
    agent.stdin.close()
    assert agent.wait(30) not in (0, None)
    agent.stdout.close()
    agent.stderr.close()
    assert "Traceback" not in stderr
    assert frames[-1]["event"] == "error"


def test_a_full_disk_leaves_a_record_that_says_so(machine: Machine, package: AgentPackage) -> None:
    """The dataset is too large: nothing is written or measured, and the next trial runs."""
    plan = a_plan("good.py", "good.py")
    huge = replace(plan.trials[0], dataset=Dataset(2**60))
    whole = Whole(
        machine,
        package,
        replace(plan, trials=(huge, replace(plan.trials[1], trial_id="r1_second"))),
    )
    assert whole.go() == RunSummary(1, 1)
    outcomes = {record.trial_id: record for record in whole.records()}
    assert outcomes[huge.trial_id].outcome == "not_prepared"
    assert "does not fit" in (outcomes[huge.trial_id].error or "")
    assert outcomes[huge.trial_id].phase == "dataset"
    assert outcomes["r1_second"].outcome == "ok"
    assert list(machine.data.glob("random-*.bin")) == [machine.data / DATASET.file_name]
    assert machine.left() == []


def test_the_spool_keeps_nothing_of_a_run_that_is_over(
    machine: Machine, package: AgentPackage
) -> None:
    Whole(machine, package, a_plan("good.py")).go()
    kept = {path.name for path in machine.spool.iterdir()} - {
        "bin",
        "agent.pyz",
        "lock",
        "children",
        "trials",
    }
    assert kept == {"20261121T100000Z-test-vm.jsonl"}
    assert not list((machine.spool / "trials").iterdir())


def test_a_plan_may_name_a_missing_program(machine: Machine, package: AgentPackage) -> None:
    whole = Whole(machine, package, a_plan("good.py"))
    (machine.spool / "bin").mkdir(parents=True)
    missing = Path("no_such_program.py")
    whole.plan = replace(whole.plan, trials=a_plan(missing.name).trials)
    assert whole.go() == RunSummary(0, 1)
    assert {record.outcome for record in whole.records()} == {"failed"}
    assert machine.left() == []
