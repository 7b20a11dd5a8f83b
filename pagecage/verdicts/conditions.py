"""Checks of the conditions of a trial: a quiet host and the requested cache state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pagecage.model.cache_proof import broken_reason, requested_bytes, tolerance_bytes
from pagecage.model.json_codec import to_json
from pagecage.model.record import Record
from pagecage.model.record_sections import CacheEvidence
from pagecage.units import MIB, format_bytes, page_ceil_bytes
from pagecage.verdicts.consistency.reads import read_before_go
from pagecage.verdicts.consistency.samples import LONGEST_GAP_SECONDS, longest_gap_seconds
from pagecage.verdicts.counters import (
    counter,
    cpu_seconds,
    difference,
    disk_bytes,
    has_cgroup,
    host_cpu_seconds,
    io_at,
    io_difference,
    measured_seconds,
    stalled_seconds,
)
from pagecage.verdicts.disks.views import disk_views
from pagecage.verdicts.verdict import Verdict

FOREIGN_IO_SHARE = 0.02
"""Foreign disk traffic, as a share of the slice's, that matters less than repeats differ."""
LEAST_FOREIGN_IO_BYTES = 1_000_000
"""Less traffic than this is a journal commit or an inode, even if the trial reads nothing."""
FLUSH_BYTES = 16_384
"""Bytes that a file system may write by itself for each flush of the disk.

For a sync, ext4 writes a journal descriptor, some metadata and a commit
(filesystems/ext4/journal.rst). No cgroup is charged for them. 6 to 12 KiB per flush were seen.
"""
_ALSO_WRITES = ", or flushes of files that another cgroup wrote before,"
"""The kernel hands the writeback of a file over to its new writer only after several flushes.

Until then no limit of the trial holds for them (admin-guide/cgroup-v2.rst, "Writeback").
"""
STEAL_SHARE = 0.05
"""CPU time that a hypervisor took, as a share of the measured time."""
CPU_PRESSURE_SHARE = 0.20
"""Time in which a runnable task of the slice waited for a CPU, as a share of the measured time."""
OTHER_CPUS = 0.25
"""CPUs busy with other processes beside a trial that has no cgroup; pagecage needs a few tenths of
this."""
OUTER_CPUS = 0.5
"""CPUs of the outer host busy with anything but the guest; pagecage needs a few hundredths."""
SHORTEST_SECONDS = 0.2
"""In less time, counters with ticks of 10 ms cannot distinguish 5 % from nothing."""
LEAST_LOST_SECONDS = 0.05
"""Less lost time than this is a handful of ticks and never counts as noise."""
IDLE_SHARE = 0.1
"""Share of the CPUs' time that is idle if no task has to wait for another."""
ONE_THREAD = 1.2
"""A slice that used more CPUs than this caused its own CPU pressure."""
_BUSY = ("user", "nice", "system", "irq", "softirq")

# A finding is (state, sentence); state is True for quiet, False for not quiet, None for not known.
Finding = tuple[bool | None, str]


def judge_host_quiet(record: Record, series: Sequence[Mapping[str, Any]] = ()) -> Verdict:
    """Return `quiet`, `not_quiet` or `unknown`.

    The verdict rests on the disk, the CPUs, the outer host and the gaps in the sampler's series.
    """
    seconds = measured_seconds(record)
    if not seconds:
        return Verdict("unknown", "The measured part did not end, so its counters are incomplete.")
    found: tuple[Finding | None, ...] = (
        _disk_traffic(record),
        _stolen_time(record, seconds),
        _cpu_wait(record, seconds),
        _other_processes(record, seconds),
        _foreign_cpu_limit(record),
        _outer_host(record),
        _pause(record, series),
    )
    views = disk_views(record)
    found += tuple(_disk_traffic(view, f"the disk {name}") for name, view in views.items())
    findings = [finding for finding in found if finding]
    for word, state in (("not_quiet", False), ("unknown", None)):
        if hits := [sentence for found, sentence in findings if found is state]:
            return Verdict(word, "; ".join(hits) + ".")
    return Verdict("quiet", "; ".join(sentence for _, sentence in findings) + ".")


