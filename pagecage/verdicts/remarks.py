"""What a sentence adds: the provider's ways (credits, shared limits, merging), and memory that is short as well."""

from __future__ import annotations

from pagecage.units import format_bytes, format_rate, format_seconds
from pagecage.verdicts.case import Case, percent
from pagecage.verdicts.readings import SECTOR_BYTES, difference, io_difference
from pagecage.verdicts.shared import SharedLimit, shared_limits

TOGETHER = 1.03
"""Reads and writes above this share of a common limit went past it; less is the grace that every limit has."""
MERGED = 1.1
"""So many I/Os counted for each that the disk got are worth saying; iostat's figures differ by as much."""
CHANGED = 1.02
"""A cap whose average is off by more from what the cage asks for was changed by credits or by sharing."""
AGAIN = 0.25
"""From this share of the bytes read on, what was in memory before is a second cause beside a cap."""
_KEYS = {"read": ("reads", "sectors_read", "rios"), "write": ("writes", "sectors_written", "wios")}


def why_changed(case: Case, amount: str, in_force: float) -> str:
    """In brackets what was in force on average, where that is not what the cage asks for; empty elsewhere."""
    base = case.base_cap
    if not base or 1 / CHANGED <= in_force / base <= CHANGED:
        return ""
    return f" ({amount} with its credits)" if in_force > base else f" ({amount} beside the other direction)"


def drained(case: Case) -> str:
    """When credits ran out, or that there were none to begin with."""
    burst = case.record.cage.get("burst") or {}
    if burst.get("start") == "drained":
        return "Its burst credits were gone before it began; what it leaves of the base comes back as credits."
    if case.drained_seconds is None:
        return ""
    return f"Its burst credits ran out after {format_seconds(case.drained_seconds)}; only the base was left then."


def together(case: Case) -> str:
    """That reads and writes shared a limit, or what they took of one that they would share at the provider."""
    most = max(shared_limits(case.record), key=lambda one: one.used, default=None)
    if most is None or (most.was_split and most.used < 1 / TOGETHER):
        return ""
    if most.was_split and most.used <= TOGETHER:
        return f"Reads and writes shared the {_named(most)}, which both together filled."
    if most.used <= TOGETHER:
        return ""
    return f"Reads and writes together came to {most.used:.2f} of the {_named(most)} that they share at the provider."


def _named(limit: SharedLimit) -> str:
    return f"{limit.base:,.0f} IOPS" if limit.kind == "iops" else format_rate(limit.base)


def merged(case: Case) -> str:
    """What iostat shows where neighbours are merged after io.max has counted them."""
    requests, sectors, ios = _KEYS[case.direction]
    found, moved, counted = (
        difference(case.record, "device", requests), difference(case.record, "device", sectors),
        io_difference(case.record, ios),
    )  # fmt: skip
    if case.binding.verdict not in ("iops", "bandwidth") or not (found and moved and counted):
        return ""
    if counted < MERGED * found:
        return ""
    size = format_bytes(moved * SECTOR_BYTES / found)
    return (
        f"The kernel counts before it merges neighbours: the disk got {size} a request ({counted / found:.2f} to one)."
    )


def short_of_memory(case: Case) -> str:
    """That a cap is full of what had been read before, and had to leave memory."""
    limited = "MemoryMax" in (case.record.cage.get("requested") or {})
    if not limited or case.binding.verdict not in ("iops", "bandwidth") or case.read_again < AGAIN:
        return ""
    return f"{read_before(case)}: more memory helps as well."


def read_before(case: Case) -> str:
    """How much of what was read had been read before, in words."""
    return f"{percent(case.read_again)} of the bytes read had been in memory before"
