"""The agent in standby on the fake machine: a client that passes its streams gets normal output."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from pagecage.agent.protocol import request_to_json
from pagecage.agent.session import SOCKET_NAME
from pagecage.hosts.agent_package import agent_bytes, agent_path
from pagecage.hosts.vm.saved_state import attach_argv
from pagecage.process import PIPE, Process, spawn
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
    deadline = time.monotonic() + 60
    while not (spool / SOCKET_NAME).exists():
        assert agent.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return agent


def attach(machine: Machine, spool: Path, request: str) -> tuple[int, bytes, str]:
    """Run one client; return its status, output and errors."""
    argv = [sys.executable, *attach_argv(str(spool))[1:]]
    client = spawn(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=machine.environment())
    assert client.stdin is not None
    assert client.stdout is not None
    assert client.stderr is not None
    client.stdin.write(request.encode() + b"\n")
    output = client.stdout.read()
    client.stdin.close()
    stderr = client.stderr.read().decode()
    client.stdout.close()
    client.stderr.close()
    return client.wait(60), output, stderr


def ended(agent: Process[bytes]) -> int:
    _, stderr = agent.communicate(timeout=60)
    assert "Traceback" not in stderr.decode()
    return agent.returncode


def test_the_client_gets_the_frames_and_the_status_of_the_agent(
    machine: Machine, spool: Path
) -> None:
    agent = stand_by(machine, spool)
    request = json.dumps(request_to_json(make_request(machine, make_trial())))
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
    folder.mkdir()
    (folder / "bpftrace").write_text(BPFTRACE)
    (folder / "bpftrace").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "attachments"


def test_a_tracer_attached_in_standby_is_the_one_that_traces(
    machine: Machine, spool: Path, attachments: Path
) -> None:
    agent = stand_by(machine, spool, "bpftrace")
    trial = make_trial(collectors=("bpftrace",))
    status, output, _ = attach(
        machine, spool, json.dumps(request_to_json(make_request(machine, trial)))
    )
    [record] = [f["record"] for f in frames_of(output) if f["frame"] == "record"]
    assert (status, record["collectors"]["bpftrace"]["status"]) == (0, "ok")
    assert attachments.read_text().split() == ["attached", "detached"], (
        "none was attached a second time"
    )
    assert attachments.stat().st_mtime > record["measured"]["start_wall_seconds"]
    assert not [f for f in frames_of(output) if f.get("text") == "attaching bpftrace"]
    assert ended(agent) == 0
    assert machine.left() == []


def test_a_tracer_that_no_trial_wants_is_detached_before_the_first(
    machine: Machine, spool: Path, attachments: Path
) -> None:
    agent = stand_by(machine, spool, "bpftrace")
    request = json.dumps(request_to_json(make_request(machine, make_trial())))
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
    status, output, stderr = attach(machine, spool, "")
    assert status not in (0, 127)
    assert output == b""
    assert "agent.pyz" in stderr or "JSON" in stderr


def test_a_client_of_an_agent_that_is_killed_ends_with_a_failure(
    machine: Machine, spool: Path
) -> None:
    agent = stand_by(machine, spool)
    argv = [sys.executable, *attach_argv(str(spool))[1:]]
    client = spawn(argv, stdin=PIPE, env=machine.environment())
    while (spool / SOCKET_NAME).exists():
        time.sleep(0.02)
    agent.kill()
    agent.communicate()
    assert client.wait(30) == 1
    assert client.stdin is not None
    client.stdin.close()
