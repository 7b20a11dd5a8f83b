"""A campaign: its trials, attempts and records, also if it is interrupted."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent import settings
from pagecage.agent.phases import PHASES
from pagecage.agent.session import run_trial
from pagecage.agent.trial_run import TrialRun
from pagecage.cli import execution
from pagecage.cli.progress import RunProgress
from pagecage.errors import HostError, PagecageError
from pagecage.linux import child_processes
from pagecage.linux.block_device import Disk
from pagecage.linux.child_processes import Interrupted, Interruption
from pagecage.model.cage import Cage
from pagecage.model.record import Record, read_records
from pagecage.model.trial import Dataset, TrialData
from pagecage.process import Process, spawn
from pagecage.runner.campaign import RunSummary
from pagecage.runner.resource_needs import check_memory_floor, resource_needs
from tests.builders.campaigns import KIT, THREE, Run
from tests.builders.known import known
from tests.builders.plans import CHOICES, plan_of
from tests.builders.trial_runs import carry_out, collector_states
from tests.fake_host.machine import LIGHT, Machine, frames_of, make_session, make_trial
from tests.record_schema import breaches_under

ONE_BLOCK = replace(CHOICES, repeats=1)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Run]:
    yield Run(tmp_path)
    assert not breaches_under(tmp_path)


def test_every_trial_in_order_by_one_agent(three: Run) -> None:
    host = three.host()
    assert three.go(host) == RunSummary(3, 0)
    assert [record.trial_id for record in three.records()] == three.ids
    assert three.agent_calls() == [three.ids]
    assert host.calls == ["prepare", "start", "push 1", "push 0", "stop"]


def test_a_record_is_completed_by_what_only_the_controller_knows(three: Run) -> None:
    three.go()
    record = three.records()[0]
    assert record.traces == {"sampler": f"trials/{record.trial_id}.1/sampler.jsonl"}
    assert (three.folder.path / record.traces["sampler"]).read_bytes() == b'{"t": 1.0}\n' * 3
    assert known(record.outer_host).present == {"before", "after"}
    assert (record.plan_sha256, record.run_id) == (three.plan.sha256, three.plan.run_id)
    [facts] = (three.folder.path / "facts").iterdir()
    assert json.loads(facts.read_text())["boot_id"] == "00000000-0000-4000-8000-00000000000b"


def test_the_listener_hears_of_every_record(three: Run) -> None:
    three.go()
    events = [event for event in three.heard if event["event"] == "record"]
    assert [event["record"].trial_id for event in events] == three.ids


@pytest.mark.parametrize(
    ("fresh", "groups", "restarts"), [("never", 1, 0), ("block", 2, 1), ("trial", 6, 5)]
)
def test_how_often_the_host_starts_afresh(
    tmp_path: Path, fresh: str, groups: int, restarts: int
) -> None:
    six = Run(tmp_path, fresh, repeats=2)
    host = six.host()
    assert six.go(host) == RunSummary(6, 0)
    assert len(six.agent_calls()) == groups
    assert host.calls.count("restart") == restarts
    assert [trial for call in six.agent_calls() for trial in call] == six.ids


def test_only_what_lacks_an_answer_is_run(three: Run) -> None:
    three.go()
    kept = [record for record in three.records() if record.trial_id != three.ids[1]]
    three.folder.records_path.unlink()
    for record in kept:
        three.folder.append(record)
    assert three.go() == RunSummary(3, 0)
    assert three.agent_calls()[-1] == [three.ids[1]]


def test_a_finished_plan_starts_nothing(three: Run) -> None:
    three.go()
    host = three.host()
    assert three.go(host) == RunSummary(3, 0)
    assert "start" not in host.calls


@pytest.mark.parametrize("way", ["dies", "dies in a trace", "dies in a header"])
def test_a_host_that_dies_mid_trial_is_started_again(three: Run, way: str) -> None:
    three.set_script({three.ids[1]: [way]})
    host = three.host()
    assert three.go(host) == RunSummary(3, 0)
    reported = [(record.trial_id, record.attempt, record.outcome) for record in three.records()]
    first, second, third = three.ids
    of_second = [(second, 1, "interrupted"), (second, 2, "ok")]
    assert reported == [(first, 1, "ok"), *of_second, (third, 1, "ok")]
    assert host.calls.count("restart") == 1
    died = three.records()[1]
    assert died.phase == "run"
    assert "what I said last" in (died.error or "")


def test_a_trial_is_tried_three_times_and_the_others_still_run(three: Run) -> None:
    three.set_script({three.ids[0]: ["dies"] * 9})
    assert three.go() == RunSummary(2, 1)
    attempts = [record.attempt for record in three.records() if record.trial_id == three.ids[0]]
    assert attempts == [1, 2, 3]
    assert {record.trial_id for record in three.records() if record.is_final} == set(three.ids[1:])


def test_a_failed_trial_is_tried_again_with_the_next_number(three: Run) -> None:
    three.set_script({three.ids[2]: ["failed", "not_prepared"]})
    assert three.go() == RunSummary(3, 0)
    tries = [(r.attempt, r.outcome) for r in three.records() if r.trial_id == three.ids[2]]
    assert tries == [(1, "failed"), (2, "not_prepared"), (3, "ok")]


def test_a_superseded_trial_is_measured_once_more_and_its_records_stay(three: Run) -> None:
    three.go()
    three.folder.supersede([three.ids[1]])
    assert three.go() == RunSummary(3, 0)
    assert three.agent_calls()[-1] == [three.ids[1]]
    assert [r.attempt for r in three.records() if r.trial_id == three.ids[1]] == [1, 2]
    assert three.go() == RunSummary(3, 0)
    assert len(three.records()) == 4


@pytest.mark.parametrize(
    "outcome", ["oom_killed", "timed_out", "wrong_answer", "requirement_missed"]
)
def test_an_answer_is_not_asked_for_twice(three: Run, outcome: str) -> None:
    three.set_script({three.ids[0]: [outcome]})
    assert three.go() == RunSummary(3, 0)
    assert len(three.records()) == 3


def test_traces_of_a_trial_that_died_do_not_mix_with_the_next_attempts(three: Run) -> None:
    three.set_script({three.ids[0]: ["dies in a trace"]})
    three.go()
    folders = sorted(path.name for path in (three.folder.path / "trials").iterdir())
    assert f"{three.ids[0]}.2" in folders
    assert f"{three.ids[0]}.1" not in folders
    assert three.records()[0].traces == {}


def test_a_half_pair_around_the_guest_is_none(three: Run) -> None:
    three.set_script({three.ids[0]: ["dies in a header"]})
    three.go(three.host(outer_fails=True))
    assert all(record.outer_host is None for record in three.records())


@pytest.mark.parametrize("deaths", [(1,), (1, 2), (2, 3)])
def test_a_host_that_does_not_come_up_gets_another_start(
    three: Run, deaths: tuple[int, ...]
) -> None:
    three.set_script({three.ids[0]: ["dies"]})
    assert three.go(three.host(deaths=deaths)) == RunSummary(3, 0)


def test_a_host_that_never_comes_up_is_given_up(three: Run) -> None:
    host = three.host(deaths=tuple(range(1, 1000)))
    with pytest.raises(HostError, match="3 times"):
        three.go(host)
    assert host.starts == 3
    assert host.calls[-1] == "stop"


@pytest.mark.parametrize("start", ["dies", "sleeps"])
def test_an_agent_that_never_begins_is_given_up(three: Run, start: str) -> None:
    three.set_script({"start": start})
    with pytest.raises(HostError):
        three.go()
    assert len(three.agent_calls()) == 3


def test_what_the_agent_says_of_its_host_is_what_the_user_reads(three: Run) -> None:
    three.set_script({"start": "refuses"})
    host = three.host()
    with pytest.raises(HostError) as caught:
        three.go(host)
    assert caught.value.message == "another run is using this host (process 7)"
    assert caught.value.hint == "wait for it"
    assert host.calls[-1] == "stop"


def test_a_host_that_greets_is_told_to_be_silent(three: Run) -> None:
    three.set_script({three.ids[0]: ["talks nonsense"]})
    with pytest.raises(HostError, match="Welcome to this machine!"):
        three.go()


def test_ctrl_c_leaves_a_run_that_can_be_resumed(three: Run) -> None:
    """The agent notices the end of its input, and its remaining output is kept."""
    three.set_script({three.ids[1]: ["waits"]})

    def listen(event: Mapping[str, Any]) -> None:
        three.heard.append(event)
        if event["event"] == "go" and event["trial_id"] == three.ids[1]:
            raise KeyboardInterrupt

    three.listener = listen
    host = three.host()
    with pytest.raises(KeyboardInterrupt):
        three.go(host)
    assert host.calls[-1] == "stop"
    reported = [(record.trial_id, record.outcome) for record in three.records()]
    assert reported == [(three.ids[0], "ok"), (three.ids[1], "interrupted")]
    three.listener = three.heard.append
    assert three.go() == RunSummary(3, 0)
    assert three.agent_calls()[-1] == three.ids[1:]
    assert three.records()[-2].attempt == 2


def test_ctrl_c_before_the_first_trial(three: Run) -> None:
    def listen(event: Mapping[str, Any]) -> None:
        if event["event"] == "trial":
            raise KeyboardInterrupt

    three.listener = listen
    with pytest.raises(KeyboardInterrupt):
        three.go()


def test_a_changed_plan_is_not_resumed(three: Run) -> None:
    path = three.folder.path / "plan.json"
    path.write_text(path.read_text().replace('"repeat": 1', '"repeat": 2'))
    with pytest.raises(PagecageError, match="was changed after it was written"):
        three.folder.plan()


def test_a_run_whose_last_line_was_cut_off_goes_on(three: Run) -> None:
    three.go()
    whole = three.folder.records_path.read_bytes()
    three.folder.records_path.write_bytes(whole[:-40])
    assert three.go() == RunSummary(3, 0)
    assert three.agent_calls()[-1] == [three.ids[2]]
    assert [record.trial_id for record in three.records()] == three.ids


def test_what_a_plan_needs_of_a_host() -> None:
    plan = plan_of(THREE, ONE_BLOCK)
    need = resource_needs(plan)
    assert need.memory_bytes == 2 * 2**30
    assert need.data_bytes == 2**20 + 512 * 2**20
    big = replace(plan, trials=tuple(replace(t, dataset=Dataset(10 * 2**30)) for t in plan.trials))
    assert resource_needs(big).memory_bytes == 11.5 * 2**30


def test_a_cage_below_what_its_workload_needs_is_refused() -> None:
    check_memory_floor(plan_of(THREE, ONE_BLOCK))
    workload = replace(THREE.workload, min_memory_bytes=2**20)
    needy = plan_of(replace(THREE, workload=workload, factors={"cage": ("tight",)}), ONE_BLOCK)
    with pytest.raises(PagecageError, match=r"cgroups/tight\.toml: MemoryMax is 4096 bytes"):
        check_memory_floor(needy)


def test_the_command_line_tells_how_an_interrupted_run_goes_on(
    three: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    three.set_script({three.ids[0]: ["waits"]})
    monkeypatch.setattr(execution, "make_agent_package", lambda _: KIT)
    monkeypatch.setattr(RunProgress, "__call__", interrupt_at_go)
    printed: list[str] = []
    job = execution.PreparedRun(three.plan, three.folder, three.host())
    with pytest.raises(PagecageError) as caught:
        execution.execute(job, printed.append)
    assert caught.value.exit_code == 130
    assert caught.value.hint == "pagecage run test --resume"
    assert "3 of 3 trials to run" in printed[0]


def interrupt_at_go(_: RunProgress, event: Mapping[str, Any]) -> None:
    if event["event"] == "go":
        raise KeyboardInterrupt


def test_a_run_with_trials_unanswered_ends_with_its_own_status(
    three: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    three.set_script({three.ids[0]: ["failed"] * 9})
    monkeypatch.setattr(execution, "make_agent_package", lambda _: KIT)
    printed: list[str] = []
    job = execution.PreparedRun(three.plan, three.folder, three.host())
    assert execution.execute(job, printed.append) == 4
    assert printed[-1] == "1 trials have no result\n  fix: pagecage run test --resume"
    three.set_script({})
    assert execution.execute(job, printed.append) == 0
    assert execution.execute(job, printed.append) == 0
    assert printed[-1].startswith("0 of 3 trials to run")


NAMES = list(PHASES)
NO_LIMITS = Cage("uncaged", {})


@pytest.fixture
def interruption() -> Iterator[Interruption]:
    """Handle the agent's signals in this process during a test."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    made = Interruption()
    made.listen()
    yield made
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def only_record(machine: Machine) -> Record:
    [record] = read_records(machine.records)
    return record


