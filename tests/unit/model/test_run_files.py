"""Traces beside their record: missing, cut off or altered ones are found; others are not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.errors import PagecageError
from pagecage.model.record import Record
from pagecage.model.run_files import (
    MOST_TRACE_BYTES,
    check_traces,
    read_lines,
    trace_names,
    trace_path,
)
from pagecage.runner.run_folder import RunFolder
from pagecage.verdicts.evaluate import judge_of
from tests.builders.hostile_agent import correct_stream, receive, wire
from tests.builders.plans import plan_of
from tests.fixtures.records import make_record

PLAN = plan_of()


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "runs", PLAN)
    assert receive(iter([wire(correct_stream(PLAN))]), folder, PLAN) == ""
    return folder


@pytest.fixture
def record(run: RunFolder) -> Record:
    return run.records()[0]


def trace(run: RunFolder, record: Record) -> Path:
    return run.path / record.traces["sampler"]


def test_traces_that_are_as_they_were_written(run: RunFolder, record: Record) -> None:
    assert list(record.trace_files) == [record.traces["sampler"]]
    assert check_traces(run.path, record) == []


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda file: file.unlink(), "is missing"),
    "cut off": (lambda file: file.write_bytes(file.read_bytes()[:-3]), "has 8 of 11 bytes"),
    "longer": (lambda file: file.write_bytes(file.read_bytes() + b"x"), "has 12 of 11 bytes"),
    "altered": (lambda file: file.write_bytes(b'{"t": 2.0}\n'), "was altered"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_trace_is_told(run: RunFolder, record: Record, how: str) -> None:
    damage, message = DAMAGE[how]
    damage(trace(run, record))
    assert check_traces(run.path, record) == [f"the trace {record.traces['sampler']} {message}"]


def test_a_lost_trace_is_a_contradiction(run: RunFolder, record: Record) -> None:
    measured = replace(make_record(), traces={}, trace_files=record.trace_files)
    last = {measured.trial_id: measured}
    whole = judge_of(run.path, last)(measured)
    trace(run, record).unlink()
    lost = judge_of(run.path, last)(measured)
    assert lost.consistency.verdict == "contradictory" != whole.consistency.verdict
    assert "is missing" in lost.consistency.reason
    assert lost.excluded


def test_what_a_bundle_left_out_is_not_lost(run: RunFolder, record: Record) -> None:
    """A bundle's redacted traces have other hashes, which its manifest has."""
    left_out = [{"path": record.traces["sampler"], "why": "it is not text"}]
    (run.path / "bundle.json").write_text(json.dumps({"left_out": left_out}))
    trace(run, record).unlink()
    assert check_traces(run.path, record) == []
    other = run.records()[1]
    trace(run, other).unlink()
    assert check_traces(run.path, other) == [f"the trace {other.traces['sampler']} is missing"]


def test_a_trace_behind_a_link_is_not_read(run: RunFolder, record: Record, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    trace(run, record).unlink()
    trace(run, record).symlink_to(tmp_path / "outside")
    with pytest.raises(PagecageError, match="lies outside its run"):
        trace_path(run.path, record, "sampler")


def test_a_trace_of_any_length_is_not_read(run: RunFolder, record: Record) -> None:
    os.truncate(trace(run, record), MOST_TRACE_BYTES + 1)
    with pytest.raises(PagecageError, match=r"sampler\.jsonl is longer than 1024 MiB"):
        read_lines(run.path, record, "sampler")


def test_names_of_traces_follow_from_the_collectors() -> None:
    assert trace_names(PLAN.trials[0]) == {"sampler.jsonl", "credits.jsonl", "iostat.json"}
