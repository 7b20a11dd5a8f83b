"""bpftrace's output: ticks, maps of one inode, lost events, and failures to attach."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent import facts
from pagecage.agent.collectors import bpftrace
from pagecage.agent.collectors.bpftrace import FaultTracer, parts, tables_of
from pagecage.agent.collectors.collector import CollectorResult
from pagecage.agent.collectors.tracer import (
    TICK_SECONDS,
    TracerProgram,
    parse_line,
    programs,
)
from pagecage.linux.child_processes import ToolProcesses
from tests.builders.known import known
from tests.builders.programs import install
from tests.fake_host import trees

SCRIPT = """#!/bin/sh
# bpftrace -f json SCRIPT: counts up, four times a second, until it is interrupted.
[ "$1" = --version ] && { echo "bpftrace v0.23.2"; exit; }
trap 'exit 0' INT
%s
n=0
while :; do
    n=$((n + 1))
    faults=$((n * 10))
    printf '{"type": "map", "data": {"@fault": {"7,32977,852,32": %%d, "8,1,1,32": 99}}}\\n' $faults
    printf '{"type": "map", "data": {"@ra": {"7,32,0,32": %%d}}}\\n\\n' "$n"
    %s
    now=$(python3 -S -c 'import time; print(time.clock_gettime_ns(time.CLOCK_BOOTTIME))')
    printf '{"type": "printf", "data": "TICK %%s\\\\n"}\\n' "$now"
    sleep 0.1
