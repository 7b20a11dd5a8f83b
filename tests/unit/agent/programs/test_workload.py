"""Outcomes of workloads, commands, and placeholders in arguments."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.programs.command import fill
from pagecage.agent.programs.workload import judge_end
from pagecage.agent.session import run_trial
from pagecage.agent.trial_run import Measured
from pagecage.model.cage import Cage
from pagecage.model.record import OUTCOMES, read_records
from pagecage.model.trial import Workload
from tests.fake_host.machine import LIGHT, Machine, make_session, make_trial


def judged(
    status: int = 0, oom_kill: int | None = 0, timed_out: bool = False, **end: Any
) -> tuple[str, str | None]:
    """Return the ending of a workload with this exit."""
    evidence = {"status": status, "oom_kill": oom_kill}
    measured = Measured(None, {}, end, evidence, "the last line", is_timed_out=timed_out)
    ending = judge_end(measured, 5.0)
    return ending.outcome, ending.error


@pytest.mark.parametrize(
    ("evidence", "outcome"),
    [
        ({"checksum_ok": True}, "ok"),
        ({"checksum_ok": None}, "ok"),
        ({}, "failed"),
        ({"oom_kill": 1, "status": -9}, "oom_killed"),
        ({"oom_kill": 2, "status": 0, "checksum_ok": True}, "oom_killed"),
        ({"oom_kill": 1, "timed_out": True}, "oom_killed"),
        ({"oom_kill": None, "status": -9}, "failed"),
        ({"status": 137}, "failed"),
        ({"timed_out": True, "status": -9}, "timed_out"),
        ({"timed_out": True, "checksum_ok": False}, "timed_out"),
        ({"status": 77}, "requirement_missed"),
        ({"status": 0, "checksum_ok": False}, "wrong_answer"),
        ({"status": 1, "checksum_ok": False}, "wrong_answer"),
        ({"status": 1, "checksum_ok": True}, "failed"),
    ],
)
def test_the_strongest_evidence_decides(evidence: dict[str, Any], outcome: str) -> None:
    assert judged(**evidence)[0] == outcome


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (
            {"lost_records": 1200, "failed_calls": 3, "torn_records": 0, "call_p50_us": 9.0},
            "the last line: 1,200 lost records, 3 failed calls",
        ),
        ({"lost_records": None}, "the last line"),
        ({}, "the last line"),
        (["lost_records"], "the last line"),
    ],
)
def test_a_wrong_answer_lists_its_faults(response: Any, message: str) -> None:
    assert judged(status=1, checksum_ok=False, response=response) == ("wrong_answer", message)


@given(
    status=st.integers(-64, 255),
    oom_kill=st.none() | st.integers(0, 3),
    timed_out=st.booleans(),
    checksum_ok=st.none() | st.booleans(),
)
def test_every_exit_has_one_outcome(
    status: int, oom_kill: int | None, timed_out: bool, checksum_ok: bool | None
) -> None:
    outcome, error = judged(status, oom_kill, timed_out, checksum_ok=checksum_ok)
    assert outcome in OUTCOMES
    assert (error is None) == (outcome in ("ok", "oom_killed"))
    assert (outcome == "oom_killed") == bool(oom_kill)


@given(st.text(max_size=30), st.text(max_size=10))
def test_only_known_placeholders_are_filled_in(argument: str, value: str) -> None:
    filled = fill(f"{argument}{{file}}", {"file": value, "max_seconds": 5.0})
    assert filled.endswith(value)
    assert fill("{print $1} {nothing}", {"file": "x"}) == "{print $1} {nothing}"


def test_placeholders_are_filled_in(machine: Machine) -> None:
    script = "test -f {file} && test -f {sidecar} && test -d {data_dir} && test {max_seconds} = 5.0"
    workload = Workload("sh", ("-c", script), "command")
    trial = make_trial(cage=Cage("open", {}), collectors=(), workload=workload)
    run_trial(make_session(machine, io.BytesIO(), trial), trial, 1)
    assert next(iter(read_records(machine.records))).outcome == "ok"


def test_a_missing_program_is_a_failure(machine: Machine) -> None:
    trial = make_trial("no_such_program.py", cage=LIGHT, collectors=())
    run_trial(make_session(machine, io.BytesIO(), trial), trial, 1)
    [record] = read_records(machine.records)
    assert (record.outcome, record.phase) == ("failed", "run")
    assert record.workload.sha256 is None
