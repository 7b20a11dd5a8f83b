"""Termination at every point of a trial: nothing is left behind, and a record names the phase."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pagecage.agent import settings
from pagecage.agent.phases import PHASES
from pagecage.agent.session import run_trial
from pagecage.agent.trial_run import TrialRun
from pagecage.errors import HostError
from pagecage.linux import child_processes
from pagecage.linux.block_device import Disk
from pagecage.linux.child_processes import Interrupted, Interruption
from pagecage.model.cage import Cage
from pagecage.model.record import Record, read_records
from pagecage.model.trial import TrialData
from pagecage.process import Process, spawn
from tests.fake_host.machine import LIGHT, Machine, frames_of, make_session, make_trial

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
    with pytest.raises(Interrupted):
        run_trial(make_session(machine, io.BytesIO(), trial, interruption=interruption), trial, 1)
    return only_record(machine)


@pytest.mark.parametrize("asking", ["TERM", "INT", "HUP"])
def test_every_terminating_signal_is_handled(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, interruption: Interruption, asking: str
) -> None:
    monkeypatch.setenv("FAKE_SIGNAL", asking)
    monkeypatch.setenv("FAKE_SIGNALS", "start")
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
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    interruption: Interruption,
    event: str,
    phase: str,
) -> None:
    monkeypatch.setenv("FAKE_SIGNALS", event)
    record = run_interrupted(machine, interruption)
    assert (record.outcome, record.phase, record.error) == (
        "interrupted",
        phase,
        "ended from outside",
    )
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
    trial = make_trial(cage=LIGHT)
    cut_short(monkeypatch, name, "after", error)
    run_trial(make_session(machine, io.BytesIO(), trial), trial, 1)
    record = only_record(machine)
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
    machine: Machine, monkeypatch: pytest.MonkeyPatch, interruption: Interruption
) -> None:
    """The trial has ended when its slice is stopped, so it keeps its answer.

    Then the agent ends.
    """
    monkeypatch.setenv("FAKE_SIGNALS", "stop")
    out, trial = io.BytesIO(), make_trial(cage=NO_LIMITS)
    with pytest.raises(Interrupted):
        run_trial(make_session(machine, out, trial, interruption=interruption), trial, 1)
    assert only_record(machine).outcome == "ok"
    assert machine.left() == []
    assert frames_of(out.getvalue())[-1]["frame"] == "record"


def test_a_signal_while_a_calibration_is_cleaned_up(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, interruption: Interruption
) -> None:
    monkeypatch.setenv("FAKE_SIGNALS", "stop")
    assert run_interrupted(machine, interruption).outcome == "interrupted"
    assert machine.left() == []


def test_a_second_signal_changes_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, interruption: Interruption
) -> None:
    monkeypatch.setenv("FAKE_SIGNALS", "go stop sadf")
    assert run_interrupted(machine, interruption, cage=NO_LIMITS).outcome == "interrupted"
    assert machine.left() == []


@pytest.mark.parametrize("verb", ["set-property", "start"])
def test_a_refusal_of_systemd_is_reported(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setenv("FAKE_FAILS", verb)
    trial = make_trial(cage=NO_LIMITS)
    run_trial(make_session(machine, io.BytesIO(), trial), trial, 1)
    record = only_record(machine)
    assert (record.outcome, record.phase) == ("failed", "slice")
    assert "asked to" in (record.error or "")
    assert machine.left() == []


def test_a_cleanup_that_fails_still_leaves_a_record_and_does_the_rest(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, session = make_trial(), make_session(machine, io.BytesIO())

    def refuse() -> None:
        raise HostError("the setting is stuck")

    monkeypatch.setattr(type(session.settings), "restore", lambda _: refuse())
    run_trial(session, trial, 1)
    record = only_record(machine)
    assert record.outcome == "ok"
    assert "the setting is stuck" in (record.error or "")
    assert not list(machine.cgroups.glob("**/pagecage-*"))


def test_a_queue_setting_that_cannot_be_restored_is_reported(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, session = make_trial(cage=LIGHT), make_session(machine, io.BytesIO())
    real = settings.write_queue_setting

    def refuse_the_old(disk: Disk, setting: str, value: str) -> None:
        if value == "256":
            raise HostError("the disk is gone")
        real(disk, setting, value)

    monkeypatch.setattr(settings, "write_queue_setting", refuse_the_old)
    run_trial(session, trial, 1)
    record = only_record(machine)
    assert record.outcome == "ok"
    assert "read_ahead_kb could not be put back to 256: the disk is gone" in (record.error or "")


def test_a_collector_that_cannot_be_stopped_does_not_keep_the_others(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise HostError("sar would not stop")

    monkeypatch.setattr("pagecage.agent.collectors.sar.Sar._completed", refuse)
    trial = make_trial()
    run_trial(make_session(machine, io.BytesIO(), trial), trial, 1)
    collectors = only_record(machine).collectors
    assert {name: found["status"] for name, found in collectors.items()} == {
        "sampler": "ok",
        "iostat": "ok",
        "sar": "failed",
        "vmtouch": "ok",
    }
    assert "sar would not stop" in collectors["sar"]["reason"]
    assert machine.left() == []
