"""The agent in standby on the fake machine: a client that passes its streams gets normal output."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pagecage.agent.session import SOCKET_NAME
from pagecage.hosts.agent_package import agent_bytes, agent_path
from pagecage.hosts.vm.saved_state import attach_argv
from pagecage.process import PIPE, Process, spawn
from tests.builders.known import known
from tests.builders.programs import install_first
from tests.builders.waiting import wait_until
from tests.fake_host.hosts import request_line
from tests.fake_host.machine import HERE, Machine, frames_of, make_request, make_trial

BPFTRACE = """#!/bin/sh
[ "$1" = --version ] && { echo "bpftrace v0"; exit; }
cd "$(dirname "$0")"
echo attached >>attachments
trap 'echo detached >>attachments; exit' INT
while :; do
  now=$(python3 -c 'import time; print(time.clock_gettime_ns(7))')
  printf '{"type": "printf", "data": "TICK %s\\\\n"}\\n' "$now"
  sleep 0.1
done
"""


@pytest.fixture
def spool(machine: Machine) -> Path:
    """Make a spool with the agent in it, as after the start of a host."""
    machine.spool.mkdir(parents=True, exist_ok=True)
    Path(agent_path(str(machine.spool))).write_bytes(agent_bytes())
    return machine.spool


def stand_by(machine: Machine, spool: Path, *tracers: str) -> Process[bytes]:
    """Start an agent in standby and wait for its socket."""
    words = (HERE / "agent_on_fakes.py", agent_path(str(spool)), machine.root, "standby", spool)
    argv = [sys.executable, "-S", *map(str, words), str(machine.data), *tracers]
    agent = spawn(argv, stderr=PIPE)
    wait_until(lambda: (spool / SOCKET_NAME).exists() or agent.poll() is not None, 60)
    assert agent.poll() is None
    return agent


def attach(machine: Machine, spool: Path, request: bytes) -> tuple[int, bytes, str]:
    """Run one client; return its status, output and errors."""
    argv = [sys.executable, *attach_argv(str(spool))[1:]]
    client = spawn(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=machine.environment())
    stdin, stdout = known(client.stdin), known(client.stdout)
    stdin.write(request)
    output = stdout.read()
    _, stderr = client.communicate(timeout=60)
    return client.returncode, output, stderr.decode()


def ended(agent: Process[bytes]) -> int:
    _, stderr = agent.communicate(timeout=60)
    assert "Traceback" not in stderr.decode()
    return agent.returncode


def test_the_client_gets_the_frames_and_the_status_of_the_agent(
    machine: Machine, spool: Path
) -> None:
    agent = stand_by(machine, spool)
    request = request_line(make_request(machine, make_trial()))
    status, output, stderr = attach(machine, spool, request)
    frames = frames_of(output)
    assert (status, stderr) == (0, "")
    assert [f["record"]["outcome"] for f in frames if f["frame"] == "record"] == ["ok"]
    assert ended(agent) == 0
    assert not (spool / SOCKET_NAME).exists()
    assert machine.left() == []


@pytest.fixture
def attachments(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a bpftrace that ticks; return the file to which each start adds a line."""
    folder = machine.root / "tracer"
    install_first(folder / "bpftrace", BPFTRACE, monkeypatch)
    return folder / "attachments"


def test_a_tracer_attached_in_standby_is_the_one_that_traces(
    machine: Machine, spool: Path, attachments: Path
) -> None:
    agent = stand_by(machine, spool, "bpftrace")
    trial = make_trial(collectors=("bpftrace",))
    status, output, _ = attach(machine, spool, request_line(make_request(machine, trial)))
    [record] = [f["record"] for f in frames_of(output) if f["frame"] == "record"]
    assert (status, record["collectors"]["bpftrace"]["status"]) == (0, "ok")
    attached = attachments.read_text().split()
    assert attached == ["attached", "detached"], "none was attached a second time"
    assert attachments.stat().st_mtime > record["measured"]["start_wall_seconds"]
    assert not [f for f in frames_of(output) if f.get("text") == "attaching bpftrace"]
    assert ended(agent) == 0
    assert machine.left() == []


def test_a_tracer_that_no_trial_wants_is_detached_before_the_first(
    machine: Machine, spool: Path, attachments: Path
) -> None:
    agent = stand_by(machine, spool, "bpftrace")
    request = request_line(make_request(machine, make_trial()))
    status, output, _ = attach(machine, spool, request)
    frames = frames_of(output)
    [record] = [f["record"] for f in frames if f["frame"] == "record"]
    assert (status, record["outcome"]) == (0, "ok")
    assert "bpftrace" not in record["collectors"]
    assert attachments.read_text().split() == ["attached", "detached"]
    assert attachments.stat().st_mtime < record["measured"]["start_wall_seconds"]
    assert ended(agent) == 0
    assert machine.left() == []


def test_a_client_without_a_waiting_agent_starts_one(machine: Machine, spool: Path) -> None:
    """Such a client is the second in a machine state, or the agent in standby was killed."""
    status, output, stderr = attach(machine, spool, b"\n")
    assert status not in (0, 127)
    assert output == b""
    assert "agent.pyz" in stderr or "JSON" in stderr


def test_a_client_of_an_agent_that_is_killed_ends_with_a_failure(
    machine: Machine, spool: Path
) -> None:
    agent = stand_by(machine, spool)
    argv = [sys.executable, *attach_argv(str(spool))[1:]]
    client = spawn(argv, stdin=PIPE, env=machine.environment())
    wait_until(lambda: not (spool / SOCKET_NAME).exists(), 60)
    agent.kill()
    agent.communicate()
    assert client.wait(30) == 1
    known(client.stdin).close()
