"""Counts of a tracer's events in the measured part of a trial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis.data.load import JudgedTrial, Run
from pagecage.model.traces import read_lines

UNTRACED = "not available by tracepoints"
"""Text for a figure that a kernel without fentry and kprobes cannot give, instead of 0."""
_SAME_VALUES = {("filemap_fault", "ra_pages"): ("page_cache_ra_order", "ra_pages")}
"""Keys of a table that also stand in another one, which other probes fill."""


def traced_table(trial: JudgedTrial, table: str, key: str) -> str | None:
    """Return the table of the trial's trace that has this key; None if its probes cannot tell."""
    entry = trial.record.collectors.get("bpftrace") or {}
    unavailable = set(entry.get("unavailable") or ())
    for name, of_table in ((table, key), _SAME_VALUES.get((table, key), (table, key))):
        if not unavailable & {name, f"{name}.{of_table}"}:
            return name
    return None


def events_in_measured_part(
    run: Run,
    trial: JudgedTrial,
    probe: str,
    key: Callable[[Mapping[str, Any]], Any],
    collector: str = "bpftrace",
) -> Counter[Any]:
    """Count a probe's events from `go` on, by `key`.

    The counts in the trace are cumulative.
    """
    if not trial.record.measured:
        return Counter()
    lines, start = (
        read_lines(run.path, trial.record, collector),
        trial.record.measured.start_monotonic_seconds,
    )
    before = _totals([line for line in lines if line["t"] <= start][-1:], probe, key)
    return _totals(lines[-1:], probe, key) - before


def _totals(
    lines: Sequence[Mapping[str, Any]], probe: str, key: Callable[[Mapping[str, Any]], Any]
) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for entry in (lines[0].get(probe) or []) if lines else []:
        total[key(entry)] += entry["count"]
    return total
