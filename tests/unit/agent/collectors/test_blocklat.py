"""The block layer's histograms of one disk, and the quantiles of an interval."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.collectors.blocklat import (
    BlockLatencyTracer,
    program,
    quantile,
    responses_of,
    row_of,
)
from pagecage.agent.system.child_processes import ToolProcesses

MAPS = {
    "@bio_write": {
        "254,16": [{"min": 96, "max": 103, "count": 4}, {"min": 104, "max": 111, "count": 0}],
        "8,0": [{"min": 1, "max": 1, "count": 99}],
    },
    "@request_write": {"254,16": [{"min": 48, "max": 51, "count": 2}]},
    "@pauses": {"254:16": 3, "8:0": 7},
    "@paused_ms": {"254:16": 250, "8:0": 1},
}


def row(t: float, count: int, paused_ms: int = 0, us: int = 103) -> dict[str, Any]:
    """Return a tick with `count` writes of `us` microseconds."""
    counts = [{"us": us, "count": count}] if count else []
    return {
        "t": t,
        "bio_write_us": counts,
        "block_write_us": counts,
        "pauses": 1,
        "paused_ms": paused_ms,
    }


def test_one_disk_is_selected_without_empty_buckets() -> None:
    assert row_of(MAPS, "254:16") == {
        "bio_write_us": [{"us": 103, "count": 4}],
        "block_write_us": [{"us": 51, "count": 2}],
        "pauses": 3,
        "paused_ms": 250,
    }
    assert row_of({}, "254:16") == {
        "bio_write_us": [],
        "block_write_us": [],
        "pauses": 0,
        "paused_ms": 0,
    }


def test_only_writes_of_the_measured_part_count() -> None:
    rows = [row(0, 5), row(1, 7, 10), row(2, 17, 1010), row(3, 18, 1500), row(4, 99, 9000, us=5000)]
    responses = responses_of(rows, start=1.2, end=2.9)
    assert responses["throttled_seconds"] == pytest.approx(1.49)
    assert responses["bio_write_p99_us"] == responses["block_write_p50_us"] == 103


def test_an_interval_without_writes_has_no_latency() -> None:
    responses = responses_of([row(0, 5, 10), row(9, 5, 10)], 1, 2)
    assert responses["throttled_seconds"] == 0
    assert {value for name, value in responses.items() if name.endswith("_us")} == {None}


@pytest.mark.parametrize("rows", [[], [row(5, 1)], [row(0, 1)]])
def test_a_trace_that_does_not_span_the_interval_has_no_figures(rows: list[dict[str, Any]]) -> None:
    assert responses_of(rows, 1, 2) == {}


@given(
    st.dictionaries(st.integers(1, 10**7).map(float), st.integers(1, 50), min_size=1, max_size=20)
)
def test_a_quantile_is_a_value_that_occurs_and_orders(counts: dict[float, int]) -> None:
    every = [us for us, count in counts.items() for _ in range(count)]
    assert quantile(counts, 0.5) == statistics.median_low(every)
    low, high = quantile(counts, 0.5), quantile(counts, 0.99)
    assert low is not None
    assert high is not None
    assert low <= high <= max(counts)


def test_no_counts_have_no_quantile() -> None:
    assert quantile({}, 0.5) is None
    assert quantile({7.0: 0}, 0.5) is None


def test_the_trace_is_written_and_its_rows_are_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin/bpftrace"
    hist = json.dumps({"type": "hist", "data": {"@bio_write": MAPS["@bio_write"]}})
    pauses = json.dumps({"type": "map", "data": {"@paused_ms": MAPS["@paused_ms"]}})
    now = "python3 -S -c 'import time; print(time.clock_gettime_ns(time.CLOCK_BOOTTIME))'"
    tick = f'printf \'{{"type": "printf", "data": "TICK %s\\\\n"}}\\n\' "$({now})"'
    tool.write_text(
        f"#!/bin/sh\ntrap 'exit 0' INT\nwhile :; do\necho '{hist}'\necho '{pauses}'\n{tick}\nsleep"
        " 0.1\ndone\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    tracer = BlockLatencyTracer(tmp_path, ToolProcesses(tmp_path))
    try:
        tracer.start()
        tracer.wait_for_tick()
        outcome, rows = tracer.excerpt("254:16", 0.0, tmp_path / "blocklat.jsonl")
    finally:
        tracer.stop()
    assert (tracer.reason, outcome.status) == (None, "ok")
    written = [json.loads(line) for line in (tmp_path / "blocklat.jsonl").read_text().splitlines()]
    assert [r["t"] for r in written] == [r["t"] for r in rows]
    assert written[0]["bio_write_us"] == rows[0]["bio_write_us"] == [{"us": 103, "count": 4}]
    assert written[0]["paused_ms"] == 250
    assert (tmp_path / "blocklat.bt").read_text() == program()


def test_the_program_counts_in_the_kernel() -> None:
    assert program().count("printf") == 1
    assert "interval:ms:250" in program()
