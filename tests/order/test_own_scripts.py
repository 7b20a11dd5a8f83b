"""bpftrace scripts of a definition: checked before the first trial, attached for each."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent.collectors import custom
from pagecage.agent.collectors.custom import with_trial_filter
from pagecage.agent.collectors.tracer import first_error
from pagecage.agent.protocol import AnswerQueue, FrameStream
from pagecage.agent.session import serve
from pagecage.linux.child_processes import Interruption
from pagecage.model.collectors import OwnCollector
from pagecage.model.record import Record, read_records
from pagecage.model.trial import CommandSpec, Trial, Workload
from tests.builders.command_trials import MEMORY
from tests.fake_host.machine import Machine, frames_of, make_request, make_trial

BPFTRACE = """#!/bin/sh
[ "$1" = --version ] && { echo "bpftrace v0"; exit; }
echo "$@" >>"$FAKE_CALLS"
if [ "$1" = --dry-run ]; then
  if [ -e "$FAKE_CALLS.old" ]; then echo "bpftrace: unrecognized option '--dry-run'" >&2; exit 1; fi
fi
if [ "$1" = --dry-run ] || [ "$1" = -d ]; then
  grep -q broken "$2" || exit 0
  echo "$2:1:1-26: ERROR: tracepoint not found: syscalls:broken" >&2
  echo "broken { }" >&2
  exit 1
fi
grep -q dies "$3" && { echo "ERROR: could not attach" >&2; exit 1; }
trap 'echo "{\\"type\\": \\"map\\", \\"data\\": {\\"@n\\": 99}}"; exit 0' INT TERM
n=0
echo '{"type": "attached_probes", "data": {"probes": 2}}'
grep -q stays "$3" && trap '' INT TERM
grep -q lost "$3" && echo '{"type": "lost_events", "data": {"events": 7}}'
while :; do
  n=$((n + 1))
  grep -q PAGECAGE_TICK "$3" && printf '{"type": "printf", "data": "PAGECAGE_TICK\\\\n"}\\n'
  echo "{\\"type\\": \\"map\\", \\"data\\": {\\"@n\\": $n}}"
  sleep 0.1
done
"""
GOOD = "BEGIN { @n = 0 }"


@pytest.fixture
def calls(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a bpftrace; return the file to which each start adds its arguments."""
    folder, file = machine.root / "tools", machine.root / "calls"
    folder.mkdir()
    (folder / "bpftrace").write_text(BPFTRACE)
    (folder / "bpftrace").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_CALLS", str(file))
    return file


def scripted(**settings: Any) -> Trial:
    script = OwnCollector("mine", ("{programs}/mine.bt",), False, 0.0, 5.0, True)
    return make_trial(
        workload=Workload("sleep", ("0.5",), "command", command=CommandSpec()),
        cage=MEMORY,
        collectors=(),
        dataset=None,
        cache="any",
        own_collectors=(replace(script, **settings),),
    )


def run(
    machine: Machine, text: str, count: int = 1, **settings: Any
) -> tuple[list[Record], list[Any]]:
    trials = [replace(scripted(**settings), trial_id=f"r{n}_tight") for n in range(1, count + 1)]
    request = replace(make_request(machine, *trials), own_programs={"mine.bt": text})
    out = io.BytesIO()
    serve(request, FrameStream(out), Interruption(), AnswerQueue())
    return list(read_records(machine.records)), frames_of(out.getvalue())


def test_its_maps_become_responses(machine: Machine, calls: Path) -> None:
    [record], frames = run(machine, GOOD)
    mine = record.collectors["mine"]
    assert (record.outcome, mine["status"], mine["reason"]) == ("ok", "ok", None)
    assert (mine["fields"], mine["lost_events"]) == (["n"], 0)
    assert record.response["mine_last_n"] == 99, "the maps that are printed at the exit"
    assert record.response["mine_delta_n"] > 90
    [trace] = [frame["body"] for frame in frames if frame.get("name") == "mine.jsonl"]
    assert b"attached_probes" in trace
    assert b"PAGECAGE_TICK" not in trace
    argv = calls.read_text().splitlines()[-1].split()
    assert argv[:2] == ["-f", "json"]
    assert argv[3:] == [argv[3], str(259 << 20 | 7)]
    assert machine.left() == []


