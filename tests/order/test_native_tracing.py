"""bpftrace itself on this machine's kernel, against what the kernel counts by other means."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent.collectors.blocklat import BlockLatencyTracer
from pagecage.agent.collectors.bpftrace import FaultTracer
from pagecage.agent.collectors.custom import check_script
from pagecage.agent.facts import Kernel, Tracefs, tool_version
from pagecage.linux.child_processes import ToolProcesses
from pagecage.process import find_tool, run
from pagecage.units import MIB, kernel_page_bytes
from reliability.campaign import folder_on_disk

SIZE_BYTES = 32 * MIB
READER = """
import json, mmap, os, random, resource, sys
file = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
size, page = os.fstat(file).st_size, os.sysconf("SC_PAGE_SIZE")
mapped = mmap.mmap(file, size, prot=mmap.PROT_READ)
if sys.argv[2] == "advised":
    mapped.madvise(mmap.MADV_RANDOM)
places = list(range(0, size, page))
random.Random(1).shuffle(places)
before = resource.getrusage(resource.RUSAGE_SELF)
total = sum(mapped[place] for place in places)
after = resource.getrusage(resource.RUSAGE_SELF)
names = ("ru_majflt", "ru_minflt", "ru_inblock")
print(json.dumps({name: getattr(after, name) - getattr(before, name) for name in names}))
"""
DIRECT_WRITES = 300


@pytest.fixture(scope="module")
def tracefs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if os.getuid() != 0:
        pytest.skip("only root can trace")
    if not find_tool("bpftrace"):
        pytest.skip("bpftrace is not installed: make setup")
    tool_version.cache_clear()
    mounted = Tracefs(tmp_path_factory.mktemp("tracefs"))
    mounted.mount()
    if Kernel().events() is None:
        pytest.skip("tracefs cannot be mounted here")
    yield
    assert mounted.restore() == []


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with folder_on_disk() as name:
        yield Path(name)


@pytest.fixture(scope="module")
def files(folder: Path) -> dict[str, Path]:
    """A file for each way to read, written before the tracer counts additions to the page cache."""
    made = {advice: folder / advice for advice in ("plain", "advised")}
    for path in made.values():
        with path.open("wb") as file:
            file.write(os.urandom(SIZE_BYTES))
            os.fsync(file.fileno())
    return made


@pytest.fixture(scope="module")
def tracer(folder: Path, files: dict[str, Path], tracefs: None) -> Iterator[FaultTracer]:
    made = FaultTracer(folder, ToolProcesses(folder))
    made.start()
    assert made.reason is None
    yield made
    made.stop()


@pytest.fixture(scope="module", params=["plain", "advised"])
def read(request: pytest.FixtureRequest, files: dict[str, Path], tracer: FaultTracer) -> Read:
    """The reads of a cold file, which has an inode of its own in the trace."""
    return Read(request.param, *traced(tracer, files[request.param], request.param))


@dataclass(frozen=True)
class Read:
    """The process' own counters, the end of the trace, and the events that the kernel left out."""

    advice: str
    own: dict[str, int]
    trace: dict[str, Any]
    missed: int


def traced(
    tracer: FaultTracer, file: Path, advice: str
) -> tuple[dict[str, int], dict[str, Any], int]:
    """Read every page of a cold file once."""
    begin = time.monotonic()
    argv = [sys.executable, "-c", READER, str(file), advice]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    tracer.wait_for_tick()
    outcome = tracer.excerpt({file.stat().st_ino}, begin, file.with_suffix(".jsonl"))
    assert (outcome.status, outcome.lost_events) == ("ok", 0), outcome.reason
    last = json.loads(file.with_suffix(".jsonl").read_text().splitlines()[-1])
    return json.loads(done.stdout), last, outcome.own["missed_events"]


def major_faults(trace: dict[str, Any]) -> int:
    """Return the major faults by what the kernel has: returned values, or additions."""
    if "filemap_fault_major" in trace:
        return sum(row["count"] for row in trace["filemap_fault_major"])
    rows = trace["filemap_fault_return"]
    return sum(row["count"] for row in rows if "VM_FAULT_MAJOR" in row["returned_names"])


