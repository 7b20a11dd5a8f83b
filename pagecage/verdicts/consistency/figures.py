"""Contradictions between a record's figures and the evidence that they were computed from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pagecage.model.record import Record
from pagecage.verdicts.counters import (
    cpu_seconds,
    difference,
    final_counter,
    has_cgroup,
    io_difference,
    stalled_seconds,
)

_PRECISION = 1e-6
_LEAST_CPU_SHARE = 0.0005
"""Share of a CPU below which a server cannot have answered a load."""
Expected = Mapping[str, tuple[float | None, ...]]


def figure_contradictions(record: Record) -> Iterator[str]:
    """Yield a sentence for each figure or outcome that the evidence excludes."""
    expected = {**_of_the_pass(record), **_of_the_disk(record), **_of_the_workload(record)}
    for name, values in expected.items():
        found = record.response.get(name)
        known = [value for value in values if isinstance(value, int | float)]
        if found is None or not known:
            continue
        if not any(math.isclose(found, value, rel_tol=_PRECISION) for value in known):
            yield f"{name} is {found:g}, and the counters give {known[0]:g}"
    yield from _outcome(record)
    yield from _idle_server(record)


def _of_the_pass(record: Record) -> Expected:
    assert record.measured is not None
    end, seconds = record.workload.end or {}, record.measured.seconds
    times = [time for time in (end.get("seconds"), seconds) if isinstance(time, int | float)]
    covered, moved = end.get("covered_fraction"), end.get("bytes")
    return {
        "read_seconds": tuple(times),
        "covered_fraction": (covered,),
        "full_pass_seconds": tuple(_ratio(time, covered) for time in times),
        "bytes_per_second": tuple(_ratio(moved, time) for time in times),
    }


def _of_the_disk(record: Record) -> Expected:
    read, reads = io_difference(record, "rbytes"), io_difference(record, "rios")
    written = io_difference(record, "wbytes") if has_cgroup(record) else None
    return {
        "device_read_bytes": (read,),
        "device_reads": (reads,),
        "device_bytes_per_read": (_ratio(read, reads),),
        "device_write_bytes": (written,),
        "amplification": (_ratio(read, (record.workload.end or {}).get("distinct_bytes")),),
        "io_stalled_seconds": (stalled_seconds(record, "io"),),
    }


def _of_the_workload(record: Record) -> Expected:
    """Return the figures that the workload reported by itself."""
    own = (record.workload.end or {}).get("response")
    if not isinstance(own, Mapping):
        return {}
    computed = ("bytes_per_second", "major_faults")
    return {name: (value,) for name, value in own.items() if name not in computed}


def _ratio(above: Any, below: Any) -> float | None:
    is_known = isinstance(above, int | float) and isinstance(below, int | float) and below
    return above / below if is_known else None


def _outcome(record: Record) -> Iterator[str]:
    """Check that a success is none of the failures that the evidence names."""
    if record.outcome != "ok":
        return
    if record.workload.checksum_ok is False:
        yield "the outcome is ok, and the checksum was wrong"
    kills = final_counter(record, "memory.events", "oom_kill") or record.exit.oom_kill
    if kills:
        yield "the outcome is ok, and the kernel killed the trial for memory"
    was_ended = record.exit.ended_by_itself is False  # a server, which serves until it is ended
    if record.exit.status and not was_ended:
        yield f"the outcome is ok, and the workload ended with status {record.exit.status}"


def _idle_server(record: Record) -> Iterator[str]:
    """Check that a server did something while its load reports figures."""
    used = cpu_seconds(record)
    if not record.load.metrics or used is None or not record.measured or not has_cgroup(record):
        return
    has_read = io_difference(record, "rios") or io_difference(record, "wios")
    throttled = difference(record, "cgroup", "cpu.stat", "throttled_usec")
    if used < _LEAST_CPU_SHARE * record.measured.seconds and not has_read and not throttled:
        yield f"the load reports figures, and the server used only {1000 * used:.1f} ms of CPU time"
