"""The attempts of a run folder, read line by line as the records are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.errors import PagecageError
from pagecage.model import record as records
from pagecage.model.record import append_record, read_records
from pagecage.runner.run_folder import RecordLog, attempt_of
from tests.fixtures.records import make_record


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
