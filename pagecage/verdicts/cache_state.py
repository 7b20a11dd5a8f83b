"""The verdict on the state of the page cache that a trial requested."""

from __future__ import annotations

from pagecage.model.cache_proof import broken_reason, requested_bytes, tolerance_bytes
from pagecage.model.json_codec import to_json
from pagecage.model.record import Record
from pagecage.model.record_sections import CacheEvidence
from pagecage.units import MIB, format_bytes, page_ceil_bytes
from pagecage.verdicts.consistency import read_before_go
from pagecage.verdicts.counters import (
    counter,
    io_at,
)
from pagecage.verdicts.verdict import Verdict

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
        f" {method}{_residency_at_go(cache)}{charged}{_warm_layers(record)}."
    )
    return Verdict("reached" if is_reached else "not_reached", reason)


def _residency(before: int, wanted: int, size: int) -> str:
    exact = (
        f" instead of {wanted} bytes"
        if before != wanted and (before < wanted or not wanted)
        else ""
    )
    return f"{format_bytes(before)} of {format_bytes(size)} resident{exact}"


def _warm_layers(record: Record) -> str:
    """Return what may be in memory although the files' pages are not; empty for other states."""
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
