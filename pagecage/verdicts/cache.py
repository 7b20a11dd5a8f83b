"""Whether the page cache was in the state that was asked for when the measured part began, and was what it found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.cache_proof import asked_bytes, tolerance_bytes, why_broken
from pagecage.record import Record
from pagecage.units import MIB, PAGE_BYTES, format_bytes
from pagecage.verdicts.readings import counter, io_at
from pagecage.verdicts.verdict import Verdict

COARSE_BYTES, COARSE_SHARE = 4 * MIB, 0.10
"""Bytes, and their share of the files, that may be charged to others in a record without looks (`cache.start`): it
does not say how many CPUs may each have been behind with the charge."""


def judge_cache_state(record: Record) -> Verdict:
    """`reached`, `not_reached` or `not_applicable` (for `any`); a state not measured is not reached."""
    cache = record.cache
    requested = cache.get("requested") or "any"
    if requested == "any":
        return Verdict("not_applicable", "No cache state was asked for.")
    before, size = cache.get("resident_bytes_before"), cache.get("file_bytes")
    if before is None or size is None:
        return Verdict("not_reached", f"The state {requested} was asked for, but residency was not measured.")
    wanted = 0 if requested == "cold" else -(-size // PAGE_BYTES) * PAGE_BYTES
    reached = before == 0 if requested == "cold" else before >= wanted
    if reached and (why := _why_broken(record)):
        return Verdict("not_reached", f"{requested}: {why}.")
    charged = f", charged to {cache['charged_to']}" if wanted and cache.get("charged_to") else ""
    method = cache.get("method") or "an unnamed method"
    because = f"{requested}: {_share(before, wanted, size)} by {method}{_at_go(cache)}{charged}."
    return Verdict("reached" if reached else "not_reached", because)


def _share(before: int, wanted: int, size: int) -> str:
    exact = f", where {wanted} bytes were to be" if before != wanted and (before < wanted or not wanted) else ""
    return f"{format_bytes(before)} of {format_bytes(size)} resident{exact}"


def _at_go(cache: Mapping[str, Any]) -> str:
    go = cache.get("go")
    return f", {format_bytes(go['resident_bytes'])} at `go`" if go else ""


def _why_broken(record: Record) -> str | None:
    asked = asked_bytes(record.workload.get("program"), record.workload.get("end") or {})
    if record.cache.get("start"):
        return why_broken(record.cache, asked)
    return _why_not_cold(record, asked) if record.cache["requested"] == "cold" else None


def _why_not_cold(record: Record, asked: int | None) -> str | None:
    """The same of a record from before there were looks, as far as its counters tell."""
    cache = record.cache
    step = cache.get("step") or {}
    read, missing = io_at(record, "after", "rbytes"), (asked or 0) - step.get("resident_bytes_after", 0)
    if read is not None and missing - read > tolerance_bytes(cache["file_bytes"]):
        return f"the disk delivered {format_bytes(read)} to the slice of {format_bytes(missing)} that were not resident"
    charged, resident = counter(record, "totals", "cgroup", "memory.stat", "file"), cache.get("resident_bytes_after")
    if charged is None or resident is None:
        return None
    foreign = resident - charged - step.get("resident_bytes_after", 0)
    if foreign > max(COARSE_BYTES, COARSE_SHARE * cache["file_bytes"]):
        return f"another process has read {format_bytes(foreign)} of the files, as it is charged for these pages"
    return None
