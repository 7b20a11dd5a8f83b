"""Collectors of a definition beside a trial: their data, their faults, and their end."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from analysis.data.load import JudgedTrial, failed_verdicts, series_of
from pagecage.agent.protocol import AnswerQueue, FrameStream
from pagecage.agent.session import serve
from pagecage.linux.child_processes import Interruption
from pagecage.model.collectors import OwnCollector
from pagecage.model.record import Record, read_records
from pagecage.model.trial import CommandSpec, Trial, Workload
from pagecage.verdicts.evaluate import evaluate
from tests.builders.command_trials import MEMORY
from tests.fake_host.machine import Machine, frames_of, make_request, make_trial

ONE = '{"a": 1}'
EACH_TENTH = "while :; do n=$((n+3)); echo {n}; sleep 0.1; done"


def counting(line: str = '"{\\"queue\\": $n, \\"name\\": \\"x\\"}"') -> str:
    return f"#!/bin/sh\nn=0\n{EACH_TENTH.format(n=line)}\n"


def trial_with(seconds: float, **settings: Any) -> Trial:
    collector = OwnCollector("mine", ("{programs}/sample",), **settings)
    return make_trial(
        workload=Workload("sleep", (str(seconds),), "command", command=CommandSpec()),
        cage=MEMORY,
        collectors=(),
        dataset=None,
        cache="any",
        own_collectors=(collector,),
    )


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
    assert found["mine_delta_queue"] % 3 == 0
    assert 15 <= found["mine_delta_queue"] <= 33
    [trace] = [frame for frame in frames if frame.get("name") == "mine.jsonl"]
    lines = [json.loads(line) for line in trace["body"].splitlines()]
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
    reason = run(machine, "#!/bin/sh\necho 'no such queue' >&2; exit 3\n").collectors["mine"][
        "reason"
    ]
    assert "the measured part ended: no such queue" in reason


def test_lines_that_are_no_objects_are_counted_and_kept(machine: Machine) -> None:
    odd = "echo oops; echo '[1]'; echo; sleep 0.3"
    text = f"#!/bin/sh\necho '{ONE}'; {odd}; echo '{ONE}'; sleep 9\n"
    record, frames = serve_with(machine, trial_with(0.6), {"sample": text})
    mine = record.collectors["mine"]
    assert (mine["status"], mine["lines"]) == ("partial", 4)
    assert "2 of its 4 lines are not JSON objects, the first is 'oops'" in mine["reason"]
    [trace] = [frame for frame in frames if frame.get("name") == "mine.jsonl"]
    assert b'"text":"oops"' in trace["body"]


def test_a_flood_is_ended(machine: Machine) -> None:
    record = run(
        machine, "#!/bin/sh\necho '{\"a\": 1}'\nsleep 1\nexec yes '{\"a\": 1}'\n", seconds=3.0
    )
    mine = record.collectors["mine"]
    assert (record.outcome, mine["status"]) == ("ok", "partial"), mine
    assert "it was ended after 16 MiB or 100000 lines" in mine["reason"]
    assert record.response["mine_last_a"] is None or record.response["mine_last_a"] == 1


def test_time_stamps_count_if_they_are_of_the_right_clock(machine: Machine) -> None:
    stamped = "#!/usr/bin/env python3\nimport time, json\nwhile True:\n    "
    right = (
        stamped + "print(json.dumps({'t': time.monotonic(), 'a': 1}), flush=True); time.sleep(.1)"
    )
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
    [trace] = [frame for frame in frames if frame.get("name") == "mine.jsonl"]
    first = json.loads(trace["body"].splitlines()[0])["line"]
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