done
"""

FUNCTIONS = ("filemap_fault", "page_cache_ra_order")
TRACEPOINTS = {
    "filemap:mm_filemap_fault": ("i_ino", "s_dev", "index"),
    "filemap:mm_filemap_add_to_page_cache": ("i_ino", "index", "s_dev", "order"),
    "readahead:page_cache_ra_order": ("i_ino", "order", "size", "ra_pages"),
}
EVERY = TracerProgram("", ("@fault", "@fault_return", "@ra"), ())


def best(root: Path, release: str | None = None) -> TracerProgram:
    """Return the first program for a kernel that has every kind of probe."""
    return next(programs(parts(release), trees.kernel(root, functions=FUNCTIONS)))


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    kernel = trees.kernel(tmp_path, tracepoints=TRACEPOINTS, functions=FUNCTIONS)
    monkeypatch.setattr(bpftrace, "Kernel", lambda: kernel)
    facts.tool_version.cache_clear()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path


def write_bpftrace(directory: Path, first: str = "", each: str = "") -> None:
    install(directory / "bin/bpftrace", SCRIPT % (first, each))


@pytest.fixture
def tracer(directory: Path) -> Iterator[FaultTracer]:
    made = FaultTracer(directory, ToolProcesses(directory))
    yield made
    made.stop()


def traced(directory: Path, tracer: FaultTracer, seconds: float = 0.0) -> CollectorResult:
    """Start the tracer, and return its excerpt of these seconds and the next tick."""
    tracer.start()
    begin = time.monotonic()
    time.sleep(seconds)
    tracer.wait_for_tick()
    return tracer.excerpt({7}, begin, directory / "x.jsonl")


def test_attached_is_the_first_tick_and_a_trial_gets_its_ticks(
    directory: Path, tracer: FaultTracer
) -> None:
    write_bpftrace(directory)
    tracer.start()
    assert tracer.reason is None
    begin = time.monotonic()
    tracer.wait_for_tick()
    tracer.wait_for_tick()
    outcome = tracer.excerpt({7}, begin, directory / "bpftrace.jsonl")
    assert (outcome.status, outcome.lost_events) == ("ok", 0)
    rows = [json.loads(line) for line in (directory / "bpftrace.jsonl").read_text().splitlines()]
    assert rows[0]["t"] <= begin < rows[-1]["t"]
    counts = [row["page_cache_ra_order"][0]["count"] for row in rows]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
    [fault] = rows[-1]["filemap_fault"]
    assert "VM_SEQ_READ" in fault["vm_flag_names"]
    assert fault["fault_flag_names"][0].startswith("FAULT_FLAG_")


def test_waiting_for_a_tick_waits_for_a_later_one(directory: Path, tracer: FaultTracer) -> None:
    write_bpftrace(directory)
    tracer.start()
    for _ in range(3):
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        tracer.wait_for_tick()
        assert tracer._ticks[-1].boot_ns > now


def test_lost_events_are_reported(directory: Path, tracer: FaultTracer) -> None:
    write_bpftrace(directory, each='printf \'{"type": "lost_events", "data": {"events": 5}}\\n\'')
    outcome = traced(directory, tracer)
    assert outcome.status == "partial"
    assert known(outcome.lost_events) >= 5


def test_one_that_is_not_installed(
    directory: Path, tracer: FaultTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    begin = time.monotonic()
    outcome = traced(directory, tracer)
    assert time.monotonic() - begin < 4 * TICK_SECONDS, "there is nothing to wait for"
    assert (outcome.status, outcome.reason) == ("missing", "bpftrace is not installed")


@pytest.mark.parametrize(
    ("first", "error"),
    [
        ("echo 'ERROR: Could not resolve symbol' >&2; exit 1", "Could not resolve symbol"),
        ("echo 'ERROR: no BTF'; exec >&- 2>&-; sleep 1; exit 1", "no BTF"),
    ],
)
def test_a_failure_to_attach_is_reported_at_once(
    directory: Path, tracer: FaultTracer, first: str, error: str
) -> None:
    """The end of the output is noticed before the process can be waited for."""
    write_bpftrace(directory, first)
    begin = time.monotonic()
    tracer.start()
    assert time.monotonic() - begin < 15
    assert tracer.reason is not None
    assert tracer.reason.startswith(f"bpftrace did not attach: {error}")
    outcome = tracer.excerpt({7}, begin, directory / "x.jsonl")
    assert (outcome.status, outcome.reason) == ("missing", tracer.reason)


def test_a_program_that_fails_is_followed_by_the_next_best(
    directory: Path, tracer: FaultTracer
) -> None:
    """bpftrace alone knows for certain what the kernel lets it attach."""
    refuse = "grep -q '^\\(fentry\\|kprobe\\):' \"$3\" && { echo 'ERROR: no' >&2; exit 1; }"
    write_bpftrace(directory, refuse)
    outcome = traced(directory, tracer)
    assert (tracer.reason, outcome.status) == (None, "ok")
    fields = (".vm_flags", ".fault_flags", ".ra_pages", "_return")
    assert outcome.own == {
        "probes": [f"tracepoint:{name}" for name in TRACEPOINTS],
        "unavailable": [f"filemap_fault{field}" for field in fields],
        "missed_events": None,
    }
    assert len(list((directory / "children").iterdir())) == 1


def test_a_kernel_without_any_probe(
    directory: Path, tracer: FaultTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bpftrace(directory)
    bare = trees.kernel(directory / "bare", btf=False, kprobes=False)
    monkeypatch.setattr(bpftrace, "Kernel", lambda: bare)
    tracer.start()
    assert str(tracer.reason).startswith("the kernel has none of the probes")


def test_a_tracer_that_dies_while_trials_run(directory: Path, tracer: FaultTracer) -> None:
    write_bpftrace(directory, each='[ "$n" -lt 3 ] || exit 1')
    outcome = traced(directory, tracer, seconds=1.0)
    assert (outcome.status, outcome.reason) == ("failed", "bpftrace died while trials ran")


def test_stopping_removes_the_journal_entry(directory: Path, tracer: FaultTracer) -> None:
    write_bpftrace(directory)
    tracer.start()
    tracer.stop()
    assert not list((directory / "children").iterdir())


inodes = st.integers(1, 2**40)
words = st.integers(0, 2**33)


keys = st.tuples(inodes, words, words, words)


@given(
    st.dictionaries(keys, st.integers(1, 2**40), max_size=5),
    st.sets(inodes, min_size=1, max_size=3),
)
def test_only_the_files_inodes_count_and_together(
    faults: dict[tuple[int, ...], int], ours: set[int]
) -> None:
    ras = {f"{inode},32,2,64": 4 for inode in ours}
    maps = {"@fault": {",".join(map(str, key)): count for key, count in faults.items()}, "@ra": ras}
    tables = tables_of(maps, ours, EVERY)
    expected: Counter[tuple[int, ...]] = Counter()
    for (inode, *words), count in faults.items():
        expected[tuple(words)] += count if inode in ours else 0
    names, rows = ("vm_flags", "fault_flags", "ra_pages"), tables["filemap_fault"]
    found = {tuple(row[name] for name in names): row["count"] for row in rows}
    assert found == {words: count for words, count in expected.items() if count}
    window = {"pages": 32, "order": 2, "ra_pages": 64, "count": 4 * len(ours)}
    assert tables["page_cache_ra_order"] == [window]


@pytest.mark.parametrize(
    "line", ["", "Attaching 2 probes...", "12", "[]", '"x"', "{", "Lost 5 events"]
)
def test_lines_that_are_not_records(line: str) -> None:
    assert parse_line(line) is None


def test_no_maps_are_no_counts() -> None:
    tables = tables_of({}, {7}, EVERY)
    assert set(tables) == {"filemap_fault", "filemap_fault_return", "page_cache_ra_order"}
    assert list(tables.values()) == [[], [], []]


def test_returned_values_have_names() -> None:
    """1028 is what the article's faults return."""
    tables = tables_of({"@fault_return": {"7,1028": 3, "7,0": 2, "8,512": 9}}, {7}, EVERY)
    assert tables["filemap_fault_return"] == [
        {"returned": 1028, "returned_names": ["VM_FAULT_MAJOR", "VM_FAULT_RETRY"], "count": 3},
        {"returned": 0, "returned_names": [], "count": 2},
    ]


