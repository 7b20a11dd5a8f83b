"""Run folders: written once, appended to, found again; their attempts, read line by line."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.errors import HostError, PagecageError
from pagecage.model import record as records
from pagecage.model.plan import Plan
from pagecage.model.record import append_record, read_records
from pagecage.process import PIPE, spawn
from pagecage.runner.run_folder import RecordLog, RunFolder, attempt_of, find_run, new_run_id
from tests.builders.campaigns import Run
from tests.builders.known import known
from tests.builders.plans import BASE, CHOICES, plan_of
from tests.fixtures.records import make_record
from tests.tree import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs", plan_of())


@pytest.fixture
def plan() -> Plan:
    return plan_of()


def test_a_run_is_named_by_time_experiment_and_host() -> None:
    assert re.fullmatch(r"\d{8}T\d{6}Z-smoke-vm", new_run_id("smoke", "vm"))


def test_a_new_folder_holds_its_plan_and_places(folder: RunFolder, plan: Plan) -> None:
    assert sorted(path.name for path in folder.path.iterdir()) == ["facts", "plan.json", "trials"]
    assert folder.plan().trials == plan.trials
    assert folder.plan().sha256 == plan.sha256


def test_latest_points_at_the_newest(folder: RunFolder, tmp_path: Path) -> None:
    run_id, plan = "20261121T110000Z-test-vm", plan_of()
    newer = Plan(run_id, plan.trials, {**plan.document, "run_id": run_id})
    RunFolder.create(tmp_path / "runs", newer)
    assert (tmp_path / "runs/latest-test").resolve().name == run_id
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == [folder.path.name, run_id, "latest-test"]


def test_a_run_is_never_written_over(folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(PagecageError, match="two runs in one second"):
        RunFolder.create(tmp_path / "runs", plan_of())


def test_a_plan_that_was_changed_is_refused(folder: RunFolder) -> None:
    path = folder.path / "plan.json"
    data = json.loads(path.read_text())
    data["trials"][0]["max_seconds"] = 1.0
    path.write_text(json.dumps(data))
    with pytest.raises(PagecageError, match=r"plan\.json was changed after it was written"):
        folder.plan()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", "null", '{"run_id": "x", "trials": [{}]}', "\xff"]
)
def test_what_is_no_plan_is_refused(folder: RunFolder, content: str) -> None:
    (folder.path / "plan.json").write_text(content, encoding="latin-1")
    says = r"plan\.json (is not valid JSON|is not a JSON object|lacks)"
    with pytest.raises(PagecageError, match=says):
        folder.plan()


def test_only_trials_without_an_answer_remain(folder: RunFolder, plan: Plan) -> None:
    first, second = plan.trials
    assert folder.remaining(plan) == plan.trials
    folder.append(make_record(trial_id=first.trial_id, outcome="ok"))
    assert folder.remaining(plan) == (second,)
    folder.append(make_record(trial_id=second.trial_id, outcome="failed"))
    assert folder.remaining(plan) == (second,)
    folder.append(make_record(trial_id=second.trial_id, outcome="oom_killed", attempt=2))
    assert folder.remaining(plan) == ()


def test_the_last_record_of_a_trial_counts(folder: RunFolder, plan: Plan) -> None:
    first = plan.trials[0]
    for attempt, outcome in enumerate(("failed", "ok"), start=1):
        folder.append(make_record(trial_id=first.trial_id, outcome=outcome, attempt=attempt))
    assert folder.last_records()[first.trial_id].outcome == "ok"
    assert folder.next_attempts() == {first.trial_id: 3}


def test_a_cut_off_last_line_costs_that_record_alone(folder: RunFolder, plan: Plan) -> None:
    first, second = plan.trials
    folder.append(make_record(trial_id=first.trial_id))
    whole = folder.records_path.read_bytes()
    following = whole.replace(first.trial_id.encode(), second.trial_id.encode())
    folder.records_path.write_bytes(whole + following[:200])
    assert folder.remaining(plan) == (second,)
    folder.append(make_record(trial_id=second.trial_id))
    assert folder.remaining(plan) == ()


def test_a_trace_has_a_folder_of_its_trial(folder: RunFolder) -> None:
    path = folder.trace_path("r1_x", 2, "sampler.jsonl")
    assert path == folder.path / "trials/r1_x.2/sampler.jsonl"
    assert path.parent.is_dir()


@pytest.mark.parametrize(("trial_id", "name"), [("r1", "../../x"), ("../r1", "x"), ("r1", "/x")])
def test_a_trace_stays_within_its_run(folder: RunFolder, trial_id: str, name: str) -> None:
    with pytest.raises((PagecageError, ValueError), match="path"):
        folder.trace_path(trial_id, 1, name)
    assert list((folder.path / "trials").iterdir()) == []


def test_facts_are_kept_by_machine_state(folder: RunFolder) -> None:
    boot_id = "00000000-0000-4000-8000-00000000000b"
    for state in (3, None):
        folder.add_facts({"boot_id": boot_id}, state)
    names = sorted(path.name for path in (folder.path / "facts").iterdir())
    assert names == [f"{boot_id}-3.json", f"{boot_id}-None.json"]


@pytest.mark.parametrize("way", ["id", "experiment", "path"])
def test_a_run_is_found(folder: RunFolder, tmp_path: Path, way: str) -> None:
    names = {"id": folder.path.name, "experiment": BASE.name, "path": str(folder.path)}
    assert find_run(tmp_path / "runs", names[way]).path == folder.path


def test_a_run_that_is_not_there_names_what_is(folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(PagecageError, match="there is no run 'tset'") as caught:
        find_run(tmp_path / "runs", "tset")
    assert "test" in caught.value.hint


def test_before_the_first_run_nothing_is_found(tmp_path: Path) -> None:
    with pytest.raises(PagecageError) as caught:
        find_run(tmp_path / "runs", CHOICES.host)
    assert "pagecage run" in caught.value.hint


def test_a_folder_that_cannot_be_made_whole_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HostError, match="cannot be created: No space left on device"):
        RunFolder.create(tmp_path / "runs", plan_of())
    assert list((tmp_path / "runs").iterdir()) == []


_WRITER = """import sys
from pathlib import Path
from pagecage.runner.run_folder import RunFolder
with RunFolder(Path(sys.argv[1])).locked():
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_two_writers_of_a_run_exclude_each_other(folder: RunFolder) -> None:
    """The kernel releases the lock of a killed writer. Nothing is made in the folder for it."""
    before = sorted(folder.path.iterdir())
    writer = spawn([sys.executable, "-c", _WRITER, folder.path], stdin=PIPE, stdout=PIPE, cwd=ROOT)
    assert known(writer.stdout).readline() == b"locked\n"
    with pytest.raises(HostError, match="another process writes to the run"):
        folder.locked().__enter__()
    writer.kill()
    writer.wait()
    with folder.locked():
        assert sorted(folder.path.iterdir()) == before