def _disk_traffic(record: Record, name: str = "the disk") -> Finding:
    """Compare the disk's traffic with the slice's.

    Absolute counts also work for a short part. Bytes that the file system writes for a sync do not
    count as traffic of another process.
    """
    foreign, own = [], 0.0
    synced = FLUSH_BYTES * (difference(record, "device", "flushes") or 0.0)
    for direction, key, left_out in (("read", "rbytes", 0.0), ("written", "wbytes", synced)):
        disk, slice_ = disk_bytes(record, direction), io_difference(record, key)
        if disk is None or slice_ is None:
            return None, f"the traffic of {name} was not counted"
        foreign.append(max(0.0, disk - slice_ - left_out))
        own += slice_
    is_noise = sum(foreign) > max(LEAST_FOREIGN_IO_BYTES, FOREIGN_IO_SHARE * own)
    also = _ALSO_WRITES if is_noise and foreign[1] > foreign[0] else ""
    return (
        not is_noise,
        f"other processes{also} moved {format_bytes(sum(foreign))} on {name},"
        f" the trial {format_bytes(own)}",
    )


def _stolen_time(record: Record, seconds: float) -> Finding | None:
    stolen = host_cpu_seconds(record, "steal")
    if stolen is None:
        return None
    if seconds < SHORTEST_SECONDS:
        return None, f"{seconds:.3f} s are too short to measure stolen time"
    is_noise = stolen > STEAL_SHARE * seconds and stolen > LEAST_LOST_SECONDS
    return (
        not is_noise,
        f"the hypervisor took CPU time worth {100 * stolen / seconds:.1f} % of the measured time",
    )


def _cpu_wait(record: Record, seconds: float) -> Finding | None:
    """Check the slice's waits for a CPU, unless CPUQuota or its own threads cause them.

    Without a cgroup they are the machine's, and `_other_processes` judges who kept the CPUs busy.
    It also does for a server, whose processes wait for each other on the CPUs beside its load's.
    """
    waited = stalled_seconds(record, "cpu")
    used = cpu_seconds(record)
    has_quota = "CPUQuota" in (record.cage.requested or {})
    has_many_threads = used is not None and used > ONE_THREAD * seconds
    if waited is None or has_quota or has_many_threads or not has_cgroup(record):
        return None
    if record.load:
        return None
    is_noise = waited > CPU_PRESSURE_SHARE * seconds and waited > LEAST_LOST_SECONDS
    return (
        not is_noise,
        f"the trial waited for a CPU for {100 * waited / seconds:.1f} % of the time",
    )


def _other_processes(record: Record, seconds: float) -> Finding | None:
    """Check the CPU time of other processes, where the trial's waits cannot be told from theirs."""
    own, busy = cpu_seconds(record), host_cpu_seconds(record, *_BUSY)
    if own is None or busy is None or _judges_waits(record, own, seconds):
        return None
    if record.load:
        if record.load.cpu_seconds is None:
            return None, "the CPU time of the load was not counted"
        own += record.load.cpu_seconds
    if seconds < SHORTEST_SECONDS:
        return None, f"{seconds:.3f} s are too short to measure the CPU time of other processes"
    other = max(0.0, busy - own)
    is_noise = other > OTHER_CPUS * seconds and other > LEAST_LOST_SECONDS
    return not is_noise, f"other processes kept {other / seconds:.2f} CPUs busy"


def _judges_waits(record: Record, own: float, seconds: float) -> bool:
    """Return whether `_cpu_wait` judges the trial, or no CPU was short of time for it."""
    if not has_cgroup(record) or record.load:
        return False
    if own <= ONE_THREAD * seconds and "CPUQuota" not in (record.cage.requested or {}):
        return True
    idle, busy = host_cpu_seconds(record, "idle"), host_cpu_seconds(record, *_BUSY)
    return idle is None or busy is None or idle > IDLE_SHARE * (idle + busy)


def _foreign_cpu_limit(record: Record) -> Finding | None:
    """Check for throttling although the cage has no CPUQuota: then an ancestor has one."""
    throttled = difference(record, "cgroup", "cpu.stat", "throttled_usec")
    if not throttled or "CPUQuota" in (record.cage.requested or {}):
        return None
    sentence = (
        f"a CPU limit that the cage does not request held the trial for {throttled / 1e6:.2f} s"
    )
    return throttled / 1e6 <= LEAST_LOST_SECONDS, sentence


def _outer_host(record: Record) -> Finding | None:
    """Check the CPUs that other processes kept busy on the outer host, which a guest cannot see."""
    if not record.outer_host:
        return None
    before, after = record.outer_host.before or {}, record.outer_host.after or {}
    used, seconds = _foreign_cpu_seconds(before, after), _growth(before, after, "unix_seconds")
    if used is None or not seconds:
        return None, "the outer host's CPU time was not counted"
    if seconds < SHORTEST_SECONDS:
        return None, f"{seconds:.3f} s are too short to measure the outer host's CPU time"
    is_noise = used > OUTER_CPUS * seconds and used > LEAST_LOST_SECONDS
    return not is_noise, f"on the outer host, other processes kept {used / seconds:.2f} CPUs busy"