def run_interrupted(machine: Machine, interruption: Interruption, **changes: Any) -> Record:
    """Run a trial that is interrupted; return its only record."""
    trial = make_trial(**changes)
    session = make_session(machine, io.BytesIO(), trial, interruption=interruption)
    with pytest.raises(Interrupted):
        run_trial(session, trial, 1)
    return only_record(machine)


@pytest.mark.parametrize("asking", ["TERM", "INT", "HUP"])
def test_every_terminating_signal_is_handled(
    machine: Machine, interruption: Interruption, asking: str
) -> None:
    machine.misbehave(SIGNAL=asking, SIGNALS="start")
    assert run_interrupted(machine, interruption).outcome == "interrupted"
    assert machine.left() == []


@pytest.mark.parametrize(
    ("event", "phase"),
    [
        ("fio", "calibrate"),
        ("set-property", "calibrate"),
        ("iostat", "collectors"),
        ("vmtouch", "collectors"),
        ("scope", "calibrate"),
        ("go", "run"),
        ("sadf", "stop"),
    ],
)
def test_a_signal_while_a_command_runs(
    machine: Machine, interruption: Interruption, event: str, phase: str
) -> None:
    machine.misbehave(SIGNALS=event)
    record = run_interrupted(machine, interruption)
    result = (record.outcome, record.phase, record.error)
    assert result == ("interrupted", phase, "ended from outside")
    assert machine.left() == []
    assert machine.read_ahead_kb() == "256"