def test_a_script_is_checked_once_for_all_trials(machine: Machine, calls: Path) -> None:
    records, _ = run(machine, GOOD, count=2)
    assert [record.outcome for record in records] == ["ok", "ok"]
    starts = [line.split()[0] for line in calls.read_text().splitlines()]
    assert starts == ["--dry-run", "-f", "-f"]


def test_a_broken_script_is_named_and_no_trial_runs(machine: Machine, calls: Path) -> None:
    records, _ = run(machine, "broken { }", count=2)
    assert {record.outcome for record in records} == {"requirement_missed"}
    reason = "bpftrace cannot run mine.bt: mine.bt:1:1-26: tracepoint not found: syscalls:broken"
    assert {record.error for record in records} == {reason}
    assert len(calls.read_text().splitlines()) == 1


def test_an_older_bpftrace_is_asked_by_its_own_option(machine: Machine, calls: Path) -> None:
    Path(f"{calls}.old").touch()
    [record], _ = run(machine, "broken { }")
    assert record.outcome == "requirement_missed"
    assert [line.split()[0] for line in calls.read_text().splitlines()] == ["--dry-run", "-d"]


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        ("dies", "failed", "could not attach"),
        ("lost", "partial", "bpftrace lost 7 events"),
        ("stays", "partial", "so that it did not print its maps"),
    ],
)
def test_a_fault_is_one_sentence(
    machine: Machine,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    status: str,
    says: str,
) -> None:
    monkeypatch.setattr(custom, "SCRIPT_STOP_SECONDS", 1.0 if text == "stays" else 30.0)
    [record], _ = run(machine, f"// {text}")
    mine = record.collectors["mine"]
    assert (record.outcome, mine["status"]) == ("ok", status)
    assert says in mine["reason"]


@pytest.mark.parametrize(("required", "outcome"), [(False, "ok"), (True, "requirement_missed")])
def test_without_bpftrace_a_required_script_stops_the_trial(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, required: bool, outcome: str
) -> None:
    for module in ("collectors.custom", "trial_collectors"):
        monkeypatch.setattr(f"pagecage.agent.{module}.find_tool", lambda _: None)
    [record], _ = run(machine, GOOD, required=required)
    assert record.outcome == outcome
    reason = record.error if required else record.collectors["mine"]["reason"]
    assert reason == "bpftrace is not installed"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("/tmp/a.bt:3:5-9: ERROR: syntax error\nx\n", "a.bt:3:5-9: syntax error"),
        ("a.bt:1:1: ERROR: one\na.bt:2:1: ERROR: two\n", "a.bt:1:1: one"),
        ("stdin:1:27: ERROR: no\n", "stdin:1:27: no"),
        ("ERROR: x: couldn't set RLIMIT_MEMLOCK for\nERROR: no probe\n~~~\n", "no probe"),
        ("WARNING: x\nERROR: Could not resolve symbol\n", "Could not resolve symbol"),
        ("\n  something else\n\n", "something else"),
        ("", "bpftrace printed no reason"),
    ],
)
def test_the_first_error_is_one_line(text: str, error: str) -> None:
    assert first_error(text) == error


def test_the_filter_holds_for_the_scope_of_the_program() -> None:
    """systemd puts the program one level below the slice, whose number the script is given."""
    found = with_trial_filter("tracepoint:a:b /cgroup == $1 && 1/ { @ = count(); }")
    assert "(cgroup == $1 || " in found
    assert "->self.parent->cgroup->kn)->id == $1) && 1/" in found
    assert with_trial_filter("cgroup == $10 cgroups==$1") == "cgroup == $10 cgroups==$1"
