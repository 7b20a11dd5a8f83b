"""Outcomes of services: one sentence each, which names the server or the load."""

from __future__ import annotations

import time

import pytest

from pagecage.model.trial import CommandSpec
from tests.builders.service_trials import SERVES, carry_out
from tests.fake_host.machine import Machine

DIES = "echo serving; sleep {}; echo no space left >&2; kill -9 $$"


def test_a_server_that_dies_under_load(machine: Machine) -> None:
    began = time.monotonic()
    record = carry_out(machine, "sleep 30; echo tps = 1", DIES.format(1))
    assert time.monotonic() - began < 20
    assert record.outcome == "failed"
    assert record.error == "the server ended by signal 9 while under load: no space left"
    assert record.is_programs_own_failure
    assert record.failed_status == -9
    assert record.response == {}
    assert machine.left() == []


def test_a_load_that_fails_since_the_server_died_is_not_blamed(machine: Machine) -> None:
    record = carry_out(machine, "sleep 0.5; echo lost >&2; exit 1", DIES.format(0.7))
    assert record.error == "the server ended by signal 9 while under load: no space left"


@pytest.mark.parametrize(
    ("changes", "during"),
    [
        ({"warm_up_seconds": 20.0}, "while it was warmed up"),
        ({"settle_seconds": 20.0}, "while it settled"),
    ],
)
def test_a_server_that_dies_before_the_window(
    machine: Machine, changes: dict[str, float], during: str
) -> None:
    record = carry_out(machine, "sleep 30", DIES.format(1), **changes)
    assert record.error == f"the server ended by signal 9 {during}: no space left"
    assert record.measured is None


def test_a_server_that_ends_before_it_serves(machine: Machine) -> None:
    record = carry_out(machine, "echo tps = 1", "echo cannot bind >&2; exit 4")
    assert record.error == "the server ended with status 4 before it served: cannot bind"
    assert record.failed_status == 4


@pytest.mark.parametrize(("patience", "limit", "seconds"), [(0.5, 20.0, "0.5"), (None, 0.7, "0.7")])
def test_a_server_that_never_serves(
    machine: Machine, patience: float | None, limit: float, seconds: str
) -> None:
    record = carry_out(
        machine,
        "echo tps = 1",
        "exec sleep 60",
        ready_timeout_seconds=patience,
        trial={"timeout_seconds": limit},
    )
    expected = f"the server did not serve within {seconds} s"
    assert (record.outcome, record.error) == ("timed_out", expected)
    assert machine.left() == []


def test_a_load_that_fails(machine: Machine) -> None:
    record = carry_out(machine, "echo tps = 9; echo connection refused >&2; exit 2")
    assert record.outcome == "failed"
    assert record.error == "the load ended with status 2: connection refused"
    assert record.is_programs_own_failure
    assert record.failed_status == 2
    assert not record.exit.ended_by_itself


def test_a_load_that_fails_in_the_warm_up(machine: Machine) -> None:
    record = carry_out(machine, "exit 2", warm_up_seconds=5.0)
    assert record.error == "the load ended with status 2 in the warm-up"
    assert record.measured is None


def test_a_warm_up_longer_than_the_trial(machine: Machine) -> None:
    record = carry_out(machine, "exec sleep 60", warm_up_seconds=30.0, trial={"timeout_seconds": 2})
    expected = "the load did not finish within 2 s"
    assert (record.outcome, record.error) == ("timed_out", expected)


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
    [
        ("done", "no match for 'tps'"),
        ("tps = 1.2.3", "'1.2.3' for 'tps', which is not a number"),
    ],
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


def test_a_scope_that_does_not_start_is_not_its_failure(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "scope")
    record = carry_out(
        machine, "echo tps = 1", command=CommandSpec(ready_when="x", is_literal=True)
    )
    assert "its scope was not started" in (record.error or "")
    assert not record.is_final
