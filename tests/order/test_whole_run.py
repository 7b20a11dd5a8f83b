"""Whole runs: from the plan to the record, detached, and until an interval is narrow."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagecage.errors import HostError, PagecageError
from pagecage.hosts.agent_package import AgentPackage
from pagecage.model.plan import Plan
from pagecage.model.record import Record, read_records
from pagecage.model.trial import Dataset, Trial
from pagecage.planning.options import RunOptions
from pagecage.planning.plan import make_plan
from pagecage.planning.run_plan import choose_repeats, until_ci
from pagecage.process import PIPE, Process, spawn
from pagecage.runner.campaign import Campaign, RunSummary
from pagecage.runner.run_folder import RunFolder
from pagecage.verdicts.repeats import half_width
from pagecage.verdicts.stopping import enough_blocks, too_wide
from tests.builders.campaigns import THREE, Run
from tests.builders.plans import BASE, CHOICES, HARNESS, plan_of
from tests.builders.waiting import wait_until
from tests.fake_host.hosts import StartedAgent, TestHost, on_fakes, request_line
from tests.fake_host.machine import (
    CAGE,
    DATASET,
    HERE,
    WORKLOADS,
    Machine,
    frames_of,
    make_request,
    make_trial,
)

ONCE = replace(CHOICES, repeats=1)


def a_plan(*programs: str, collectors: tuple[str, ...] = ("iostat", "sar", "vmtouch")) -> Plan:
    """Return one trial per program, in this order, in the tight cage."""
    run_id, command = "20261121T100000Z-test-vm", "pagecage run test"
    plan = make_plan(run_id, BASE, {"uncaged": CAGE}, ONCE, command, HARNESS)
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
    # the cleanup killed the first, whose agent was gone
    assert machine.log_lines().count("iostat ends") == 2


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
    request = make_request(machine, make_trial(program), make_trial(trial_id="r1_next"))
    agent = StartedAgent(package, machine, request_line(request))
    output = b""
    while b'"event":"go"' not in output:
        output += agent.stdout.readline()
    agent.stdin.close()
    agent.stdout.close()
    stderr = agent.stderr.read().decode()
    assert agent.end(30) != 0
    assert "Traceback" not in stderr
    assert machine.left() == []
    [record] = read_records(machine.records)
    assert record.outcome == "interrupted"


@pytest.mark.parametrize("line", [b"", b"\n", b"{}\n", b"[]\n", b'{"run_id": "cut'])
def test_an_incomplete_request_starts_nothing(
    machine: Machine, package: AgentPackage, line: bytes
) -> None:
    agent = StartedAgent(package, machine, line)
    agent.stdin.close()
    assert agent.stdout.read() == b""
    assert agent.end(30) != 0
    assert machine.log_lines() == []


def test_an_agent_that_cannot_work_reports_the_reason(
    machine: Machine, package: AgentPackage
) -> None:
    request = make_request(machine, make_trial())
    request = replace(request, spool_dir=str(machine.root / "log/spool"))
    agent = StartedAgent(package, machine, request_line(request))
    frames = frames_of(agent.stdout.read())
    stderr = agent.stderr.read().decode()
    assert agent.end(30) != 0
    assert "Traceback" not in stderr
    assert frames[-1]["event"] == "error"


def test_a_full_disk_leaves_a_record_that_says_so(machine: Machine, package: AgentPackage) -> None:
    """The dataset is too large: nothing is written or measured, and the next trial runs."""
    plan = a_plan("good.py", "good.py")
    huge = replace(plan.trials[0], dataset=Dataset(2**60))
    trials = (huge, replace(plan.trials[1], trial_id="r1_second"))
    whole = Whole(machine, package, replace(plan, trials=trials))
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
    kept = {path.name for path in machine.spool.iterdir()}
    usual = {"bin", "agent.pyz", "lock", "children", "trials"}
    assert kept - usual == {"20261121T100000Z-test-vm.jsonl"}
    assert not list((machine.spool / "trials").iterdir())


def test_a_plan_may_name_a_missing_program(machine: Machine, package: AgentPackage) -> None:
    whole = Whole(machine, package, a_plan("good.py"))
    (machine.spool / "bin").mkdir(parents=True)
    missing = Path("no_such_program.py")
    whole.plan = replace(whole.plan, trials=a_plan(missing.name).trials)
    assert whole.go() == RunSummary(0, 1)
    assert {record.outcome for record in whole.records()} == {"failed"}
    assert machine.left() == []


@pytest.fixture
def agent(package: AgentPackage) -> Path:
    return package.agent


def serve(machine: Machine, agent: Path, *trials: Trial) -> tuple[Process[bytes], Path]:
    """Start the agent; return it and the file of its frames."""
    request, stream = machine.root / "request.json", machine.root / "stream"
    request.write_bytes(request_line(make_request(machine, *trials)))
    words = (HERE / "agent_on_fakes.py", agent, machine.root, "serve", request, stream)
    argv = [sys.executable, "-S", *map(str, words)]
    return spawn(argv, stderr=PIPE, new_session=True), stream


def ended(process: Process[bytes]) -> int:
    _, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stderr.decode()
    return process.returncode


def test_it_finishes_without_a_controller(machine: Machine, agent: Path) -> None:
    other = make_trial("out_of_memory.py", trial_id="r1_other")
    process, stream = serve(machine, agent, make_trial(), other)
    assert ended(process) == 0
    frames = frames_of(stream.read_bytes())
    outcomes = [f["record"]["outcome"] for f in frames if f["frame"] == "record"]
    assert outcomes == ["ok", "oom_killed"]
    traces = {f["name"] for f in frames if f["frame"] == "trace"}
    assert traces >= {"sampler.jsonl", "vmtouch.jsonl"}
    assert len(list(read_records(machine.records))) == 2
    assert machine.left() == []


def test_the_file_grows_only_between_trials_and_a_signal_ends_it(
    machine: Machine, agent: Path
) -> None:
    other = make_trial("never_ends.py", trial_id="r1_other")
    process, stream = serve(machine, agent, make_trial(), other)
    scope = re.compile("^scope .*never_ends", re.MULTILINE)
    wait_until(lambda: scope.search(machine.log.read_text()), 60)
    grown = [(f["frame"], f.get("event")) for f in frames_of(stream.read_bytes())]
    assert grown[-1] == ("event", "trial"), "the second trial's phases have to wait"
    os.kill(int(machine.agent_pid.read_text()), signal.SIGTERM)
    assert ended(process) == 130
    frames = frames_of(stream.read_bytes())
    records = [f["record"] for f in frames if f["frame"] == "record"]
    results = [(record["outcome"], record["error"]) for record in records]
    assert results == [("ok", None), ("interrupted", "ended from outside")]
    assert any(f.get("event") == "go" for f in frames)
    assert machine.left() == []


def test_an_existing_stream_is_never_overwritten(machine: Machine, agent: Path) -> None:
    (machine.root / "stream").write_bytes(b"kept")
    process, stream = serve(machine, agent, make_trial())
    _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0
    assert b"FileExistsError" in stderr or b"is there" in stderr
    assert stream.read_bytes() == b"kept"


FIVE_PERCENT = replace(CHOICES, repeats=12, until_ci=0.05)
Figure = Callable[[int, str], float]


class Stopping(Run):
    """Up to twelve blocks of three trials, with given figures by block and level."""

    def __init__(self, tmp_path: Path, figure: Figure) -> None:
        super().__init__(tmp_path, repeats=1)
        self.plan = replace(plan_of(THREE, FIVE_PERCENT), run_id="20261121T100001Z-test-vm")
        self.plan = replace(self.plan, document={**self.plan.document, "run_id": self.plan.run_id})
        self.folder = type(self.folder).create(tmp_path / "runs", self.plan)
        trials = self.plan.trials
        seconds = {t.trial_id: figure(t.block, t.treatment["level"]) for t in trials}
        figures = {trial_id: {"read_seconds": one} for trial_id, one in seconds.items()}
        self.set_script({"figures": figures})

    def blocks(self) -> list[int]:
        return sorted({record.block for record in self.records()})


def steady(block: int, level: str) -> float:
    return 10 + 0.01 * block


def spreading(block: int, level: str) -> float:
    return 14.0 if (block, level) == (1, "b") else steady(block, level)


def test_narrow_intervals_need_the_six_blocks_that_an_interval_needs(tmp_path: Path) -> None:
    run = Stopping(tmp_path, steady)
    assert run.go() == RunSummary(18, 0)
    assert run.blocks() == [1, 2, 3, 4, 5, 6]
    assert len(run.agent_calls()) == 1


def test_one_treatment_that_spreads_keeps_the_run_going(tmp_path: Path) -> None:
    run = Stopping(tmp_path, spreading)
    assert run.go() == RunSummary(27, 0)
    assert run.blocks() == list(range(1, 10))  # the interval of nine values omits the highest
    assert [len(call) for call in run.agent_calls()] == [18, 3, 3, 3]


def test_the_bound_ends_what_never_becomes_narrow(tmp_path: Path) -> None:
    run = Stopping(tmp_path, lambda block, level: 10.0 + block if level == "c" else 10.0)
    assert run.go() == RunSummary(36, 0)
    last = run.folder.last_records()
    assert enough_blocks(run.plan.document, last, run.folder.judge(last)) is None
    assert list(too_wide(run.plan.document, last, run.folder.judge(last))) == [("c",)]


def test_a_run_that_is_resumed_ends_at_the_same_block(tmp_path: Path) -> None:
    run = Stopping(tmp_path, spreading)
    run.go()
    kept = run.records()
    for count in (0, 7, 18, 20, 26):
        run.folder.records_path.unlink()
        for record in kept[:count]:
            run.folder.append(record)
        assert len(run.folder.remaining(run.plan)) >= 27 - count
        assert run.go() == RunSummary(27, 0)
        assert {record.trial_id for record in run.records()} == {record.trial_id for record in kept}


def test_a_treatment_that_is_killed_each_time_does_not_hold_a_run_up(tmp_path: Path) -> None:
    run = Stopping(tmp_path, steady)
    killed = {t.trial_id: ["oom_killed"] for t in run.plan.trials if t.treatment["level"] == "a"}
    others = [trial.trial_id for trial in run.plan.trials if trial.trial_id not in killed]
    run.set_script({"figures": {key: {"read_seconds": 10.0} for key in others}, **killed})
    assert run.go() == RunSummary(18, 0)


def test_a_plan_without_the_rule_runs_as_it_stands(tmp_path: Path) -> None:
    run = Run(tmp_path, repeats=8)
    assert run.plan.document["until_ci"] is None
    assert run.go() == RunSummary(24, 0)
    assert len(run.agent_calls()) == 1


@pytest.mark.parametrize(
    ("values", "width"),
    [
        ([1.0] * 5, None),
        ([1, 2, 3, 4, 5, 6], 2.5 / 3.5),
        ([10] * 6, 0.0),
        ([0] * 6, 0.0),
        ([0] * 5 + [1, 1], None),
    ],
)
def test_half_widths(values: list[float], width: float | None) -> None:
    assert half_width(values) == (width if width is None else pytest.approx(width))


@pytest.mark.parametrize("text", ["5", "0%", "%", "-5%", "5 %%", "five%", "100%", "0.0%", ""])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PagecageError, match="is not a percentage"):
        until_ci(RunOptions(until_ci=text))


def test_the_bound_is_the_number_of_repeats() -> None:
    assert until_ci(RunOptions(until_ci="2.5%")) == pytest.approx(0.025)
    assert choose_repeats(RunOptions(until_ci="5%"), BASE, "smoke") == 30
    assert choose_repeats(RunOptions(until_ci="5%", max_repeats=9), BASE, "smoke") == 9
    assert choose_repeats(RunOptions(repeats=4), BASE, "smoke") == 4
    for wrong in (RunOptions(max_repeats=9), RunOptions(until_ci="5%", repeats=4)):
        with pytest.raises(PagecageError, match="until-ci"):
            choose_repeats(wrong, BASE, "smoke")
