"""Read amplification on the disk, and the least time in which the caps allow the I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pagecage.model.cage import IO_STAT_KEY
from pagecage.model.record import Record
from pagecage.units import format_bytes, format_seconds
from pagecage.verdicts.caps import bucket_of, requested_caps
from pagecage.verdicts.counters import io_difference, measured_seconds
from pagecage.verdicts.disks.views import disk_views
from pagecage.verdicts.verdict import Amplification, TimeFloor


def amplification(record: Record) -> Amplification:
    """Return the bytes that the disk delivered per requested byte and per distinct byte."""
    moved, end = io_difference(record, "rbytes"), record.workload.end or {}
    requested, distinct = end.get("bytes"), end.get("distinct_bytes")
    if moved is None or not (requested or distinct):
        return Amplification(
            "unknown", "The workload or the disk did not report how much was read."
        )
    per_requested = moved / requested if requested else None
    per_distinct = moved / distinct if distinct else None
    asked = (
        f"{format_bytes(distinct)} of distinct data" if distinct else format_bytes(requested or 0)
    )
    reason = f"The program requested {asked}, and the disk delivered {format_bytes(moved)}."
    return Amplification("known", reason, per_requested, per_distinct)


def time_floor(record: Record) -> TimeFloor:
    """Return the larger of bytes / bandwidth cap and I/Os / IOPS cap, after burst credits.

    With several disks it is that of the slowest one. The verdict is `unknown` without caps.
    """
    floors = {"": _disk_floor(record)}
    floors |= {
        f"On the disk {name}, ": _disk_floor(view) for name, view in disk_views(record).items()
    }
    where, floor = max(floors.items(), key=lambda one: one[1].floor_seconds or 0.0)
    return replace(floor, reason=where + floor.reason)


def _disk_floor(record: Record) -> TimeFloor:
    seconds, caps = measured_seconds(record), requested_caps(record)
    moved = {name: io_difference(record, key) for name, key in IO_STAT_KEY.items() if name in caps}
    times = [
        (_least_seconds_of_all(record, name, moved), name)
        for name, count in moved.items()
        if count is not None
    ]
    if not seconds or not times:
        return TimeFloor(
            "unknown", "There is no least time without a measured part and an I/O cap."
        )
    least, name = max(times)
    reason = (
        f"{name} allows this I/O in {format_seconds(least)}; the trial took"
        f" {format_seconds(seconds)}."
    )
    return TimeFloor("known", reason, least, least / seconds)


def least_seconds(record: Record, name: str, moved: float) -> float:
    """Return the least time for this many bytes or I/Os under one cap.

    The cap's bucket holds the credits that it had when the trial began.
    """
    bucket = _bucket_section(record, name)
    return (
        bucket_of(bucket).least_seconds(moved) if bucket else moved / requested_caps(record)[name]
    )


def _least_seconds_of_all(record: Record, name: str, moved: Mapping[str, float | None]) -> float:
    """Return the least time for the I/O of all properties that share the cap."""
    bucket = _bucket_section(record, name)
    sharing = bucket["properties"] if bucket else [name]
    return least_seconds(record, name, sum(moved.get(prop) or 0.0 for prop in sharing))


def _bucket_section(record: Record, name: str) -> Mapping[str, Any] | None:
    buckets = (record.cage.credits or {}).get("buckets") or ()
    return next((bucket for bucket in buckets if name in bucket["properties"]), None)