MADE = {"data": TrialData(("sh", "-c", "exec sleep 60", "{data}")), "dataset": None}


@pytest.mark.parametrize(("phase", "changes"), [("collectors", {}), ("data", MADE)])
def test_a_signal_between_the_start_of_a_tool_and_the_note_of_its_process(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    interruption: Interruption,
    phase: str,
    changes: dict[str, Any],
) -> None:
    """No tool is left, because the signal waits."""
    started = []

    def start_and_signal(*given: Any, **named: Any) -> Process[bytes]:
        started.append(spawn(*given, **named))
        signal.raise_signal(signal.SIGTERM)
        return started[-1]

    monkeypatch.setattr(child_processes, "spawn", start_and_signal)
    record = run_interrupted(machine, interruption, **changes)
    assert (record.outcome, record.phase) == ("interrupted", phase)
    assert [process.poll() is None for process in started] == [False] * len(started)
    assert machine.left() == []


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("name", NAMES)
def test_an_interruption_around_every_phase(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    interruption: Interruption,
    name: str,
    moment: str,
) -> None:
    cut_short(monkeypatch, name, moment, Interrupted())
    record = run_interrupted(machine, interruption, cage=LIGHT)
    assert (record.outcome, record.phase) == ("interrupted", name)
    assert machine.left() == []