def _pause(record: Record, series: Sequence[Mapping[str, Any]]) -> Finding | None:
    gap = longest_gap_seconds(record, series)
    if gap <= LONGEST_GAP_SECONDS:
        return None
    return False, f"nothing was sampled for {gap:.1f} s: the machine was paused or overloaded"


def _growth(before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> float | None:
    if before.get(key) is None or after.get(key) is None:
        return None
    return float(after[key] - before[key])


def _foreign_cpu_seconds(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Return the outer host's CPU seconds less QEMU's.

    The guest's ticks are part of `user` (proc_stat(5)).
    """
    guest = _growth(before, after, "qemu_cpu_seconds")
    first, last = before.get("cpu_seconds"), after.get("cpu_seconds")
    if guest is None or not first or not last:
        return None
    return max(0.0, sum(_growth(first, last, key) or 0.0 for key in (*_BUSY, "steal")) - guest)


COARSE_BYTES, COARSE_SHARE = 4 * MIB, 0.10
"""Bytes, and their share of the files, that may be charged to another cgroup in an older record.

A record without `cache.start` does not give the number of CPUs, each of which may charge late.
"""


def judge_cache_state(record: Record) -> Verdict:
    """Return `reached`, `not_reached` or `not_applicable` (for `any`).

    A state that was not measured is not reached.
    """
    cache = record.cache
    requested = cache.requested or "any"
    if requested == "any":
        return Verdict("not_applicable", "The experiment requests no cache state.")
    before, size = cache.resident_bytes_before, cache.file_bytes
    if before is None or size is None:
        return Verdict(
            "not_reached", f"The state {requested} was requested, but residency was not measured."
        )
    wanted = 0 if requested == "cold" else page_ceil_bytes(size, record.page_bytes)
    is_reached = before == 0 if requested == "cold" else before >= wanted
    if is_reached and (contradiction := _contradiction(record)):
        return Verdict("not_reached", f"{requested}: {contradiction}.")
    charged = f", charged to {cache.charged_to}" if wanted and cache.charged_to else ""
    method = cache.method or "an unnamed method"
    reason = (
        f"{requested}: {_residency(before, wanted, size)} by"
        f" {method}{_residency_at_go(cache)}{charged}."
    )
    return Verdict("reached" if is_reached else "not_reached", reason)


def _residency(before: int, wanted: int, size: int) -> str:
    exact = (
        f" instead of {wanted} bytes"
        if before != wanted and (before < wanted or not wanted)
        else ""
    )
    return f"{format_bytes(before)} of {format_bytes(size)} resident{exact}"


def _residency_at_go(cache: CacheEvidence) -> str:
    go = cache.go
    return f", {format_bytes(go['resident_bytes'])} at `go`" if go else ""


def _contradiction(record: Record) -> str | None:
    """Return the evidence that the state did not last or was not what the trial read, or None."""
    asked = requested_bytes(record.workload.program, record.workload.end or {})
    if record.cache.start:
        return broken_reason(to_json(record.cache), asked) or read_before_go(record)
    return _contradicting_counters(record, asked) if record.cache.requested == "cold" else None


def _contradicting_counters(record: Record, asked: int | None) -> str | None:
    """Return the evidence from the counters alone, for a record older than the cache checks."""
    cache = record.cache
    step, size = cache.step or {}, cache.file_bytes or 0
    read, missing = (
        io_at(record, "after", "rbytes"),
        (asked or 0) - step.get("resident_bytes_after", 0),
    )
    if read is not None and missing - read > tolerance_bytes(size):
        return (
            f"{format_bytes(missing)} were not resident, but the disk delivered only"
            f" {format_bytes(read)} to the trial"
        )
    charged, resident = (
        counter(record, "totals", "cgroup", "memory.stat", "file"),
        cache.resident_bytes_after,
    )
    if charged is None or resident is None:
        return None
    foreign = resident - charged - step.get("resident_bytes_after", 0)
    if foreign > max(COARSE_BYTES, COARSE_SHARE * size):
        return (
            f"another process read {format_bytes(foreign)} of the files, because these pages are"
            " charged to it"
        )
    return None
