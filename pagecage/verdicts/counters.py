"""Counters of a trial between two moments, and their views by disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pagecage.model.record import Record
from pagecage.model.record_sections import (
    SECTOR_BYTES,
    CacheEvidence,
    Moment,
    Row,
    cpu_usec,
    io_count,
    stall_usec,
)

Rows = Sequence[Row]
"""The sampler's rows: counters by the kernel's keys at a time `t` of CLOCK_MONOTONIC."""


def on_disk(record: Record, name: str) -> Record:
    """Return the record with another disk's device, I/O limits and counters in place of the data's.

    It has no files and no figures of the workload, since those are not known by disk.
    """
    disk, counters, unknown = record.disks[name], record.counters, dict.fromkeys(_OF_DISK)
    before, after = (
        None if moment is None else {**moment, **((moment.get("disks") or {}).get(name) or unknown)}
        for moment in (counters.before, counters.after)
    )
    return replace(
        record,
        device=disk.device,
        cage=disk.cage,
        counters=replace(counters, before=before, after=after),
        cache=CacheEvidence(),
        workload=replace(record.workload, end=None),
        disks={},
    )


_OF_DISK = ("device", "lower_device")


def disk_views(record: Record) -> dict[str, Record]:
    """Return the record as seen from each other disk, by name; empty for a cage of one disk."""
    return {name: on_disk(record, name) for name in record.disks}


def series_on_disk(series: Rows, name: str) -> list[Row]:
    """Return the sampler's rows with another disk's I/O; none for rows that lack the disk."""
    return [{**row, **row["disks"][name]} for row in series if name in row.get("disks", {})]


USER_HZ = 100
"""Ticks per second of /proc/stat if the record has no value (100 on every common architecture)."""


def measured_seconds(record: Record) -> float | None:
    return record.measured.seconds if record.measured else None


def whole_seconds(record: Record) -> float | None:
    """Return the time of the whole pass, scaled if only a part was covered.

    None unless the trial ran to its end or to its time limit.
    """
    if not record.measured or record.outcome not in ("ok", "timed_out"):
        return None
    return record.measured.seconds / (record.response.get("covered_fraction") or 1.0)


def figure(moment: Any, *path: str) -> Any:
    """Return the value at a path of nested mappings; None if a key is missing."""
    for key in path:
        if not isinstance(moment, Mapping):
            return None
        moment = moment.get(key)
    return moment


def growth(before: Any, after: Any, *path: str) -> float | None:
    """Return the growth of a figure between two moments; None if one lacks it."""
    first, last = figure(before, *path), figure(after, *path)
    return None if first is None or last is None else last - first


def counter(record: Record, moment: str, *path: str) -> Any:
    """Return a counter at `before`, `after` or `totals`; None if unknown."""
    return figure(getattr(record.counters, moment), *path)


def difference(record: Record, *path: str) -> float | None:
    return growth(record.counters.before, record.counters.after, *path)


def io_at(record: Record, moment: str, key: str) -> float | None:
    """Return the trial's I/O on the measured disk (`rbytes wbytes rios wios`) until a moment."""
    return io_count(getattr(record.counters, moment) or {}, record.device.maj_min, key)


def io_difference(record: Record, key: str) -> float | None:
    """Return the trial's I/O on the measured disk in the measured part."""
    return _grown(record, lambda moment: io_count(moment, record.device.maj_min, key))


def io_and_seconds(record: Record, key: str) -> tuple[float, float] | None:
    """Return the I/O of the measured part and its length in seconds.

    If the part did not end, both cover the workload's whole life.
    """
    moved, seconds = io_difference(record, key), measured_seconds(record)
    if moved is not None and seconds:
        return moved, seconds
    life = next((phase.seconds for phase in record.phases if phase.name == "run"), None)
    total = io_at(record, "totals", key)
    return (total, life) if total is not None and life else None


def final_counter(record: Record, *path: str) -> Any:
    """Return a counter of the slice at the end of the trial, or else at `end`.

    The slice belongs to the trial alone, so its counters began at 0.
    """
    total = counter(record, "totals", "cgroup", *path)
    return total if total is not None else counter(record, "after", "cgroup", *path)


def stalled_seconds(record: Record, resource: str, kind: str = "some") -> float | None:
    """Return the time in which some (or `full`: all) tasks of the trial waited."""
    waited = _grown(record, lambda moment: stall_usec(moment, resource, kind))
    return None if waited is None else waited / 1e6


def cpu_seconds(record: Record) -> float | None:
    used = _grown(record, cpu_usec)
    return None if used is None else used * 1e-6


def _grown(record: Record, read: Callable[[Moment], float | None]) -> float | None:
    before, after = read(record.counters.before or {}), read(record.counters.after or {})
    return None if before is None or after is None else after - before


def has_cgroup(record: Record) -> bool:
    """Return whether the trial's counters are those of a cgroup of its own."""
    return counter(record, "after", "cgroup") is not None


def disk_bytes(record: Record, direction: str) -> float | None:
    """Return the bytes that all processes together moved on the disk, `read` or `written`."""
    sectors = difference(record, "device", f"sectors_{direction}")
    return None if sectors is None else sectors * SECTOR_BYTES


def host_cpu_seconds(record: Record, *states: str) -> float | None:
    """Return the time that this machine's CPUs spent in these states, summed over all CPUs.

    Source: proc_stat(5). `steal` is the time that a hypervisor took.
    """
    before, after = (counter(record, at, "host", "stat") for at in ("before", "after"))
    return cpu_seconds_between(before or {}, after or {}, *states)


def cpu_seconds_between(
    before: Mapping[str, int], after: Mapping[str, int], *states: str
) -> float | None:
    """Return the growth of these states between two `cpu` lines of /proc/stat, in seconds."""
    if any(state not in before or state not in after for state in states):
        return None
    ticks = sum(after[state] - before[state] for state in states)
    return ticks / (after.get("ticks_per_second") or USER_HZ)
