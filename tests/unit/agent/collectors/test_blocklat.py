"""The block layer's histograms of one disk, and the quantiles of an interval."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent import facts
from pagecage.agent.collectors import blocklat
from pagecage.agent.collectors.blocklat import (
    PARTS,
    BlockLatencyTracer,
    quantile,
    responses_of,
    row_of,
)
from pagecage.agent.collectors.tracer import TracerProgram, programs
from pagecage.linux.child_processes import ToolProcesses
from tests.fake_host import trees

MAPS = {
    "@bio_write": {"254,16,2,25": 4, "254,16,0,31": 1, "8,0,0,1": 99},
    "@request_write": {"254,16,1,25": 2},
    "@pauses": {"254:16": 3, "8:0": 7},
    "@paused_ms": {"254:16": 250, "8:0": 1},
}
EVERY = TracerProgram("", ("@bio_write", "@request_write", "@pauses", "@paused_ms"), ())


def row(t: float, count: int, paused_ms: int = 0, us: int = 103) -> dict[str, Any]:
    """Return a tick with `count` writes of `us` microseconds."""
    counts = [{"us": us, "count": count}] if count else []
    times = {"bio_write_us": counts, "block_write_us": counts}
    return {"t": t, **times, "pauses": 1, "paused_ms": paused_ms}


def test_one_disk_is_selected() -> None:
    assert row_of(MAPS, "254:16", EVERY) == {
        "bio_write_us": [{"us": 31, "count": 1}, {"us": 103, "count": 4}],
        "block_write_us": [{"us": 51, "count": 2}],
        "pauses": 3,
        "paused_ms": 250,
    }
    none = {"bio_write_us": [], "block_write_us": [], "pauses": 0, "paused_ms": 0}
    assert row_of({}, "254:16", EVERY) == none


@given(st.integers(0, 2**31 - 1))
def test_a_bucket_is_exact_to_a_sixteenth(us: int) -> None:
    """The program shifts a value until it has five bits."""
    shifts = max(0, us.bit_length() - 5)
    maps = {"@bio_write": {f"8,0,{shifts},{us >> shifts}": 1}}
    [bucket] = row_of(maps, "8:0", EVERY)["bio_write_us"]
    assert us <= bucket["us"] <= us + us / 16


def test_without_fentry_and_kprobes_there_is_no_latency_of_bios() -> None:
    """block_bio_queue comes after the wait for a limit, so that it would tell another time."""
    program = TracerProgram("", ("@request_write", "@pauses", "@paused_ms"), ("bio_write_us",))
    assert "bio_write_us" not in row_of(MAPS, "254:16", program)
    rows = [{**row(t, 5), "paused_ms": 7} for t in (0, 9)]
    for one in rows:
        del one["bio_write_us"]
    names = {"throttled_seconds", "block_write_p50_us", "block_write_p99_us"}
    assert set(responses_of(rows, 1, 2)) == names


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
    hist = json.dumps({"type": "map", "data": {"@bio_write": MAPS["@bio_write"]}})
    pauses = json.dumps({"type": "map", "data": {"@paused_ms": MAPS["@paused_ms"]}})
    now = "python3 -S -c 'import time; print(time.clock_gettime_ns(time.CLOCK_BOOTTIME))'"
    tick = f'printf \'{{"type": "printf", "data": "TICK %s\\\\n"}}\\n\' "$({now})"'
    tool.write_text(
        "#!/bin/sh\n[ $1 = --version ] && { echo v0.23.2; exit; }\n"
        f"trap 'exit 0' INT\nwhile :; do\necho '{hist}'\necho '{pauses}'\n{tick}\nsleep 0.1\n"
        "done\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    facts.tool_version.cache_clear()
    kernel = trees.kernel(tmp_path)
    monkeypatch.setattr(blocklat, "Kernel", lambda: kernel)
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
    assert written[0]["bio_write_us"] == rows[0]["bio_write_us"]
    assert written[0]["bio_write_us"][1] == {"us": 103, "count": 4}
    program = next(programs(PARTS, kernel))
    assert (tmp_path / "blocklat.bt").read_text() == program.script("v0.23.2")


def test_the_program_counts_in_the_kernel(tmp_path: Path) -> None:
    script = next(programs(PARTS, trees.kernel(tmp_path))).script("v0.23.2")
    assert script.count("printf") == 1
    assert "interval:ms:250" in script
