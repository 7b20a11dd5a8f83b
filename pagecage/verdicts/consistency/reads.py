"""Contradictions between the reads of a workload's report and those that the kernel counted.

The report is known of pagecage's own readers only, whose checksum covers the files that they name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pagecage.model.cache_proof import reclaim_is_unknown, requested_bytes, tolerance_bytes
from pagecage.model.record import Record
from pagecage.units import format_bytes
from pagecage.verdicts.counters import io_at

OPENING_SHARE = 0.1
"""Share of its files that a program may read before it is ready."""
PLANNED = "direct"
"""Part of an argument by which a plan wants reads past the page cache."""


def read_contradictions(record: Record) -> Iterator[str]:
    """Yield a sentence for each contradiction."""
    start, end, size = record.cache.start, record.cache.end, record.cache.file_bytes
    asked = requested_bytes(record.workload.program, record.workload.end or {})
    if not start or not end or size is None or asked is None:
        return
    if any(PLANNED in word for word in record.workload.argv or ()):
        return
    spare = tolerance_bytes(size) + (record.cache.charge_lag_bytes or 0)
    read, charged = _growth(start, end, "read_bytes"), _growth(start, end, "charged_bytes")
    if read is None or charged is None:
        return
    past = read - max(0, charged) - (_growth(start, end, "reclaimed_bytes") or 0)
    if past > spare and not reclaim_is_unknown(start, end):
        yield (
            f"{format_bytes(past)} were read past the page cache, which the plan does not ask for"
        )
    other = charged - max(0, (end["resident_bytes"] - start["resident_bytes"]))
    if other > spare:
        yield (
            f"the slice is charged for {format_bytes(other)} of page cache that does not belong to"
            " the trial's files"
        )


def read_before_go(record: Record) -> str | None:
    """Return a sentence if the trial itself had read much of its cold files before `go`.

    A program may read a little of them to start; a reader of pagecage's reads nothing. A warm-up
    that the plan asks for is no finding.
    """
    cache, size = record.cache, record.cache.file_bytes
    if cache.requested != "cold" or not cache.start or size is None or record.load.warm_up:
        return None
    reader = requested_bytes(record.workload.program, record.workload.end or {}) is not None
    spare = tolerance_bytes(size) if reader else max(tolerance_bytes(size), OPENING_SHARE * size)
    cached = (cache.go or cache.start)["resident_bytes"] - cache.start["resident_bytes"]
    before, started = io_at(record, "before", "rbytes"), cache.start.get("read_bytes")
    fetched = 0 if before is None or started is None else min(size, before - started)
    early = max(cached, fetched if reader or record.load else 0)
    if early <= spare:
        return None
    return f"the trial itself had read {format_bytes(early)} of the files before `go`"


def _growth(before: Any, after: Any, key: str) -> int | None:
    first, last = before.get(key), after.get(key)
    return None if first is None or last is None else int(last - first)
