"""The command line over runs that stand on the disk: resumed, shown, interrupted, refused."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from pagecage.model.record import append_record
from pagecage.process import PIPE, spawn
from tests.checkout import ANALYSIS, PLAIN, environment, pagecage, refused
from tests.fixtures.records import make_record


@pytest.fixture
def planned(top: Path) -> Path:
    """A run that was planned and never begun."""
    data = json.loads(pagecage(top, "run", "smoke", "--dry-run", *PLAIN, "--json").stdout)
    folder: Path = top / "runs" / data["run_id"]
    (folder / "trials").mkdir(parents=True)
    (folder / "facts").mkdir()
    (folder / "plan.json").write_text(json.dumps(data))
    (top / "runs/latest-smoke").symlink_to(data["run_id"])
    return folder


def finish(planned: Path) -> None:
    """Write a record of each trial of the run."""
    data = json.loads((planned / "plan.json").read_text())
    for trial in data["trials"]:
        record = make_record(trial_id=trial["trial_id"], plan_sha256=data["plan_sha256"])
        append_record(planned / "records.jsonl", record)


def not_resumed(top: Path) -> str:
    done = pagecage(top, "run", "smoke", "--resume", "--yes")
    assert done.status == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_definition_that_changed_is_not_resumed(top: Path, planned: Path) -> None:
    path = top / "experiments/smoke.toml"
    path.write_text(path.read_text() + "\n# changed\n")
    assert "experiments/smoke.toml has changed since" in not_resumed(top)


def test_a_plan_that_was_changed_is_not_resumed(top: Path, planned: Path) -> None:
    path = planned / "plan.json"
    path.write_text(path.read_text().replace('"repeat": 1', '"repeat": 9', 1))
    assert "plan.json was changed after it was written" in not_resumed(top)


@pytest.mark.parametrize(
    "line", ["[]", '{"record_version": 99}', '{"record_version": 1, "surprise": 1}']
)
def test_records_that_are_none_are_refused(top: Path, planned: Path, line: str) -> None:
    (planned / "records.jsonl").write_text(f"{line}\n")
    assert "records.jsonl:1" in not_resumed(top)


def test_a_finished_run_is_not_run_again(top: Path, planned: Path) -> None:
    finish(planned)
    done = pagecage(top, "run", "smoke", "--resume", "--yes")
    assert done.status == 0
    assert "0 of 4 trials to run" in done.stderr
    assert "starting the host" not in done.stderr
    assert done.stdout == f"analysis render {planned}\n"


@pytest.mark.parametrize(
    ("option", "shown"),
    [("--json", "analysis show {} json"), ("", "analysis show {}"), ("--html", "{}/report.html")],
)
def test_showing_is_left_to_the_analysis(top: Path, planned: Path, option: str, shown: str) -> None:
    done = pagecage(top, "show", "smoke", *option.split())
    assert (done.status, done.stdout) == (0, f"{shown.format(planned)}\n")


@pytest.mark.parametrize("asking", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_being_asked_to_end_is_no_traceback(top: Path, asking: signal.Signals) -> None:
    """Held at a pipe for its definition; where it is when the signal comes does not matter."""
    os.mkfifo(top / "experiments/held.toml")
    argv = [sys.executable, "-m", "pagecage.cli.main", "run", "held", *PLAIN]
    process = spawn(argv, stdout=PIPE, stderr=PIPE, cwd=top, env=environment(top), new_session=True)
    assert process.stdout is not None
    assert process.stderr is not None
    wait_until_held(process.pid)
    process.send_signal(asking)
    said = process.stderr.read().decode()
    assert process.wait(30) == 130
    assert process.stdout.read() == b""
    assert said == "interrupted\n"
    process.stdout.close()
    process.stderr.close()


def wait_until_held(pid: int) -> None:
    """Until the process waits for somebody to write into its pipe."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        waits_in = Path(f"/proc/{pid}/wchan").read_text()
        if "fifo" in waits_in or "wait_for_partner" in waits_in:
            return
        time.sleep(0.05)
    time.sleep(1.0)


def test_a_reader_that_goes_away_is_no_traceback(top: Path) -> None:
    words = ("run", "constrained-random", "--dry-run", *PLAIN, "--repeats", "200")
    argv = [sys.executable, "-m", "pagecage.cli.main", *words]
    process = spawn(argv, stdout=PIPE, stderr=PIPE, cwd=top, env=environment(top))
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    said = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(60) != 0
    assert "Traceback" not in said
    assert "Exception ignored" not in said


def test_a_run_is_compared_with_its_baseline(top: Path, planned: Path) -> None:
    finish(planned)
    (top / "old.json").write_text("{}")
    gate = "--fail-if=device_reads > +5%"
    include = "--include=host_quiet"
    words = ("run", "smoke", "--resume", "--yes", "--baseline", "old.json", gate, include)
    (top / "analysis/results.py").write_text(f"""{ANALYSIS}
def check_gates(folder, fail_if):
    pass
def compared(folders, fail_if, include, *_, **__):
    return " ".join(["compare", *map(str, folders), *fail_if, *include]) + "\\n", 5
""")
    done = pagecage(top, *words)
    assert done.status == 5
    assert done.stdout.splitlines() == [
        f"analysis render {planned}",
        f"compare {top}/old.json {planned} device_reads > +5% host_quiet",
    ]


def test_a_run_comes_before_a_file_of_its_name(top: Path, planned: Path) -> None:
    """A project's experiment has the name of its program, a file that is not a baseline."""
    (top / "smoke").write_text("#!/bin/sh\n")
    judging = "def judged(run, *_):\n    return f'judged {run}\\n', 0\n"
    (top / "analysis/results.py").write_text(judging)
    done = pagecage(top, "compare", "smoke", "--fail-if", "time < 1s")
    assert done.stdout == f"judged {planned}\n", done.stderr


def test_trials_are_included_only_in_a_comparison(top: Path) -> None:
    refused(top, "run", "smoke", "--include", "host_quiet")


def test_a_baseline_that_is_refused_is_refused_before_the_run(top: Path, planned: Path) -> None:
    (top / "old.json").write_text("{}")
    (top / "analysis/results.py").write_text("""
from pagecage.errors import PagecageError
def check_gates(folder, fail_if):
    raise PagecageError("old.json is not a baseline", "pagecage compare RUN --save-baseline FILE")
""")
    done = pagecage(top, "run", "smoke", "--resume", "--yes", "--baseline", "old.json")
    assert (done.status, "old.json is not a baseline" in done.stderr) == (2, True)
    assert "trials to run" not in done.stderr
