"""SIGKILL at every command that the agent waits for. The next start removes all leftovers."""

from __future__ import annotations

import io
import json
import time

import pytest

from pagecage.agent.protocol import request_to_json
from pagecage.agent.session import run_trial
from pagecage.hosts.agent_package import AgentPackage
from pagecage.model.record import read_records
from pagecage.process import PIPE, spawn
from tests.builders.trial_runs import package
from tests.fake_host.hosts import on_fakes
from tests.fake_host.machine import (
    LIGHT,
    Machine,
    frames_of,
    make_request,
    make_session,
    make_trial,
)

__all__ = ["package"]
EVENTS = [
    "set-property",
    "start",
    "fio",
    "iostat",
    "sar",
    "vmtouch",
    "scope-before",
    "scope",
    "sadf",
    "stop",
]


def serve(package: AgentPackage, machine: Machine) -> tuple[int, bytes]:
    """Run one agent; return its exit status and its frames."""
    agent = spawn(
        on_fakes(package.agent, machine).agent_command(), stdin=PIPE, stdout=PIPE, new_session=True
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.write(
        json.dumps(request_to_json(make_request(machine, make_trial(cage=LIGHT)))).encode() + b"\n"
    )
    status = agent.wait(60)
    agent.stdin.close()
    streamed = b"" if status < 0 else agent.stdout.read()
    agent.stdout.close()
    return status, streamed


@pytest.mark.parametrize("event", EVENTS)
def test_the_next_start_removes_leftovers_of_a_killed_agent(
    machine: Machine, package: AgentPackage, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    monkeypatch.setenv("FAKE_SIGNALS", event)
    monkeypatch.setenv("FAKE_SIGNAL", "KILL")
    assert serve(package, machine)[0] == -9
    assert machine.left() != []
    time.sleep(0.4)  # systemd completes its last job
    monkeypatch.delenv("FAKE_SIGNALS")
    status, streamed = serve(package, machine)
    assert status == 0
    assert machine.left() == []
    assert machine.read_ahead_kb() == "256"
    frames = frames_of(streamed)
    assert frames[-1]["record"]["outcome"] == "ok"
    assert list(read_records(machine.records))[-1].outcome == "ok"


def test_queue_settings_are_restored_after_a_killed_agent(
    machine: Machine, package: AgentPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restored values are those from before the first agent, which was killed."""
    monkeypatch.setenv("FAKE_SIGNALS", "scope")
    monkeypatch.setenv("FAKE_SIGNAL", "KILL")
    serve(package, machine)
    monkeypatch.delenv("FAKE_SIGNALS")
    assert machine.read_ahead_kb() == "128"
    serve(package, machine)
    trial = make_trial(cage=LIGHT, read_ahead_kb=None)
    run_trial(make_session(machine, io.BytesIO(), trial), trial, 1)
    last = list(read_records(machine.records))[-1]
    assert (last.device.queue_settings or {})["read_ahead_kb"] == "256"