def test_faults_are_those_that_the_process_counts(read: Read) -> None:
    own, trace, missed = read.own, read.trace, read.missed
    assert own["ru_inblock"] * 512 >= SIZE_BYTES, "the file was in memory"
    assert own["ru_majflt"] - missed <= major_faults(trace) <= own["ru_majflt"]
    assert own["ru_majflt"] > 2 * missed
    faults = sum(row["count"] for row in trace["filemap_fault"])
    assert own["ru_majflt"] - missed <= faults <= own["ru_majflt"] + own["ru_minflt"]
    if additions := trace.get("page_cache_additions"):
        pages = SIZE_BYTES // kernel_page_bytes()
        largest = max(1 << row["order"] for row in additions)
        added = sum(row["count"] << row["order"] for row in additions)
        assert pages - missed * largest <= added <= pages
    windows = Counter[int]()
    for row in trace["page_cache_ra_order"]:
        windows[row["ra_pages"]] += row["count"]
    assert (sum(windows.values()) > 0) == (read.advice == "plain"), "MADV_RANDOM reads single pages"


def test_what_the_probes_cannot_tell_is_absent_and_named(tracer: FaultTracer, read: Read) -> None:
    by_tracepoints = any("mm_filemap_fault" in probe for probe in tracer.program.probes)
    assert ("filemap_fault_return" in tracer.program.unavailable) == by_tracepoints
    assert ("filemap_fault_return" in read.trace) != by_tracepoints
    assert all(("vm_flags" in row) != by_tracepoints for row in read.trace["filemap_fault"])


@pytest.fixture
def loop(on_disk: Path, tracefs: None) -> Iterator[Path]:
    if not Path("/dev/loop-control").exists():
        pytest.skip("there are no loop devices")
    backing = on_disk / "backing"
    backing.write_bytes(bytes(4 * MIB))
    device = run(["losetup", "--find", "--show", str(backing)]).stdout.strip()
    yield Path(device)
    run(["losetup", "--detach", device])


def test_write_requests_are_those_that_the_disk_counts(on_disk: Path, loop: Path) -> None:
    number = loop.stat().st_rdev
    disk = f"{os.major(number)}:{os.minor(number)}"
    tracer = BlockLatencyTracer(on_disk, ToolProcesses(on_disk))
    counted = Path("/sys/dev/block", disk, "stat")
    try:
        tracer.start()
        assert tracer.reason is None
        tracer.wait_for_tick()
        begin, before = time.monotonic(), int(counted.read_text().split()[4])
        words = ["if=/dev/zero", f"of={loop}", "bs=4096", f"count={DIRECT_WRITES}", "oflag=direct"]
        run(["dd", *words])
        tracer.wait_for_tick()
        outcome, rows = tracer.excerpt(disk, begin, on_disk / "blocklat.jsonl")
    finally:
        tracer.stop()
    assert outcome.status == "ok"
    writes = int(counted.read_text().split()[4]) - before
    totals = [sum(bucket["count"] for bucket in rows[end]["block_write_us"]) for end in (0, -1)]
    missed = outcome.own["missed_events"]
    assert DIRECT_WRITES - missed <= totals[1] - totals[0] <= writes == DIRECT_WRITES
    assert missed < DIRECT_WRITES / 10
    assert ("bio_write_us" in rows[-1]) == ("bio_write_us" not in tracer.program.unavailable)


def test_a_script_of_the_definition_is_checked(tracefs: None, tmp_path: Path) -> None:
    script = tmp_path / "mine.bt"
    script.write_text("tracepoint:block:block_rq_issue /cgroup == $1/ { @n = count(); }\n")
    assert check_script(script) is None
    script.write_text("tracepoint:block:no_such_event { @n = count(); }\n")
    assert "no_such_event" in str(check_script(script))