def test_a_campaign_locks_its_run(tmp_path: Path) -> None:
    run = Run(tmp_path)
    host = run.host()
    with (
        RunFolder(run.folder.path).locked(),
        pytest.raises(HostError, match="another process writes to the run"),
    ):
        run.go(host)
    assert run.records() == []
    assert host.calls == ["stop"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.jsonl"


def line_of(path: Path, **changes: Any) -> bytes:
    append_record(path, make_record(**changes))
    return path.read_bytes().splitlines(keepends=True)[-1]


def test_without_a_file_there_are_none(path: Path) -> None:
    assert RecordLog(path).attempts() == []


def test_it_reads_each_record_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    original = records.record_from_json

    def count(data: Any, where: str = "record") -> Any:
        parsed.append(data["trial_id"])
        return original(data, where)

    monkeypatch.setattr(records, "record_from_json", count)
    log = RecordLog(path)
    for number in range(5):
        append_record(path, make_record(trial_id=f"t{number}"))
        assert [one.trial_id for one in log.attempts()] == [f"t{n}" for n in range(number + 1)]
    assert parsed == [f"t{number}" for number in range(5)]


@given(cuts=st.lists(st.integers(0, 12_000), max_size=8))
def test_wherever_it_looks_it_agrees_with_the_whole_file(
    cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A writer may be seen at any byte."""
    path = tmp_path_factory.mktemp("cut") / "records.jsonl"
    lines = [line_of(path, trial_id=f"t{n}", outcome="ok") for n in range(3)]
    whole = b"".join(lines)
    log = RecordLog(path)
    path.write_bytes(b"")
    for cut in [*sorted(cut % len(whole) for cut in cuts), len(whole)]:
        with path.open("r+b") as file:
            file.write(whole[:cut])
        assert log.attempts() == [attempt_of(record) for record in read_records(path)]


def test_another_or_a_shorter_file_is_read_anew(path: Path) -> None:
    log = RecordLog(path)
    first, second = line_of(path, trial_id="first"), line_of(path, trial_id="second")
    assert [one.trial_id for one in log.attempts()] == ["first", "second"]
    path.write_bytes(first)
    assert [one.trial_id for one in log.attempts()] == ["first"]
    path.with_suffix(".new").write_bytes(second + first)
    path.with_suffix(".new").replace(path)
    assert [one.trial_id for one in log.attempts()] == ["second", "first"]


def test_a_record_that_was_changed_is_an_error_each_time(path: Path) -> None:
    log = RecordLog(path)
    path.write_bytes(line_of(path, trial_id="first").replace(b'"first"', b'"other"'))
    for _ in range(2):
        with pytest.raises(PagecageError, match="was changed after it was written"):
            log.attempts()


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("where", [1, 60, 200])
def test_a_damaged_line_is_named_by_every_reader(path: Path, number: int, where: int) -> None:
    """One byte that breaks the JSON in the middle of the file; its newline is there."""
    lines = [line_of(path, trial_id=f"t{n}") for n in range(3)]
    damaged = lines[number - 1]
    lines[number - 1] = damaged[:where] + b"\x07" + damaged[where + 1 :]
    path.write_bytes(b"".join(lines))
    for read in (RecordLog(path).attempts, lambda: list(read_records(path))):
        with pytest.raises(PagecageError, match=rf"records\.jsonl:{number} is damaged") as caught:
            read()
        assert f"sed -i {number}d {path}" in caught.value.hint
    append_record(path, make_record(trial_id="after"))
    with pytest.raises(PagecageError, match=f":{number} is damaged"):
        RecordLog(path).attempts()
