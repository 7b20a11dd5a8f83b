"""Collectors, scripts and programs of a definition's own."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.data.load import JudgedTrial, failed_verdicts, series_of
from pagecage.agent.collectors import custom
from pagecage.agent.collectors.custom import with_trial_filter
from pagecage.agent.collectors.tracer import first_error
from pagecage.agent.protocol import AnswerQueue, FrameStream
from pagecage.agent.session import serve
from pagecage.linux.child_processes import Interruption
from pagecage.model.collectors import OwnCollector
from pagecage.model.record import Record, read_records
from pagecage.model.trial import CommandSpec, Trial, Workload
from pagecage.verdicts.evaluate import evaluate
from tests.builders.command_trials import bare_trial
from tests.builders.known import known
from tests.builders.programs import install_first
from tests.fake_host.machine import Machine, frames_of, make_request, trace_of

ONE = '{"a": 1}'
EACH_TENTH = "while :; do n=$((n+3)); echo {n}; sleep 0.1; done"


def counting(line: str = '"{\\"queue\\": $n, \\"name\\": \\"x\\"}"') -> str:
    return f"#!/bin/sh\nn=0\n{EACH_TENTH.format(n=line)}\n"


def command(program: str, *arguments: str, **changes: Any) -> Trial:
    return bare_trial(Workload(program, arguments, "command", command=CommandSpec()), **changes)


def trial_with(seconds: float, **settings: Any) -> Trial:
    collector = OwnCollector("mine", ("{programs}/sample",), **settings)
    return command("sleep", str(seconds), own_collectors=(collector,))


def serve_with(
    machine: Machine, trial: Trial, programs: Mapping[str, str]
) -> tuple[Record, list[dict[str, Any]]]:
    """Serve a request of one trial with these programs; return its record and its frames."""
    request, out = replace(make_request(machine, trial), own_programs=programs), io.BytesIO()
    serve(request, FrameStream(out), Interruption(), AnswerQueue())
    return list(read_records(machine.records))[-1], frames_of(out.getvalue())


def run(machine: Machine, text: str, seconds: float = 0.6, **settings: Any) -> Record:
    settings = {"start_timeout_seconds": 2.0, **settings}
    return serve_with(machine, trial_with(seconds, **settings), {"sample": text})[0]


def test_its_numbers_become_responses_and_its_lines_a_trace(machine: Machine) -> None:
    record, frames = serve_with(machine, trial_with(1.0), {"sample": counting()})
    assert (record.outcome, record.error) == ("ok", None)
    mine = record.collectors["mine"]
    assert (mine["status"], mine["reason"], mine["required"]) == ("ok", None, False)
    assert (mine["gaps"], mine["fields"]) == (0, ["queue"])
    found = {name: value for name, value in record.response.items() if name.startswith("mine_")}
    assert set(found) == {f"mine_{one}_queue" for one in ("mean", "last", "delta", "max")}
    assert found["mine_last_queue"] == found["mine_max_queue"]
    delta = known(found["mine_delta_queue"])
    assert delta % 3 == 0
    assert 15 <= delta <= 33
    lines = [json.loads(line) for line in trace_of(frames, "mine.jsonl").splitlines()]
    assert lines[0]["line"] == {"queue": 3, "name": "x"}
    assert len(lines) == mine["lines"]
    assert machine.left() == []


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        ("#!/bin/sh\necho gone >&2; exit 3\n", "failed", "it failed with status 3"),
        ("#!/bin/sh\necho '{\"a\": 1}'; kill -9 $$\n", "failed", "it was killed by signal 9"),
        (f"#!/bin/sh\necho '{ONE}'; sleep 0.3; echo '{ONE}'\n", "partial", "the measured part did"),
        ("#!/bin/sh\nsleep 9\n", "failed", "it printed no line"),
        ("#!/bin/sh\necho 'no json'; sleep 9\n", "failed", "none of its 1 lines is a JSON object"),
        ("no interpreter\n", "missing", "Exec format error"),
        ("#!/does/not/exist\n", "missing", "sample"),
    ],
)
def test_a_fault_is_one_sentence_and_the_trial_goes_on(
    machine: Machine, text: str, status: str, says: str
) -> None:
    record = run(machine, text)
    assert record.outcome == "ok"
    mine = record.collectors["mine"]
    assert mine["status"] == status
    assert says in mine["reason"]
    assert not any(value for name, value in record.response.items() if "_delta_" in name)
    assert machine.left() == []


def test_the_reason_ends_with_the_programs_own_message(machine: Machine) -> None:
    record = run(machine, "#!/bin/sh\necho 'no such queue' >&2; exit 3\n")
    assert "the measured part ended: no such queue" in record.collectors["mine"]["reason"]


def test_lines_that_are_no_objects_are_counted_and_kept(machine: Machine) -> None:
    odd = "echo oops; echo '[1]'; echo; sleep 0.3"
    text = f"#!/bin/sh\necho '{ONE}'; {odd}; echo '{ONE}'; sleep 9\n"
    record, frames = serve_with(machine, trial_with(0.6), {"sample": text})
    mine = record.collectors["mine"]
    assert (mine["status"], mine["lines"]) == ("partial", 4)
    assert "2 of its 4 lines are not JSON objects, the first is 'oops'" in mine["reason"]
    assert b'"text":"oops"' in trace_of(frames, "mine.jsonl")


def test_a_flood_is_ended(machine: Machine) -> None:
    record = run(machine, f"#!/bin/sh\necho '{ONE}'\nsleep 1\nexec yes '{ONE}'\n", seconds=3.0)
    mine = record.collectors["mine"]
    assert (record.outcome, mine["status"]) == ("ok", "partial"), mine
    assert "it was ended after 16 MiB or 100000 lines" in mine["reason"]
    assert record.response["mine_last_a"] is None or record.response["mine_last_a"] == 1


def test_time_stamps_count_if_they_are_of_the_right_clock(machine: Machine) -> None:
    says = "print(json.dumps({'t': time.monotonic(), 'a': 1}), flush=True); time.sleep(.1)"
    right = f"#!/usr/bin/env python3\nimport time, json\nwhile True:\n    {says}"
    wrong = right.replace("'t': time.monotonic()", "'t': time.time()")
    assert run(machine, right).collectors["mine"]["status"] == "ok"
    mine = run(machine, wrong).collectors["mine"]
    assert mine["status"] == "partial"
    assert "is not a time of CLOCK_MONOTONIC" in mine["reason"]


def test_silences_are_gaps(machine: Machine) -> None:
    text = "#!/bin/sh\necho '{\"a\": 1}'; sleep 1.8; echo '{\"a\": 2}'; sleep 9\n"
    mine = run(machine, text, seconds=2.0, period_seconds=0.1).collectors["mine"]
    assert (mine["status"], mine["gaps"]) == ("partial", 1)
    assert "it has a silence of over 1.1 s, up to" in mine["reason"]
    assert run(machine, text, seconds=2.0, period_seconds=0.0).collectors["mine"]["status"] == "ok"


def test_it_knows_the_trial_and_its_cpu_time_is_in_the_record(machine: Machine) -> None:
    text = (
        "#!/usr/bin/env python3\nimport json, os, time\n"
        "print(json.dumps({'a': 1, 'in': os.environ['PAGECAGE_CGROUP'], "
        "'on': os.environ['PAGECAGE_DISK_NUMBER']}), flush=True)\n"
        "while time.process_time() < 0.3: pass\n"
        "print('{\"a\": 2}', flush=True)\ntime.sleep(9)\n"
    )
    record, frames = serve_with(machine, trial_with(3.0), {"sample": text})
    mine = record.collectors["mine"]
    assert mine["cpu_seconds"] >= 0.2
    assert mine["seconds"] >= mine["cpu_seconds"]
    first = json.loads(trace_of(frames, "mine.jsonl").splitlines()[0])["line"]
    assert first["on"] == "259:7"
    assert str(machine.cgroups) in first["in"]


def test_processes_that_it_started_are_ended_with_it(machine: Machine) -> None:
    text = "#!/bin/sh\necho '{\"a\": 1}'\n(trap '' TERM; sleep 8765) &\nsleep 8765\n"
    run(machine, text)
    assert machine.left() == []


@pytest.mark.parametrize(("required", "excluded"), [(True, True), (False, False)])
def test_a_trial_counts_without_its_data_unless_they_are_required(
    machine: Machine, required: bool, excluded: bool
) -> None:
    record = run(machine, "#!/bin/sh\nexit 3\n", required=required)
    reasons = [one for one in evaluate(record).reasons if "collector" in one]
    assert bool(reasons) is excluded
    if excluded:
        assert reasons[0].startswith("required collector mine failed: it failed with status 3")


def test_a_trial_without_required_data_is_included_by_name_alone(machine: Machine) -> None:
    record = run(machine, "#!/bin/sh\nexit 3\n", required=True)
    trial = JudgedTrial(record, evaluate(record), series_of([]))
    assert "collectors" in failed_verdicts(trial)


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
    install_first(folder / "bpftrace", BPFTRACE, monkeypatch)
    monkeypatch.setenv("FAKE_CALLS", str(file))
    return file


def scripted(**settings: Any) -> Trial:
    script = OwnCollector("mine", ("{programs}/mine.bt",), False, 0.0, 5.0, True)
    return command("sleep", "0.5", own_collectors=(replace(script, **settings),))


def run_scripts(
    machine: Machine, text: str, count: int = 1, **settings: Any
) -> tuple[list[Record], list[Any]]:
    trials = [replace(scripted(**settings), trial_id=f"r{n}_tight") for n in range(1, count + 1)]
    request = replace(make_request(machine, *trials), own_programs={"mine.bt": text})
    out = io.BytesIO()
    serve(request, FrameStream(out), Interruption(), AnswerQueue())
    return list(read_records(machine.records)), frames_of(out.getvalue())


def test_its_maps_become_responses(machine: Machine, calls: Path) -> None:
    [record], frames = run_scripts(machine, GOOD)
    mine = record.collectors["mine"]
    assert (record.outcome, mine["status"], mine["reason"]) == ("ok", "ok", None)
    assert (mine["fields"], mine["lost_events"]) == (["n"], 0)
    assert record.response["mine_last_n"] == 99, "the maps that are printed at the exit"
    assert known(record.response["mine_delta_n"]) > 90
    trace = trace_of(frames, "mine.jsonl")
    assert b"attached_probes" in trace
    assert b"PAGECAGE_TICK" not in trace
    argv = calls.read_text().splitlines()[-1].split()
    assert argv[:2] == ["-f", "json"]
    assert argv[3:] == [argv[3], str(259 << 20 | 7)]
    assert machine.left() == []


def test_a_script_is_checked_once_for_all_trials(machine: Machine, calls: Path) -> None:
    records, _ = run_scripts(machine, GOOD, count=2)
    assert [record.outcome for record in records] == ["ok", "ok"]
    starts = [line.split()[0] for line in calls.read_text().splitlines()]
    assert starts == ["--dry-run", "-f", "-f"]


def test_a_broken_script_is_named_and_no_trial_runs(machine: Machine, calls: Path) -> None:
    records, _ = run_scripts(machine, "broken { }", count=2)
    assert {record.outcome for record in records} == {"requirement_missed"}
    reason = "bpftrace cannot run mine.bt: mine.bt:1:1-26: tracepoint not found: syscalls:broken"
    assert {record.error for record in records} == {reason}
    assert len(calls.read_text().splitlines()) == 1


def test_an_older_bpftrace_is_asked_by_its_own_option(machine: Machine, calls: Path) -> None:
    Path(f"{calls}.old").touch()
    [record], _ = run_scripts(machine, "broken { }")
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
    [record], _ = run_scripts(machine, f"// {text}")
    mine = record.collectors["mine"]
    assert (record.outcome, mine["status"]) == ("ok", status)
    assert says in mine["reason"]


@pytest.mark.parametrize(("required", "outcome"), [(False, "ok"), (True, "requirement_missed")])
def test_without_bpftrace_a_required_script_stops_the_trial(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, required: bool, outcome: str
) -> None:
    for module in ("collectors.custom", "trial_collectors"):
        monkeypatch.setattr(f"pagecage.agent.{module}.find_tool", lambda _: None)
    [record], _ = run_scripts(machine, GOOD, required=required)
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


SAYS = {"say": "#!/bin/sh\ncp $1 $2\n", "said": "hello"}


def test_a_program_runs_with_another_as_its_argument(machine: Machine, tmp_path: Path) -> None:
    trial = command("{programs}/say", "{programs}/said", str(tmp_path / "out"))
    record, _ = serve_with(machine, trial, SAYS)
    assert (record.outcome, record.error) == ("ok", None)
    assert known(record.workload.argv)[0] == f"{machine.spool}/programs/say"
    assert record.workload.sha256
    assert (tmp_path / "out").read_text() == "hello"
    assert machine.left() == []


@pytest.mark.parametrize("programs", [{}, {"other": "#!/bin/sh\n"}])
def test_programs_of_an_earlier_request_are_gone(
    machine: Machine, programs: dict[str, str]
) -> None:
    trial = command("{programs}/say", "/dev/null", "/dev/null")
    serve_with(machine, trial, SAYS)
    record, _ = serve_with(machine, trial, programs)
    assert record.outcome == "requirement_missed"
    assert f"no program '{machine.spool}/programs/say'" in (record.error or "")
