"""The real agent without a controller, as a fleet starts it, with its frames in a file."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from pagecage.agent.protocol import request_to_json
from pagecage.hosts.agent_package import agent_bytes
from pagecage.model.record import read_records
from pagecage.model.trial import Trial
from pagecage.process import PIPE, Process, spawn
from tests.fake_host.machine import HERE, Machine, frames_of, make_request, make_trial


@pytest.fixture
def agent(machine: Machine) -> Path:
    path = machine.root / "agent.pyz"
    path.write_bytes(agent_bytes())
    return path


def serve(machine: Machine, agent: Path, *trials: Trial) -> tuple[Process[bytes], Path]:
    """Start the agent; return it and the file of its frames."""
    request, stream = machine.root / "request.json", machine.root / "stream"
    request.write_text(json.dumps(request_to_json(make_request(machine, *trials))))
    words = [agent, machine.root, "serve", request, stream]
    return spawn(
        [sys.executable, "-S", HERE / "agent_on_fakes.py", *words], stderr=PIPE, new_session=True
    ), stream


def ended(process: Process[bytes]) -> int:
    _, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stderr.decode()
    return process.returncode


def test_it_finishes_without_a_controller(machine: Machine, agent: Path) -> None:
    process, stream = serve(
        machine, agent, make_trial(), make_trial("out_of_memory.py", trial_id="r1_other")
    )
    assert ended(process) == 0
    frames = frames_of(stream.read_bytes())
    assert [f["record"]["outcome"] for f in frames if f["frame"] == "record"] == [
        "ok",
        "oom_killed",
    ]
    assert {f["name"] for f in frames if f["frame"] == "trace"} >= {
        "sampler.jsonl",
        "vmtouch.jsonl",
    }
    assert len(list(read_records(machine.records))) == 2
    assert machine.left() == []


def test_the_file_grows_only_between_trials_and_a_signal_ends_it(
    machine: Machine, agent: Path
) -> None:
    process, stream = serve(
        machine, agent, make_trial(), make_trial("never_ends.py", trial_id="r1_other")
    )
    deadline = time.monotonic() + 60
    while not any(
        line.startswith("scope ") and "never_ends" in line for line in machine.log_lines()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    grown = [(f["frame"], f.get("event")) for f in frames_of(stream.read_bytes())]
    assert grown[-1] == ("event", "trial"), "the second trial's phases have to wait"
    os.kill(int(machine.agent_pid.read_text()), signal.SIGTERM)
    assert ended(process) == 130
    frames = frames_of(stream.read_bytes())
    records = [f["record"] for f in frames if f["frame"] == "record"]
    assert [(r["outcome"], r["error"]) for r in records] == [
        ("ok", None),
        ("interrupted", "ended from outside"),
    ]
    assert any(f.get("event") == "go" for f in frames)
    assert machine.left() == []


def test_an_existing_stream_is_never_overwritten(machine: Machine, agent: Path) -> None:
    (machine.root / "stream").write_bytes(b"kept")
    process, stream = serve(machine, agent, make_trial())
    _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0
    assert b"FileExistsError" in stderr or b"is there" in stderr
    assert stream.read_bytes() == b"kept"
