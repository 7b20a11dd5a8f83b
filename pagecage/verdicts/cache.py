"""Whether the page cache was in the state that was asked for when the measured part began."""

from __future__ import annotations

from pagecage.record import Record
from pagecage.units import PAGE_BYTES, format_bytes
from pagecage.verdicts.verdict import Verdict


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
    word = "reached" if before == wanted else "not_reached"
    charged = f", charged to {cache['charged_to']}" if wanted and cache.get("charged_to") else ""
    method = cache.get("method") or "an unnamed method"
    return Verdict(word, f"{requested}: {_share(before, wanted, size)} by {method}{charged}.")


def _share(before: int, wanted: int, size: int) -> str:
    exact = f", where {wanted} bytes were to be" if before != wanted else ""
    return f"{format_bytes(before)} of {format_bytes(size)} resident{exact}"
