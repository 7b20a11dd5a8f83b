"""CPUs, memory and disk of the machine around a guest, which the guest cannot see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.model.record import Record
from pagecage.model.trial_counters import SECTOR_BYTES
from pagecage.units import format_bytes
from pagecage.verdicts.counters import counter, difference
from pagecage.verdicts.quiet.processors import (
    BUSY,
    LEAST_LOST_SECONDS,
    SHORTEST_SECONDS,
    Finding,
    growth,
)

OUTER_CPUS = 0.5
"""CPUs of the outer host busy with anything but the guest; pagecage needs a few hundredths."""
MEMORY_SHARE = 0.02
"""Time in which tasks of the outer host waited for memory; 0.02 % was the most of 348 trials."""
SWAPPED_BYTES = 4 << 20
"""Bytes that the outer host may move from and to its swap."""
OUTER_DISK_SHARE = 0.2
"""Time in which the outer disk may be busy for others while the guest's disk is busy, as a share of
the measured part. 8 % was the most in 348 trials that count: the journal of the guest's image."""


def outer_host(record: Record) -> Finding | None:
    """Check the CPUs that other processes kept busy on the outer host, which a guest cannot see."""
    if not record.outer_host:
        return None
    before, after = record.outer_host.before or {}, record.outer_host.after or {}
    used, seconds = _foreign_cpu_seconds(before, after), growth(before, after, "unix_seconds")
    if used is None or not seconds:
        return None, "the outer host's CPU time was not counted"
    if seconds < SHORTEST_SECONDS:
        return None, f"{seconds:.3f} s are too short to measure the outer host's CPU time"
    is_noise = used > OUTER_CPUS * seconds and used > LEAST_LOST_SECONDS
    return not is_noise, f"on the outer host, other processes kept {used / seconds:.2f} CPUs busy"


def outer_memory(record: Record) -> Finding | None:
    """Check the outer host's waits for memory and its swap: it may take pages of the guest."""
    before, after, seconds = _moments(record)
    if not seconds:
        return None
    waited = growth(_stalls(before), _stalls(after), "some_us")
    swapped = [growth(before.get("swap") or {}, after.get("swap") or {}, key) for key in _SWAP]
    moved = sum(filter(None, swapped))
    if waited is None and None in swapped:
        return None
    share, sentence = (waited or 0.0) / 1e6 / seconds, "on the outer host, tasks waited for memory"
    sentence += f" for {100 * share:.1f} % of the time"
    if None not in swapped:
        sentence += f", and {format_bytes(moved)} were swapped"
    is_noise = share > MEMORY_SHARE and share * seconds > LEAST_LOST_SECONDS
    return not (is_noise or moved > SWAPPED_BYTES), sentence


_SWAP = ("in_bytes", "out_bytes")


def outer_disk(record: Record, seconds: float) -> Finding | None:
    """Check how long the outer disk worked for others while the guest waited for its own disks.

    Its time is divided by the bytes, those of the guest's disks and the rest. A guest that does not
    use its disk is not disturbed.
    """
    before, after, passed = _moments(record)
    first, last = before.get("disk") or {}, after.get("disk") or {}
    busy_ms, sectors = growth(first, last, "io_ms"), _sectors(first, last)
    own_busy_ms = difference(record, "device", "io_ticks")
    if busy_ms is None or sectors is None or own_busy_ms is None or not passed:
        return None
    foreign = max(0.0, sectors - _guest_sectors(record))
    lost = min(busy_ms * foreign / sectors if sectors else 0.0, own_busy_ms) / 1000
    is_noise = lost > OUTER_DISK_SHARE * seconds and lost > LEAST_LOST_SECONDS
    return not is_noise, (
        f"the outer host's disk moved {format_bytes(foreign * SECTOR_BYTES)} for others, while the"
        f" guest waited for it {100 * lost / seconds:.1f} % of the time"
    )


def _moments(record: Record) -> tuple[Mapping[str, Any], Mapping[str, Any], float | None]:
    if not record.outer_host:
        return {}, {}, None
    before, after = record.outer_host.before or {}, record.outer_host.after or {}
    return before, after, growth(before, after, "unix_seconds")


def _stalls(moment: Mapping[str, Any]) -> Mapping[str, Any]:
    return (moment.get("pressure") or {}).get("memory") or {}


def _sectors(first: Mapping[str, Any], last: Mapping[str, Any]) -> float | None:
    moved = [growth(first, last, f"sectors_{key}") for key in ("read", "written")]
    return None if None in moved else sum(filter(None, moved))


def _guest_sectors(record: Record) -> float:
    """Return what the guest moved on the data's disk and on the cage's others."""
    disks: list[tuple[str, ...]] = [("device",)]
    disks += [("disks", name, "device") for name in counter(record, "after", "disks") or {}]
    return sum(
        difference(record, *disk, f"sectors_{key}") or 0.0
        for disk in disks
        for key in ("read", "written")
    )


def _foreign_cpu_seconds(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Return the outer host's CPU seconds less QEMU's.

    The guest's ticks are part of `user` (proc_stat(5)).
    """
    guest = growth(before, after, "qemu_cpu_seconds")
    first, last = before.get("cpu_seconds"), after.get("cpu_seconds")
    if guest is None or not first or not last:
        return None
    return max(0.0, sum(growth(first, last, key) or 0.0 for key in (*BUSY, "steal")) - guest)
