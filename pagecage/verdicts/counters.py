"""Differences between the counters of a record; None is "not known" and never becomes 0 on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.model.record import Record

SECTOR_BYTES = 512
"""Unit of the sectors in /proc/diskstats, whatever the disk's own sector (Documentation/block/stat.rst)."""
USER_HZ = 100
"""Ticks per second of /proc/stat where a record does not say (100 on every common architecture)."""


def measured_seconds(record: Record) -> float | None:
    """Length of the measured part, when it began and ended."""
    return record.measured.get("seconds") if record.measured else None


def counter(record: Record, moment: str, *path: str) -> Any:
    """One counter at `before`, `after` or `totals`; None where any step of the path is missing."""
    value: Any = record.counters.get(moment)
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def difference(record: Record, *path: str) -> float | None:
    """What a counter grew by between `before` and `after`."""
    before, after = counter(record, "before", *path), counter(record, "after", *path)
    return None if before is None or after is None else after - before


def io_at(record: Record, moment: str, key: str) -> float | None:
    """One key of the measured disk's io.stat line. A disk that was never touched has no line: 0."""
    table = counter(record, moment, "cgroup", "io.stat")
    disk = record.device.get("maj_min")
    if not isinstance(table, Mapping) or disk is None:
        return None
    line = table.get(disk) or {}
    return float(line.get(key, 0))


def io_difference(record: Record, key: str) -> float | None:
    """What the slice moved on the measured disk during the measured part (`rbytes wbytes rios wios`)."""
    before, after = io_at(record, "before", key), io_at(record, "after", key)
    return None if before is None or after is None else after - before


def io_and_seconds(record: Record, key: str) -> tuple[float, float] | None:
    """I/O of the measured part and its length; of the workload's whole life where the part did not end."""
    moved, seconds = io_difference(record, key), measured_seconds(record)
    if moved is not None and seconds:
        return moved, seconds
    total, life = io_at(record, "totals", key), phase_seconds(record, "run")
    return (total, life) if total is not None and life else None


def phase_seconds(record: Record, name: str) -> float | None:
    """How long one phase of the trial took."""
    return next((phase["seconds"] for phase in record.phases if phase.get("name") == name), None)


def last_known(record: Record, *path: str) -> Any:
    """A slice counter at the very end, else at `end`. The slice is the trial's own, so it began at 0."""
    total = counter(record, "totals", "cgroup", *path)
    return total if total is not None else counter(record, "after", "cgroup", *path)


def stalled_seconds(record: Record, resource: str, kind: str = "some") -> float | None:
    """Time in which some (or `full`: all) tasks of the slice waited (Documentation/accounting/psi.rst)."""
    grown = difference(record, "cgroup", f"{resource}.pressure", kind, "total")
    return None if grown is None else grown / 1e6


def disk_bytes(record: Record, direction: str) -> float | None:
    """Bytes the whole disk moved: `read` or `written`, by anybody."""
    sectors = difference(record, "device", f"sectors_{direction}")
    return None if sectors is None else sectors * SECTOR_BYTES


def steal_seconds(record: Record) -> float | None:
    """CPU time that a hypervisor took from this machine's CPUs, summed over them (proc_stat(5))."""
    ticks = difference(record, "host", "stat", "steal")
    hz = counter(record, "after", "host", "stat", "ticks_per_second") or USER_HZ
    return None if ticks is None else ticks / hz