ERRORS = (OSError(28, "No space left on device"), HostError("no"), KeyError("defect"))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        *((name, ERRORS[n % len(ERRORS)]) for n, name in enumerate(NAMES)),
        *(("run", error) for error in ERRORS),
    ],
)
def test_an_error_after_every_phase(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception
) -> None:
    cut_short(monkeypatch, name, "after", error)
    record = carry_out(machine, make_trial(cage=LIGHT))
    assert (record.outcome, record.phase) == ("failed", name)
    assert record.error
    assert machine.left() == []


def cut_short(
    monkeypatch: pytest.MonkeyPatch, name: str, moment: str, error: BaseException
) -> None:
    """Make one phase raise before it begins or after it ends."""

    real = TrialRun.announced

    @contextmanager
    def announced(run: TrialRun, phase: str) -> Iterator[None]:
        with real(run, phase):
            if phase == name and moment == "before":
                raise error
            yield
            if phase == name:
                raise error

    monkeypatch.setattr(TrialRun, "announced", announced)


def test_a_signal_during_the_cleanup_loses_nothing(
    machine: Machine, interruption: Interruption
) -> None:
    """The trial has ended when its slice is stopped, so it keeps its answer.

    Then the agent ends.
    """
    machine.misbehave(SIGNALS="stop")
    out, trial = io.BytesIO(), make_trial(cage=NO_LIMITS)
    with pytest.raises(Interrupted):
        run_trial(make_session(machine, out, trial, interruption=interruption), trial, 1)
    assert only_record(machine).outcome == "ok"
    assert machine.left() == []
    assert frames_of(out.getvalue())[-1]["frame"] == "record"


