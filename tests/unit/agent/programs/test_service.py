"""Services: the parts of a trial, their outcomes, the CPUs, and what survives."""

from __future__ import annotations

import io
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent.programs.service import OUTPUT_BYTES, LoadOutput, split_cpus
from pagecage.model.services import MetricPattern
from pagecage.model.trial import CommandSpec
from pagecage.process import identify
from tests.builders.known import known
from tests.builders.service_trials import SERVES, carry_out, free_port, listens
from tests.builders.waiting import wait_until
from tests.fake_host.machine import Machine, frames_of, trace_of


def test_the_load_is_measured_from_its_start_to_its_exit(machine: Machine) -> None:
    record = carry_out(machine, "sleep 0.5; echo tps = 123.5", f"sleep 0.3; {SERVES}")
    assert (record.outcome, record.error) == ("ok", None)
    assert record.response["tps"] == 123.5
    assert 0.3 <= (record.response["ready_seconds"] or 0) < 5
    assert 0.5 <= (record.response["wall_seconds"] or 0) < 5
    assert known(record.measured).seconds == record.response["wall_seconds"]
    assert record.load.during == "load"
    assert record.load.argv == ("sh", "-c", "sleep 0.5; echo tps = 123.5")
    assert (record.load.status, record.exit.status) == (0, -15)
    assert not record.exit.ended_by_itself
    assert machine.left() == []


def test_counters_are_those_of_the_window_alone(machine: Machine) -> None:
    """The counters hold neither the reads before the load began nor those of the load."""
    io_stat = '"$FAKE_MAJ_MIN rbytes={} rios={}" >"$FAKE_SLICE/io.stat"'
    server = f"echo {io_stat.format(8192, 2)}; echo serving; "
    server += (
        f"while ! test -e go; do sleep 0.02; done; echo {io_stat.format(20480, 5)}; exec sleep 60"
    )
    command = CommandSpec(ready_when="^serving$", is_literal=True, directory=str(machine.data))
    record = carry_out(machine, "touch go; sleep 0.5; echo tps = 1", server, command)
    assert record.outcome == "ok", record.error
    assert record.response["device_read_bytes"] == 20480 - 8192
    assert record.response["device_reads"] == 3


def test_the_warm_up_is_ended_and_not_measured(machine: Machine, tmp_path: Path) -> None:
    log = tmp_path / "log"
    load = f"echo start $(date +%s.%N) >>{log}; trap 'echo ended >>{log}; exit 143' TERM; "
    load += "echo tps = 7; n=0; while [ $n -lt 15 ]; do sleep 0.1; n=$((n+1)); done"
    record = carry_out(machine, load, warm_up_seconds=0.6, settle_seconds=0.4)
    assert record.outcome == "ok", record.error
    lines = log.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["start", "ended", "start"]
    assert float(lines[2].split()[1]) - float(lines[0].split()[1]) >= 1.0
    assert record.load.warm_up == {"seconds": 0.6, "runs": 1}
    assert 1.5 <= (record.response["wall_seconds"] or 0) < 5


def test_a_load_that_ends_early_warms_up_again(machine: Machine, tmp_path: Path) -> None:
    record = carry_out(machine, f"echo run >>{tmp_path}/log; echo tps = 7", warm_up_seconds=2.0)
    logged = len((tmp_path / "log").read_text().splitlines())
    runs = known(record.load.warm_up)["runs"]
    assert runs > 1
    assert logged in (runs, runs + 1), "the last of the warm-up may be ended before its first line"


def test_its_cpu_time_is_its_own(machine: Machine) -> None:
    record = carry_out(machine, "n=0; while [ $n -lt 300000 ]; do n=$((n+1)); done; echo tps = 1")
    assert (record.load.cpu_seconds or 0) > 0.05
    assert (record.load.cpu_seconds or 0) < (record.response["wall_seconds"] or 0) * 1.2


def test_server_and_load_have_cpus_of_their_own(machine: Machine, tmp_path: Path) -> None:
    own = sorted(os.sched_getaffinity(0))
    status = "grep Cpus_allowed_list /proc/self/status"
    load = f"{status} >{tmp_path}/load; echo tps = 1"
    record = carry_out(machine, load, f"{status} >{tmp_path}/server; {SERVES}")
    assert record.outcome == "ok", record.error
    assert record.load.cpus == (own[-1],)
    assert record.load.server_cpus == tuple(own[:-1] or own)
    assert (record.load.cpu_note is None) == (len(own) > 1)
    assert (tmp_path / "load").read_text().split()[-1] == str(own[-1])
    assert os.sched_getaffinity(0) == set(own)


