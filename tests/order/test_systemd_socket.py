"""A trial whose slice and scope are made over systemd's socket, without its commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pagecage.linux.systemd import unit_name
from pagecage.model.cage import Cage
from pagecage.model.trial import Trial, Workload
from tests.builders.known import known
from tests.builders.service_manager import Answer, FakeUnits, serve_machine
from tests.builders.trial_runs import carry_out
from tests.fake_host.machine import CAGE, Machine, make_trial

MEMORY = Cage("small", {"MemoryMax": CAGE.properties["MemoryMax"]})
COMMAND = make_trial(
    workload=Workload("true", (), "command"), cage=MEMORY, dataset=None, collectors=()
)
SLICE = unit_name(COMMAND.trial_id)


@pytest.fixture
def served(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeUnits]:
    monkeypatch.setenv("FAKE_SLICE", str(machine.cgroups / "pagecage.slice" / SLICE))
    manager = serve_machine(machine)
    yield manager
    manager.close()


@pytest.mark.parametrize("trial", [COMMAND, make_trial()], ids=["command", "handshake"])
def test_it_is_the_same_trial(machine: Machine, served: FakeUnits, trial: Trial) -> None:
    record = carry_out(machine, trial)
    assert (record.outcome, record.error) == ("ok", None)
    assert known(record.cage.read_back)["memory.max"] == str(CAGE.properties["MemoryMax"])
    members = [member for member, arguments in served.calls if SLICE in str(arguments)]
    assert members == ["SetUnitProperties", "StartUnit", "StartTransientUnit", "StopUnit"]
    assert machine.left() == []


def test_no_client_of_systemd_is_started(machine: Machine, served: FakeUnits) -> None:
    carry_out(machine, COMMAND)
    units = [line for line in machine.log_lines() if SLICE in line]
    scope = f"scope pagecage-run-r1_tight.1.scope in {SLICE}"
    assert units == [f"set-property {SLICE}", f"start {SLICE}", scope, f"stop {SLICE}"]
    assert served.calls


def test_limits_are_read_back_all_the_same(machine: Machine, served: FakeUnits) -> None:
    machine.misbehave(FORGETS="memory.max")
    record = carry_out(machine, COMMAND)
    assert (record.outcome, record.phase) == ("requirement_missed", "slice")
    assert "memory.max is max" in (record.error or "")
    assert served.calls


@pytest.mark.parametrize("trial", [COMMAND, make_trial()], ids=["command", "handshake"])
def test_a_scope_that_is_refused_ends_the_trial_and_its_program(
    machine: Machine, served: FakeUnits, monkeypatch: pytest.MonkeyPatch, trial: Trial
) -> None:
    answer = served._answer

    def refuse(member: str, arguments: Any) -> Answer:
        if member == "StartTransientUnit":
            return "refused", "Unit was not accepted."
        return answer(member, arguments)

    monkeypatch.setattr(served, "_answer", refuse)
    record = carry_out(machine, trial)
    assert (record.outcome, record.phase) == ("failed", "run")
    assert "Unit was not accepted." in (record.error or "")
    assert machine.left() == []


@pytest.mark.slow
def test_a_program_outside_of_its_scope_is_not_measured(
    machine: Machine, served: FakeUnits, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = served._answer

    def lose(member: str, arguments: Any) -> Answer:
        return ("done", "") if member == "StartTransientUnit" else answer(member, arguments)

    monkeypatch.setattr(served, "_answer", lose)
    record = carry_out(machine, COMMAND)
    assert (record.outcome, record.phase) == ("not_prepared", "run")
    assert "not in its cage" in (record.error or "")