def test_tracepoints_count_faults_without_arguments() -> None:
    """What they cannot tell is absent, and not 0."""
    maps = {"@fault": {"7": 5, "8": 1}, "@major": {"7": 2}, "@added": {"7,0": 3, "7,2": 4}}
    assert tables_of(maps, {7}, TracerProgram("", ("@fault", "@major", "@added", "@ra"), ())) == {
        "filemap_fault": [{"count": 5}],
        "filemap_fault_major": [{"count": 2}],
        "page_cache_additions": [{"order": 0, "count": 3}, {"order": 2, "count": 4}],
        "page_cache_ra_order": [],
    }


@pytest.mark.parametrize(
    ("kernel", "order"),
    [
        ("6.12.41+deb13-cloud-amd64", "args.new_order"),
        ("6.16.0", "args.new_order"),
        ("6.17.0-rc1", "args.ra->order"),
        ("7.0.1", "args.ra->order"),
    ],
)
def test_the_order_of_folios_is_read_where_the_kernel_has_it(
    tmp_path: Path, kernel: str, order: str
) -> None:
    text = best(tmp_path, kernel).text
    assert {word for word in ("args.new_order", "args.ra->order") if word in text} == {order}


def test_the_program_counts_in_the_kernel(tmp_path: Path) -> None:
    """A printf per fault costs 40 %, so only the tick prints."""
    script = best(tmp_path).script("bpftrace v0.23.2")
    assert script.count("printf") == 1
    assert "interval:ms:250 { print(@fault); print(@fault_return); print(@ra); printf" in script


def test_maps_of_the_program_itself_are_not_printed(tmp_path: Path) -> None:
    kernel = trees.kernel(tmp_path, btf=False, tracepoints=TRACEPOINTS)
    script = next(programs(parts(), kernel)).script("bpftrace v0.23.2")
    assert "END { clear(@fault_end); clear(@fault_inode); }" in script
    assert "print(@fault_end)" not in script
