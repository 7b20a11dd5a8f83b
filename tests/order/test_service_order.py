"""A server and its load through the real agent: the order of its parts, and what a kill leaves."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from pagecage.agent.protocol import request_to_json
from pagecage.hosts.agent_package import AgentPackage
from pagecage.model.services import MetricPattern, ServiceSpec
from pagecage.model.trial import CommandSpec, Dataset, Trial, Workload
from pagecage.process import PIPE, identify, spawn
from pagecage.units import MIB
from tests.builders.command_trials import MEMORY
from tests.builders.service_trials import SERVES, carry_out
from tests.builders.trial_runs import package
from tests.fake_host.hosts import on_fakes
from tests.fake_host.machine import LIGHT, Machine, make_dataset, make_request, make_trial

__all__ = ["package"]
DATA = Dataset(8 * MIB)
READS = 'cat "$FAKE_FILE" >/dev/null; printf "anon 0\\nfile {0}\\n" >"$FAKE_SLICE/memory.stat"; '
READS += 'echo "$FAKE_MAJ_MIN rbytes={0} rios=9" >"$FAKE_SLICE/io.stat"; '


@pytest.fixture
def data(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = make_dataset(machine.data, DATA)
    monkeypatch.setenv("FAKE_FILE", str(path))
    return path


def command(data: Path) -> CommandSpec:
    return CommandSpec(data_paths=(str(data),), ready_when="^serving$", is_literal=True)


def test_its_files_are_cold_before_the_server_is_let_go(machine: Machine, data: Path) -> None:
    """The bytes that it reads until it serves are its own, and are not in the window."""
    server = READS.format(DATA.size_bytes) + SERVES
    record = carry_out(
        machine, "sleep 0.3; echo tps = 1", server, command(data), trial={"cache": "cold"}
    )
    assert (record.outcome, record.error) == ("ok", None)
    assert record.cache.go
    assert record.cache.go.resident_bytes == 0
    assert record.cache.end
    assert record.cache.end.resident_bytes >= DATA.size_bytes
    assert record.response["device_read_bytes"] == 0


def test_a_load_that_reads_the_servers_files_itself_is_no_answer(
    machine: Machine, data: Path
) -> None:
    """Pages that a process outside the cage brings in are not read from the disk by the server."""
    load = 'cat "$FAKE_FILE" >/dev/null; echo tps = 1'
    record = carry_out(machine, load, command=command(data), trial={"cache": "cold"})
    assert record.outcome == "not_prepared"
    assert "another process" in (record.error or "")


def serve(package: AgentPackage, machine: Machine, trial: Trial) -> int:
    """Run one agent with this trial; return its exit status."""
    argv = on_fakes(package.agent, machine).agent_command()
    agent = spawn(argv, stdin=PIPE, stdout=PIPE, new_session=True)
    assert agent.stdin is not None
    assert agent.stdout is not None
    request = json.dumps(request_to_json(make_request(machine, trial)))
    agent.stdin.write(request.encode() + b"\n")
    agent.stdout.read()
    agent.stdin.close()
    agent.stdout.close()
    return agent.wait(60)


@pytest.mark.parametrize("warm_up_seconds", [0.0, 30.0])
def test_a_killed_agent_leaves_no_load(
    machine: Machine, package: AgentPackage, tmp_path: Path, warm_up_seconds: float
) -> None:
    """The kernel ends the load with its supervisor; the next start ends the server."""
    load = f"echo $$ >{tmp_path}/pid; kill -9 $FAKE_AGENT; exec sleep 60"
    spec = CommandSpec(ready_when="^serving$", is_literal=True)
    metrics = {"tps": MetricPattern("(.)")}
    service = ServiceSpec(("sh", "-c", load), metrics, warm_up_seconds)
    workload = Workload("sh", ("-c", SERVES), "service", command=spec, service=service)
    own = {"cage": MEMORY, "dataset": None, "collectors": (), "cache": "any"}
    assert serve(package, machine, make_trial(workload=workload, **own)) == -9
    left, until = int((tmp_path / "pid").read_text()), time.monotonic() + 20
    while identify(left) is not None and time.monotonic() < until:
        time.sleep(0.02)
    assert identify(left) is None
    assert machine.left() != []
    assert serve(package, machine, make_trial(cage=LIGHT)) == 0
    assert machine.left() == []