def test_one_cpu_is_shared() -> None:
    assert split_cpus({3}) == ((3,), (3,))
    assert split_cpus({5, 2, 9}) == ((2, 5), (9,))


def test_one_cpu_is_said_in_the_record(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    record = carry_out(machine, "echo tps = 1")
    assert record.load.cpu_note == "the host has one CPU, which server and load share"


def test_the_output_of_the_load_is_kept(machine: Machine) -> None:
    out = io.BytesIO()
    record = carry_out(machine, "echo warm; echo problem >&2; echo tps = 5", out=out)
    trace = trace_of(frames_of(out.getvalue()), "load.txt")
    assert trace == b"warm\ntps = 5\n"
    assert record.load.output_bytes == len(trace)
    assert record.load.stderr_tail == ("problem",)
    assert record.collectors["load"]["status"] == "ok"


def test_only_the_last_output_is_kept() -> None:
    output = LoadOutput()
    for number in range(20):
        output.take("stdout", bytes([number]) * (1 << 20))
    output.take("stderr", b"not this")
    assert output.total_bytes == 20 << 20
    kept = output.read()
    assert len(kept) == OUTPUT_BYTES
    assert kept[0] == 12
    assert kept[-1] == 19


def test_metrics_in_json(machine: Machine) -> None:
    metrics = {"p99_ms": MetricPattern("$.latency.p99"), "errors": MetricPattern("$.errors[-1]")}
    load = """echo starting; echo '{"latency": {"p99": 3.5}, "errors": [9, 0]}'"""
    record = carry_out(machine, load, metrics=metrics)
    assert (record.response["p99_ms"], record.response["errors"]) == (3.5, 0)


@pytest.mark.parametrize(
    "server",
    [
        pytest.param("exec {}", id="the main process"),
        pytest.param('{} & echo $! >>"$FAKE_SLICE/cgroup.procs"', id="a daemon"),
    ],
)
def test_it_serves_when_it_or_its_child_in_the_cage_listens(machine: Machine, server: str) -> None:
    port = free_port()
    connect = f'import socket; socket.create_connection(("127.0.0.1", {port}))'
    load = f"python3 -S -c '{connect}' && sleep 0.3 && echo tps = 1"
    command = CommandSpec(ready_port=port, is_literal=True)
    record = carry_out(machine, load, server.format(listens(port)), command)
    assert (record.outcome, record.error) == ("ok", None)
    assert machine.left() == []


def test_a_stop_signal_of_its_own(machine: Machine, tmp_path: Path) -> None:
    server = f"trap 'echo fast >{tmp_path}/log; exit 3' INT; echo serving;"
    server += " while :; do sleep 0.05; done"
    record = carry_out(machine, "echo tps = 1", server, stop_signal="INT")
    assert (tmp_path / "log").read_text() == "fast\n"
    assert (record.outcome, record.exit.status) == ("ok", 3)


def test_nothing_of_a_load_survives(machine: Machine, tmp_path: Path) -> None:
    load = f"setsid sh -c 'echo $$ >{tmp_path}/pid; exec sleep 60' & sleep 0.3; echo tps = 1"
    record = carry_out(machine, load)
    assert record.outcome == "ok", record.error
    left = int((tmp_path / "pid").read_text())
    wait_until(lambda: identify(left) is None)


def test_a_port_that_is_taken_names_its_process(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = CommandSpec(ready_port=port, is_literal=True)
        record = carry_out(machine, "true", command=command)
    assert (record.outcome, record.phase) == ("requirement_missed", "dataset")
    name = Path("/proc/self/comm").read_text().strip()
    expected = f"port {port} is already taken by {name} (process {os.getpid()})"
    assert record.missed_requirements[0].reason.startswith(expected)
    assert not any(line.startswith("scope") for line in machine.log_lines())


def test_a_load_that_is_missing_is_refused_before_anything_starts(machine: Machine) -> None:
    record = carry_out(machine, argv=("no-such-load",))
    assert (record.outcome, record.phase) == ("requirement_missed", "dataset")
    assert "there is no program 'no-such-load'" in record.missed_requirements[0].reason


DIES = "echo serving; sleep {}; echo no space left >&2; kill -9 $$"
KILLED = "the server ended by signal 9 while {}: no space left"


def test_a_server_that_dies_under_load(machine: Machine) -> None:
    began = time.monotonic()
    record = carry_out(machine, "sleep 30; echo tps = 1", DIES.format(1))
    assert time.monotonic() - began < 20
    assert record.outcome == "failed"
    assert record.error == KILLED.format("under load")
    assert record.is_programs_own_failure
    assert record.failed_status == -9
    assert record.response == {}
    assert machine.left() == []


def test_a_load_that_fails_since_the_server_died_is_not_blamed(machine: Machine) -> None:
    record = carry_out(machine, "sleep 0.5; echo lost >&2; exit 1", DIES.format(0.7))
    assert record.error == KILLED.format("under load")


@pytest.mark.parametrize(
    ("load", "server", "changes", "error"),
    [
        ("sleep 30", DIES.format(1), {"warm_up_seconds": 20.0}, KILLED.format("it was warmed up")),
        ("sleep 30", DIES.format(1), {"settle_seconds": 20.0}, KILLED.format("it settled")),
        ("exit 2", SERVES, {"warm_up_seconds": 5.0}, "the load ended with status 2 in the warm-up"),
    ],
)
def test_an_end_before_the_window(
    machine: Machine, load: str, server: str, changes: dict[str, Any], error: str
) -> None:
    record = carry_out(machine, load, server, **changes)
    assert (record.error, record.measured) == (error, None)


def test_a_server_that_ends_before_it_serves(machine: Machine) -> None:
    record = carry_out(machine, "echo tps = 1", "echo cannot bind >&2; exit 4")
    assert record.error == "the server ended with status 4 before it served: cannot bind"
    assert record.failed_status == 4


NEVER = "exec sleep 60"


@pytest.mark.parametrize(
    ("load", "server", "changes", "limit", "error"),
    [
        (
            "echo tps = 1",
            NEVER,
            {"ready_timeout_seconds": 0.5},
            20.0,
            "the server did not serve within 0.5 s",
        ),
        ("echo tps = 1", NEVER, {}, 0.7, "the server did not serve within 0.7 s"),
        (NEVER, SERVES, {"warm_up_seconds": 30.0}, 2, "the load did not finish within 2 s"),
    ],
)
def test_what_takes_too_long(
    machine: Machine, load: str, server: str, changes: dict[str, Any], limit: float, error: str
) -> None:
    record = carry_out(machine, load, server, trial={"timeout_seconds": limit}, **changes)
    assert (record.outcome, record.error) == ("timed_out", error)
    assert machine.left() == []


def test_a_load_that_fails(machine: Machine) -> None:
    record = carry_out(machine, "echo tps = 9; echo connection refused >&2; exit 2")
    assert record.outcome == "failed"
    assert record.error == "the load ended with status 2: connection refused"
    assert record.is_programs_own_failure
    assert record.failed_status == 2
    assert not record.exit.ended_by_itself


def test_a_load_that_does_not_end(machine: Machine) -> None:
    """The figures that it printed meanwhile are not its result."""
    record = carry_out(machine, "echo tps = 9; exec sleep 60", trial={"timeout_seconds": 3.0})
    expected = "the load did not finish within 3 s"
    assert (record.outcome, record.error) == ("timed_out", expected)
    assert record.response["tps"] is None
    assert record.response["wall_seconds"] is None
    assert machine.left() == []


@pytest.mark.parametrize(
    ("printed", "reason"),
    [("done", "no match for 'tps'"), ("tps = 1.2.3", "'1.2.3' for 'tps', which is not a number")],
)
def test_a_metric_that_is_missing_is_a_failure(machine: Machine, printed: str, reason: str) -> None:
    record = carry_out(machine, f"echo {printed}")
    assert (record.outcome, record.error) == ("failed", f"the load's output has {reason}")
    assert "tps" not in record.response
    assert record.failed_status == 1
    assert record.is_final


def test_out_of_memory_is_an_answer(machine: Machine) -> None:
    server = f'printf "oom_kill 1\\n" >"$FAKE_SLICE/memory.events"; {SERVES}'
    record = carry_out(machine, "echo lost >&2; exit 1", server)
    assert (record.outcome, record.error) == ("oom_killed", None)


def test_a_server_that_leaves_its_cage(machine: Machine) -> None:
    elsewhere = machine.cgroups / "system.slice/other.service"
    elsewhere.mkdir(parents=True)
    server = f"sleep 60 & echo $! >>{elsewhere}/cgroup.procs; echo serving; wait"
    record = carry_out(machine, "sleep 30", server)
    assert record.outcome == "failed"
    assert f"left the cage for {elsewhere}" in (record.error or "")
    assert record.exit.escaped


def test_a_scope_that_does_not_start_is_not_its_failure(machine: Machine) -> None:
    machine.misbehave(FAILS="scope")
    command = CommandSpec(ready_when="x", is_literal=True)
    record = carry_out(machine, "echo tps = 1", command=command)
    assert "its scope was not started" in (record.error or "")
    assert not record.is_final
