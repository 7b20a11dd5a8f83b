"""What burst credits did during a trial, from what its record tells of them."""

from __future__ import annotations

from pagecage.record import Record
from pagecage.verdicts.caps import changes, requested_caps


def drained_after_seconds(record: Record) -> float | None:
    """When, after `go`, a cap first fell to its base for want of credits; None where none did."""
    if not record.measured:
        return None
    start, base = record.measured["start_monotonic_seconds"], requested_caps(record)
    above: set[str] = set()
    for change in changes(record):
        for name in change.keys() & base.keys():
            if change[name] > base[name]:
                above.add(name)
            elif name in above and change["t"] >= start:
                return float(change["t"] - start)
    return None
