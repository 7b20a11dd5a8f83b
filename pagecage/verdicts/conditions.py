"""Whether the host did anything else while the trial was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.model.cache_proof import broken_reason, requested_bytes, tolerance_bytes
from pagecage.model.record import Record
from pagecage.units import MIB, PAGE_BYTES, format_bytes
from pagecage.verdicts.counters import (
    counter,
    difference,
    disk_bytes,
    io_at,
    io_difference,
    measured_seconds,
    stalled_seconds,
    steal_seconds,
)
from pagecage.verdicts.verdict import Verdict

FOREIGN_IO_SHARE = 0.02
"""Disk traffic of others up to this share of ours moves a figure less than repeats differ."""
FOREIGN_IO_FLOOR_BYTES = 1_000_000
"""Below this it is a journal commit or an inode, whatever its share of a trial that reads nothing."""
FLUSH_BYTES = 16_384
"""What a file system may write by itself for each flush of the disk, charged to nobody: for a sync ext4 writes a
journal descriptor, some metadata and a commit (filesystems/ext4/journal.rst); 6 to 12 KiB a flush were seen."""
STEAL_SHARE = 0.05
"""CPU time a hypervisor took, of the measured time."""
CPU_PRESSURE_SHARE = 0.20
"""Time a runnable task of the slice waited for a CPU, of the measured time."""
OUTER_CPUS = 0.5
"""CPUs that anything but the guest kept busy around it; the harness itself needs a few hundredths."""
SHORTEST_SECONDS = 0.2
"""Below this, counters kept in ticks of 10 ms cannot tell 5 % from nothing."""
FLOOR_SECONDS = 0.05
"""Less lost time than this is never called noise: it is a handful of ticks."""
ONE_THREAD = 1.2
"""A slice that used more CPUs than this made its own CPU pressure."""
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")

# A finding is (state, sentence); state is True for quiet, False for not quiet, None for not known.
Finding = tuple[bool | None, str]


def judge_host_quiet(record: Record) -> Verdict:
    """`quiet`, `not_quiet` or `unknown`, from the disk, stolen time, CPU waits and the machine around."""
    seconds = measured_seconds(record)
    if not seconds:
        return Verdict("unknown", "The measured part did not end, so nothing was counted around it.")
    timed = (_steal(record, seconds), _cpu_wait(record, seconds))
    findings = [f for f in (_disk(record), *timed, _throttled(record), _outer(record)) if f]
    for word, state in (("not_quiet", False), ("unknown", None)):
        if hits := [sentence for found, sentence in findings if found is state]:
            return Verdict(word, "; ".join(hits) + ".")
    return Verdict("quiet", "; ".join(sentence for _, sentence in findings) + ".")


def _disk(record: Record) -> Finding:
    """Bytes the disk moved that the slice did not; absolute counts, so a short part can be judged too.

    What a sync lets the file system write is no stranger's traffic.
    """
    foreign, ours = 0.0, 0.0
    synced = FLUSH_BYTES * (difference(record, "device", "flushes") or 0.0)
    for direction, key, left_out in (("read", "rbytes", 0.0), ("written", "wbytes", synced)):
        everybody, slice_bytes = disk_bytes(record, direction), io_difference(record, key)
        if everybody is None or slice_bytes is None:
            return None, "the disk's traffic was not counted"
        foreign, ours = foreign + max(0.0, everybody - slice_bytes - left_out), ours + slice_bytes
    loud = foreign > FOREIGN_IO_FLOOR_BYTES and foreign > FOREIGN_IO_SHARE * ours
    return not loud, f"others moved {format_bytes(foreign)} on the disk beside our {format_bytes(ours)}"


def _steal(record: Record, seconds: float) -> Finding | None:
    stolen = steal_seconds(record)
    if stolen is None:
        return None
    if seconds < SHORTEST_SECONDS:
        return None, f"{seconds:.3f} s are too short to judge stolen time by ticks"
    loud = stolen > STEAL_SHARE * seconds and stolen > FLOOR_SECONDS
    return not loud, f"{100 * stolen / seconds:.1f} % of the time was stolen"


def _cpu_wait(record: Record, seconds: float) -> Finding | None:
    """Tasks of the slice that waited for a CPU; CPUQuota and many threads of its own make that by design."""
    waited = stalled_seconds(record, "cpu")
    used = difference(record, "cgroup", "cpu.stat", "usage_usec")
    asked_for = "CPUQuota" in (record.cage.get("requested") or {})
    crowd = used is not None and used / 1e6 > ONE_THREAD * seconds
    if waited is None or asked_for or crowd:
        return None
    loud = waited > CPU_PRESSURE_SHARE * seconds and waited > FLOOR_SECONDS
    return not loud, f"the slice waited {100 * waited / seconds:.1f} % of the time for a CPU"


def _throttled(record: Record) -> Finding | None:
    """CPU bandwidth control at work although the cage has no CPUQuota: an ancestor's."""
    throttled = difference(record, "cgroup", "cpu.stat", "throttled_usec")
    if not throttled or "CPUQuota" in (record.cage.get("requested") or {}):
        return None
    return throttled / 1e6 <= FLOOR_SECONDS, f"an unasked CPU limit held it for {throttled / 1e6:.2f} s"


