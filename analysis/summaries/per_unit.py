"""Times per unit of work, which runs of different sizes have in common with published figures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from analysis.data.load import Run, Treatment
from analysis.formatting import format_quantity, treatment_label
from analysis.response_units import unit_scale
from analysis.summaries.cells import TreatmentCell, published_claims, trials_of
from pagecage.errors import PagecageError
from pagecage.units import GIB, parse_size_bytes

_OF_THE_WHOLE = (
    *("full_pass_seconds", "prefault_seconds", "sum_seconds", "total_seconds"),
    *("pass_1_seconds", "pass_last_tenth_seconds"),
)
"""Times that are proportional to the size of the data."""
_OF_ALL_CALLS = ("with_start_seconds", "append_seconds")
"""Times that are proportional to the number of records."""
_PUBLISHED_SIZE = "full"


@dataclass(frozen=True)
class PerUnit:
    """A time per unit of work, and the published one; empty if it is not known."""

    measured: str
    published: str


def per_unit_heading(response: str) -> str | None:
    """Return the heading of the column: `per GiB`, `per call`, or None for other responses."""
    if response in _OF_THE_WHOLE:
        return "per GiB"
    return "per call" if response in _OF_ALL_CALLS else None


def per_unit(run: Run, cell: TreatmentCell) -> PerUnit:
    """Return a cell's time per GiB of its files, or per record of its log."""
    work = _work(run, cell)
    measured = ""
    if work and cell.summary:
        scaled = replace(cell.summary, middle=cell.summary.middle / work)
        measured = replace(cell, summary=scaled, killed=0).text
    return PerUnit(measured, _published(run, cell))


def _work(run: Run, cell: TreatmentCell) -> float | None:
    """Return the amount of work of a treatment's trials, in GiB or records."""
    if cell.response in _OF_THE_WHOLE:
        return _planned_gib(run, cell.treatment)
    trials = trials_of(run.trials, cell.treatment)
    records = [count for trial in trials if (count := trial.record.response.get("records"))]
    return statistics.median(records) if records else None


def _planned_gib(run: Run, treatment: Treatment) -> float | None:
    """Return the size of a treatment's files in GiB; None without a dataset."""
    for trial in run.plan["trials"]:
        if dict(trial["treatment"]) == dict(treatment) and (dataset := trial.get("dataset")):
            return float(dataset["size_bytes"] * trial.get("files", 1) / GIB)
    return None


def _published(run: Run, cell: TreatmentCell) -> str:
    """Return the published time per unit.

    A time per call is published as such. A time per GiB is known only if the treatment's files have
    the size that the definition gives for the run.
    """
    label = treatment_label(cell.treatment)
    if cell.response in _OF_ALL_CALLS:
        claim = published_claims(run, "wall_per_call_us").get(label)
        gib: float | None = 1.0
    else:
        claim, gib = published_claims(run, cell.response).get(label), _published_gib(run, cell)
    value = claim["published"] if claim else None
    if claim is None or not isinstance(value, int | float) or not gib:
        return ""
    return format_quantity(cell.response, value * unit_scale(claim["unit"]) / gib)


def _published_gib(run: Run, cell: TreatmentCell) -> float | None:
    sizes = run.definition.get("sizes") or {}
    own, published = (_gib(sizes.get(name)) for name in (run.plan["size"], _PUBLISHED_SIZE))
    return published if own == _planned_gib(run, cell.treatment) else None


def _gib(size: Mapping[str, Any] | None) -> float | None:
    if not size or not isinstance(size.get("dataset"), str):
        return None
    try:
        return parse_size_bytes(size["dataset"]) * int(size.get("files", 1)) / GIB
    except PagecageError:
        return None
