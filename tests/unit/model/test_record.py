"""Records: one line each, neither lost nor merged when a writer is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.errors import PagecageError
from pagecage.model.json_codec import TRIAL_ID
from pagecage.model.record import (
    FINAL_OUTCOMES,
    OUTCOMES,
    RECORD_VERSION,
    Record,
    append_record,
    read_records,
    record_from_json,
    record_to_json,
)
from tests.fixtures.records import make_record, plain_record

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(-1e300, 1e300) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
tables = st.dictionaries(st.text(max_size=8), plain, max_size=4)
timings = st.fixed_dictionaries(
    {
        "name": st.text(),
        **dict.fromkeys(
            ("start_wall_seconds", "start_monotonic_seconds", "seconds"), st.floats(0, 1e9)
        ),
    }
)
missed = st.fixed_dictionaries(dict.fromkeys(("requirement", "reason", "hint"), st.text()))
records = st.builds(
    make_record,
    trial_id=st.from_regex(TRIAL_ID, fullmatch=True),
    outcome=st.sampled_from(OUTCOMES),
    error=st.none() | st.text(),
    attempt=st.integers(1, 9),
    counters=st.fixed_dictionaries({}, optional={"before": tables, "totals": tables}),
    cage=st.fixed_dictionaries(
        {}, optional={"name": st.text(), "driver": tables, "external": st.none() | tables}
    ),
    samples=st.lists(tables, max_size=3),
    phases=st.lists(timings, max_size=2),
    missed_requirements=st.lists(missed, max_size=2),
)


@given(records)
def test_a_record_travels_unchanged(record: Record) -> None:
    assert record_from_json(json.loads(json.dumps(record_to_json(record)))) == record


@given(records)
def test_a_line_is_one_line(record: Record) -> None:
    assert "\n" not in json.dumps(record_to_json(record))


def test_appended_records_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    for attempt in (1, 2, 3):
        append_record(path, make_record(attempt=attempt, error="zwölf\u2028\x85lines"))
    assert [record.attempt for record in read_records(path)] == [1, 2, 3]
    assert path.read_bytes().count(b"\n") == 3


def test_a_missing_file_has_no_records(tmp_path: Path) -> None:
    assert list(read_records(tmp_path / "none.jsonl")) == []


@pytest.fixture(scope="module")
def whole_line(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("line") / "records.jsonl"
    append_record(path, make_record(trial_id="cut"))
    return path.read_bytes()


@given(cut=st.integers(0, 5000))
def test_a_line_cut_off_anywhere_swallows_nothing(
    cut: int, whole_line: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A kill leaves the beginning of a line, and the next record gets a line of its own."""
    path = tmp_path_factory.mktemp("cut") / "records.jsonl"
    append_record(path, make_record(trial_id="first"))
    with path.open("ab") as file:
        file.write(whole_line[: min(cut, len(whole_line) - 2)])
    append_record(path, make_record(trial_id="after"))
    assert [record.trial_id for record in read_records(path)] == ["first", "after"]


def test_a_line_that_lacks_only_its_newline_counts(tmp_path: Path, whole_line: bytes) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(whole_line[:-1])
    append_record(path, make_record(trial_id="after"))
    assert [record.trial_id for record in read_records(path)] == ["cut", "after"]


@pytest.mark.parametrize(
    "tail", [b"\0" * 512, b'{"record_version": 1, "run', b"\xff\xfe{", b'{"a": "\xc3']
)
def test_leftovers_of_a_crash_are_skipped(tmp_path: Path, whole_line: bytes, tail: bytes) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(whole_line + tail)
    assert [record.trial_id for record in read_records(path)] == ["cut"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"surprise": 1}, "unknown key 'surprise'"),
        ({"outcome": "splendid"}, "unknown outcome 'splendid'"),
        ({"record_version": RECORD_VERSION + 1}, f"format version {RECORD_VERSION + 1}"),
        ({"record_version": "1"}, "not a pagecage record"),
        ({"record_version": None}, "not a pagecage record"),
    ],
)
def test_an_unknown_file_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PagecageError) as caught:
        record_from_json({**plain_record(), **change}, "records.jsonl:7")
    assert caught.value.message.startswith("records.jsonl:7")
    assert message in caught.value.message


@pytest.mark.parametrize(
    "line", ["12", "[]", "null", '"x"', "{}", '{"record_version": 1, "outcome": "ok"}']
)
def test_json_that_is_not_a_record_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "records.jsonl").write_text(f"\n{line}\n")
    with pytest.raises(PagecageError, match=r"records\.jsonl:2"):
        list(read_records(tmp_path / "records.jsonl"))


def test_final_outcomes() -> None:
    assert set(OUTCOMES) > FINAL_OUTCOMES
    finals = {outcome for outcome in OUTCOMES if make_record(outcome=outcome).is_final}
    assert finals == FINAL_OUTCOMES
    assert not finals & {"failed", "not_prepared", "interrupted"}