def _outer(record: Record) -> Finding | None:
    """CPUs busy around the guest with anything but the guest. A guest cannot see its neighbours."""
    if not record.outer_host:
        return None
    before, after = record.outer_host.get("before") or {}, record.outer_host.get("after") or {}
    used, seconds = _others_seconds(before, after), _span(before, after, "unix_seconds")
    if used is None or not seconds:
        return None, "the machine around the guest was not counted"
    if seconds < SHORTEST_SECONDS:
        return None, f"{seconds:.3f} s are too short to judge the machine around the guest by ticks"
    loud = used > OUTER_CPUS * seconds and used > FLOOR_SECONDS
    return not loud, f"around the guest others kept {used / seconds:.2f} CPUs busy"


def _span(before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> float | None:
    if before.get(key) is None or after.get(key) is None:
        return None
    return float(after[key] - before[key])


def _others_seconds(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """CPU seconds of the outer machine less QEMU's own; `guest` ticks are within `user` (proc_stat(5))."""
    guest = _span(before, after, "qemu_cpu_seconds")
    first, last = before.get("cpu_seconds"), after.get("cpu_seconds")
    if guest is None or not first or not last:
        return None
    return max(0.0, sum(_span(first, last, key) or 0.0 for key in _BUSY) - guest)


COARSE_BYTES, COARSE_SHARE = 4 * MIB, 0.10
"""Bytes, and their share of the files, that may be charged to others in a record without looks (`cache.start`): it
does not say how many CPUs may each have been behind with the charge."""


def judge_cache_state(record: Record) -> Verdict:
    """`reached`, `not_reached` or `not_applicable` (for `any`); a state not measured is not reached."""
    cache = record.cache
    requested = cache.get("requested") or "any"
    if requested == "any":
        return Verdict("not_applicable", "No cache state was asked for.")
    before, size = cache.get("resident_bytes_before"), cache.get("file_bytes")
    if before is None or size is None:
        return Verdict("not_reached", f"The state {requested} was asked for, but residency was not measured.")
    wanted = 0 if requested == "cold" else -(-size // PAGE_BYTES) * PAGE_BYTES
    reached = before == 0 if requested == "cold" else before >= wanted
    if reached and (why := _why_broken(record)):
        return Verdict("not_reached", f"{requested}: {why}.")
    charged = f", charged to {cache['charged_to']}" if wanted and cache.get("charged_to") else ""
    method = cache.get("method") or "an unnamed method"
    because = f"{requested}: {_share(before, wanted, size)} by {method}{_at_go(cache)}{charged}."
    return Verdict("reached" if reached else "not_reached", because)


def _share(before: int, wanted: int, size: int) -> str:
    exact = f", where {wanted} bytes were to be" if before != wanted and (before < wanted or not wanted) else ""
    return f"{format_bytes(before)} of {format_bytes(size)} resident{exact}"


def _at_go(cache: Mapping[str, Any]) -> str:
    go = cache.get("go")
    return f", {format_bytes(go['resident_bytes'])} at `go`" if go else ""


def _why_broken(record: Record) -> str | None:
    asked = requested_bytes(record.workload.get("program"), record.workload.get("end") or {})
    if record.cache.get("start"):
        return broken_reason(record.cache, asked)
    return _why_not_cold(record, asked) if record.cache["requested"] == "cold" else None


def _why_not_cold(record: Record, asked: int | None) -> str | None:
    """The same of a record from before there were looks, as far as its counters tell."""
    cache = record.cache
    step = cache.get("step") or {}
    read, missing = io_at(record, "after", "rbytes"), (asked or 0) - step.get("resident_bytes_after", 0)
    if read is not None and missing - read > tolerance_bytes(cache["file_bytes"]):
        return f"the disk delivered {format_bytes(read)} to the slice of {format_bytes(missing)} that were not resident"
    charged, resident = counter(record, "totals", "cgroup", "memory.stat", "file"), cache.get("resident_bytes_after")
    if charged is None or resident is None:
        return None
    foreign = resident - charged - step.get("resident_bytes_after", 0)
    if foreign > max(COARSE_BYTES, COARSE_SHARE * cache["file_bytes"]):
        return f"another process has read {format_bytes(foreign)} of the files, as it is charged for these pages"
    return None
