"""What the reads became on the disk, and the least time that the caps allow for them."""

from __future__ import annotations

from pagecage.record import Record
from pagecage.token_bucket import TokenBucket
from pagecage.units import format_bytes, format_seconds
from pagecage.verdicts.readings import io_difference, measured_seconds
from pagecage.verdicts.verdict import Amplification, Floor

_CAPS = (
    ("IOReadBandwidthMax", "rbytes"), ("IOReadIOPSMax", "rios"),
    ("IOWriteBandwidthMax", "wbytes"), ("IOWriteIOPSMax", "wios"),
)  # fmt: skip


def amplification(record: Record) -> Amplification:
    """Device bytes per byte the workload asked for, and per distinct byte."""
    moved, end = io_difference(record, "rbytes"), record.workload.get("end") or {}
    requested, distinct = end.get("bytes"), end.get("distinct_bytes")
    if moved is None or not (requested or distinct):
        return Amplification("unknown", "The workload or the disk did not say how much was read.")
    per_requested = moved / requested if requested else None
    per_distinct = moved / distinct if distinct else None
    asked = f"{format_bytes(distinct)} of distinct data" if distinct else format_bytes(requested or 0)
    because = f"The disk delivered {format_bytes(moved)} for {asked}."
    return Amplification("known", because, per_requested, per_distinct)


def floor(record: Record) -> Floor:
    """The largest of bytes / bandwidth cap and I/Os / IOPS cap, burst credits spent first; unknown without caps."""
    requested, seconds = record.cage.get("requested") or {}, measured_seconds(record)
    times = []
    for name, key in _CAPS:
        cap, moved = requested.get(name), io_difference(record, key)
        if isinstance(cap, int | float) and cap and moved is not None:
            times.append((_least_seconds(record, name, moved, cap), name))
    if not seconds or not times:
        return Floor("unknown", "Without a measured part and an I/O cap there is no least time.")
    least, name = max(times)
    because = f"{name} allows it in {format_seconds(least)}; it took {format_seconds(seconds)}."
    return Floor("known", because, least, least / seconds)


def _least_seconds(record: Record, name: str, moved: float, cap: float) -> float:
    """The least time for so much under one cap, from the credits that its bucket had when the trial began."""
    for about in (record.cage.get("credits") or {}).get("buckets") or ():
        if name in about["properties"]:
            bucket = TokenBucket(about["base"], about["rate"], about["capacity"], about["credits_at_start"])
            return bucket.least_seconds(moved)
    return moved / cap
