"""The verdict on other activity on the host during the measured part of a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pagecage.model.record import Record
from pagecage.units import format_bytes
from pagecage.verdicts.consistency.samples import longest_gap_allowed, longest_gap_seconds
from pagecage.verdicts.counters import (
    difference,
    disk_bytes,
    io_difference,
    measured_seconds,
)
from pagecage.verdicts.disks.views import disk_views
from pagecage.verdicts.quiet.outer_machine import outer_disk, outer_host, outer_memory
from pagecage.verdicts.quiet.processors import (
    Finding,
    cpu_wait,
    foreign_cpu_limit,
    other_processes,
    stolen_time,
)
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


def judge_host_quiet(
    record: Record, series: Sequence[Mapping[str, Any]] = (), disk_speed: Verdict | None = None
) -> Verdict:
    """Return `quiet`, `not_quiet` or `unknown`.

    The verdict rests on the disk, the CPUs, the outer host, the gaps in the sampler's series, and
    the verdict on the disk's speed. A speed that is not known does not count.
    """
    seconds = measured_seconds(record)
    if not seconds:
        return Verdict("unknown", "The measured part did not end, so its counters are incomplete.")
    found: tuple[Finding | None, ...] = (
        _disk_traffic(record),
        stolen_time(record, seconds),
        cpu_wait(record, seconds),
        other_processes(record, seconds),
        foreign_cpu_limit(record),
        outer_host(record),
        outer_memory(record),
        outer_disk(record, seconds),
        _speed(disk_speed),
        _pause(record, series, seconds),
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


def _speed(found: Verdict | None) -> Finding | None:
    if found is None or found.verdict == "unknown":
        return None
    return found.verdict == "usual", found.reason


def _pause(record: Record, series: Sequence[Mapping[str, Any]], seconds: float) -> Finding | None:
    gap = longest_gap_seconds(record, series)
    if gap <= longest_gap_allowed(seconds):
        return None
    return False, f"nothing was sampled for {gap:.1f} s: the machine was paused or overloaded"
