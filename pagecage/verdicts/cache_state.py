"""The verdict on the state of the page cache that a trial requested."""

from __future__ import annotations

from pagecage.model.cache_proof import broken_reason, requested_bytes, tolerance_bytes
from pagecage.model.record import Record
from pagecage.units import MIB, format_bytes, page_ceil_bytes
from pagecage.verdicts.consistency import read_before_go
from pagecage.verdicts.counters import counter, io_at
from pagecage.verdicts.verdict import Verdict

COARSE_BYTES, COARSE_SHARE = 4 * MIB, 0.10
"""Bytes, and share of the files, that may be charged elsewhere in a record without `cache.start`,
and so without the number of CPUs, each of which may charge late."""


def judge_cache_state(record: Record) -> Verdict:
    """Return `reached`, `not_reached` (also if it was not measured) or `not_applicable` (`any`)."""
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
    is_exact = before >= wanted if wanted else not before
    instead = "" if is_exact else f" instead of {wanted} bytes"
    at_go = f", {format_bytes(cache.go.resident_bytes)} at `go`" if cache.go else ""
    charged = f", charged to {cache.charged_to}" if wanted and cache.charged_to else ""
    reason = (
        f"{requested}: {format_bytes(before)} of {format_bytes(size)} resident{instead} by"
        f" {cache.method or 'an unnamed method'}{at_go}{charged}{_warm_layers(record)}."
    )
    return Verdict("reached" if is_reached else "not_reached", reason)


def _warm_layers(record: Record) -> str:
    """Return what may be in memory although the files' pages are not."""
    if record.cache.requested != "cold":
        return ""
    metadata = record.cache.metadata
    parts = [f"directory entries and inodes {metadata}"] if metadata else []
    for layer in record.device.caches_below or ():
        name, resident = f"{layer['layer']} ({layer['kind']})", layer.get("resident_bytes")
        if resident is None:
            parts.append(f"cold above {name}, whose cache is not known")
        elif resident:
            parts.append(f"cold above {name}: {format_bytes(resident)} of its file are in memory")
    return "".join(f"; {part}" for part in parts)


def _contradiction(record: Record) -> str | None:
    """Return why the state did not last; for a record without cache checks, by the counters."""
    cache, step, size = record.cache, record.cache.step or {}, record.cache.file_bytes or 0
    asked = requested_bytes(record.workload.program, record.workload.end or {})
    if cache.start:
        return broken_reason(cache, asked) or read_before_go(record)
    if cache.requested != "cold":
        return None
    resident_before = step.get("resident_bytes_after", 0)
    read, missing = io_at(record, "after", "rbytes"), (asked or 0) - resident_before
    if read is not None and missing - read > tolerance_bytes(size):
        return (
            f"{format_bytes(missing)} were not resident, but the disk delivered only"
            f" {format_bytes(read)} to the trial"
        )
    charged = counter(record, "totals", "cgroup", "memory.stat", "file")
    if charged is None or cache.resident_bytes_after is None:
        return None
    foreign = cache.resident_bytes_after - charged - resident_before
    if foreign > max(COARSE_BYTES, COARSE_SHARE * size):
        return (
            f"another process read {format_bytes(foreign)} of the files, because these pages are"
            " charged to it"
        )
    return None
