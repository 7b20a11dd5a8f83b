"""Requirements that a host lacks, and that a claim's figure needs."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.data.event_counts import UNTRACED
from analysis.data.load import JudgedTrial

COLLECTOR_BY_PREFIX = {
    "loads_": "perf-mem",
    "bio_write_": "blocklat",
    "block_write_": "blocklat",
    "throttled_seconds": "blocklat",
}
"""Collectors that give responses, by the beginning of their names."""


def missing_requirement(sides: Sequence[Sequence[JudgedTrial]], response: str | None) -> str | None:
    """Return the requirement of the figure that the host lacks; None if it lacks none.

    A response of a collector needs that collector; its record states why the host has none.
    """
    trials = [trial for side in sides for trial in side]
    missed = [m.reason for trial in trials for m in trial.record.missed_requirements]
    missed += [reason for trial in trials if (reason := _missing_collector(trial, response))]
    return f"the host lacks a requirement: {missed[0]}" if missed else None


def _missing_collector(trial: JudgedTrial, response: str | None) -> str | None:
    for prefix, name in COLLECTOR_BY_PREFIX.items():
        entry = trial.record.collectors.get(name) or {}
        if not (response or "").startswith(prefix):
            continue
        if entry.get("status") == "missing":
            return str(entry.get("reason") or f"the collector {name} is missing")
        if any(table.startswith(prefix) for table in entry.get("unavailable") or ()):
            return f"{response} is {UNTRACED}"
    return None