@pytest.mark.parametrize(
    ("events", "changes"),
    [
        pytest.param("stop", {}, id="while a calibration is cleaned up"),
        pytest.param("go stop sadf", {"cage": NO_LIMITS}, id="a second signal changes nothing"),
    ],
)
def test_a_signal_during_another_cleanup(
    machine: Machine, interruption: Interruption, events: str, changes: dict[str, Any]
) -> None:
    machine.misbehave(SIGNALS=events)
    assert run_interrupted(machine, interruption, **changes).outcome == "interrupted"
    assert machine.left() == []


@pytest.mark.parametrize("verb", ["set-property", "start"])
def test_a_refusal_of_systemd_is_reported(machine: Machine, verb: str) -> None:
    machine.misbehave(FAILS=verb)
    record = carry_out(machine, make_trial(cage=NO_LIMITS))
    assert (record.outcome, record.phase) == ("failed", "slice")
    assert "asked to" in (record.error or "")
    assert machine.left() == []


def test_a_cleanup_that_fails_still_leaves_a_record_and_does_the_rest(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(machine, io.BytesIO())

    def refuse(_: object) -> None:
        raise HostError("the setting is stuck")

    monkeypatch.setattr(type(session.settings), "restore", refuse)
    record = carry_out(machine, make_trial(), session)
    assert record.outcome == "ok"
    assert "the setting is stuck" in (record.error or "")
    assert not list(machine.cgroups.glob("**/pagecage-*"))


def test_a_queue_setting_that_cannot_be_restored_is_reported(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(machine, io.BytesIO())

    def refuse_the_old(disk: Disk, setting: str, value: str) -> None:
        if value == "256":
            raise HostError("the disk is gone")
        machine.write_queue_setting(disk, setting, value)

    monkeypatch.setattr(settings, "write_queue_setting", refuse_the_old)
    record = carry_out(machine, make_trial(cage=LIGHT), session)
    assert record.outcome == "ok"
    assert "read_ahead_kb could not be put back to 256: the disk is gone" in (record.error or "")


def test_a_collector_that_cannot_be_stopped_does_not_keep_the_others(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise HostError("sar would not stop")

    monkeypatch.setattr("pagecage.agent.collectors.sar.Sar._completed", refuse)
    record = carry_out(machine, make_trial())
    others = dict.fromkeys(("sampler", "iostat", "vmtouch"), "ok")
    assert collector_states(record) == {**others, "sar": "failed"}
    assert "sar would not stop" in record.collectors["sar"]["reason"]
    assert machine.left() == []
