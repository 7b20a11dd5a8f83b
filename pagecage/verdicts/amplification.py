"""What the reads became on the disk, and the least time that the caps allow for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.model.cage import IO_STAT_KEY
from pagecage.model.record import Record
from pagecage.units import format_bytes, format_seconds
from pagecage.verdicts.caps import bucket_of, requested_caps
from pagecage.verdicts.counters import io_difference, measured_seconds
from pagecage.verdicts.verdict import Amplification, TimeFloor


def amplification(record: Record) -> Amplification:
    """Device bytes per byte the workload asked for, and per distinct byte."""
    moved, end = io_difference(record, "rbytes"), record.workload.get("end") or {}
    requested, distinct = end.get("bytes"), end.get("distinct_bytes")
    if moved is None or not (requested or distinct):
        return Amplification("unknown", "The workload or the disk did not say how much was read.")
    per_requested = moved / requested if requested else None
    per_distinct = moved / distinct if distinct else None
    asked = f"{format_bytes(distinct)} of distinct data" if distinct else format_bytes(requested or 0)
    reason = f"The disk delivered {format_bytes(moved)} for {asked}."
    return Amplification("known", reason, per_requested, per_distinct)


def floor(record: Record) -> TimeFloor:
    """The largest of bytes / bandwidth cap and I/Os / IOPS cap, burst credits spent first; unknown without caps."""
    seconds, caps = measured_seconds(record), requested_caps(record)
    moved = {name: io_difference(record, key) for name, key in IO_STAT_KEY.items() if name in caps}
    times = [(_least_of_group(record, name, moved), name) for name, count in moved.items() if count is not None]
    if not seconds or not times:
        return TimeFloor("unknown", "Without a measured part and an I/O cap there is no least time.")
    least, name = max(times)
    reason = f"{name} allows it in {format_seconds(least)}; it took {format_seconds(seconds)}."
    return TimeFloor("known", reason, least, least / seconds)


def least_seconds(record: Record, name: str, moved: float) -> float:
    """The least time for so much under one cap, from the credits that its bucket had when the trial began."""
    about = _bucket_about(record, name)
    return bucket_of(about).least_seconds(moved) if about else moved / requested_caps(record)[name]


def _least_of_group(record: Record, name: str, moved: Mapping[str, float | None]) -> float:
    """The same for all that shares the cap."""
    about = _bucket_about(record, name)
    together = about["properties"] if about else [name]
    return least_seconds(record, name, sum(moved.get(one) or 0.0 for one in together))


def _bucket_about(record: Record, name: str) -> Mapping[str, Any] | None:
    played = (record.cage.get("credits") or {}).get("buckets") or ()
    return next((about for about in played if name in about["properties"]), None)
