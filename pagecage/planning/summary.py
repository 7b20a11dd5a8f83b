"""An experiment in one line, from the tables of its definition, without a plan.

It needs neither the checks of a definition nor their library, whose import takes longer than all
experiments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagecage.planning.treatments import combinations, covering

OVERHEAD_SECONDS = 4.0
"""First estimate of a trial's duration outside its measured part."""
LOAD_SECONDS = 30.0
"""First estimate of the measured load of a server. Only its program knows its length."""
DEFAULT_REPEATS = 5
_DISK_BYTES_PER_SECOND = 500e6  # of a disk in the cloud or a SATA drive


def expected_trial_seconds(
    max_seconds: float | None, dataset_bytes: int = 0, load_seconds: float = 0.0
) -> float:
    """Return a first estimate of one trial's duration."""
    pass_seconds = min(dataset_bytes / _DISK_BYTES_PER_SECOND, max_seconds or math.inf)
    return OVERHEAD_SECONDS + load_seconds + max(0.2 * (max_seconds or 10.0), pass_seconds)


@dataclass(frozen=True)
class ExperimentSummary:
    """A question with its factors, and the treatments and duration of a run in the guest."""

    question: str
    factors: Mapping[str, list[str]]
    treatments: int
    expected_seconds: float


def summary_of(tables: Mapping[str, Any]) -> ExperimentSummary:
    """Return the summary of a definition.

    Raises LookupError, TypeError or AttributeError if its tables are not those of an experiment.
    """
    factors, size = tables["factors"], tables["sizes"]["emulated"]
    chosen = list(combinations(factors, tables.get("exclude", ())))
    if size.get("treatments") == "covering":
        chosen = covering(chosen)
    load_seconds = LOAD_SECONDS if tables["workload"].get("kind") == "service" else 0.0
    seconds = expected_trial_seconds(size.get("max_seconds"), load_seconds=load_seconds)
    repeats = size.get("repeats") or tables.get("repeats", DEFAULT_REPEATS)
    names = {name: list(levels) for name, levels in factors.items()}
    return ExperimentSummary(
        tables["question"], names, len(chosen), len(chosen) * repeats * seconds
    )
