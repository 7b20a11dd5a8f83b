"""Figures that articles give per unit, and smallest of several."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.cells import TreatmentCell, included_values, published_claims, treatments, trials_of
from analysis.data.load import Run, Treatment
from analysis.formatting import format_quantity, treatment_label, unit_scale
from analysis.stats import MedianSummary
from pagecage.errors import PagecageError
from pagecage.units import GIB, parse_size_bytes

MINIMUM, MAXIMUM = "minimum", "maximum"
"""Statistics of claims whose published figure is the least time of several trials, or the rate that
belongs to it.
"""


@dataclass(frozen=True)
class TreatmentMinimum:
    """The least figure of a treatment's included trials, and their number.

    `published` has the published minima with their units, by the id of their claims.
    """

    treatment: Treatment
    response: str
    minimum: float
    n: int
    published: dict[str, tuple[float, str]]

    @property
    def label(self) -> str:
        """The levels of the treatment, in one line."""
        return treatment_label(self.treatment)


def extreme_summary(statistic: str, *sides: Sequence[float]) -> MedianSummary:
    """Return the extreme of one side, or the ratio of the extremes of two.

    The ratio is infinite if the second is zero. An extreme has no interval, so both ends are the
    figure itself. Raises ValueError if a side has no values.
    """
    extremes = [min(side) if statistic == MINIMUM else max(side) for side in sides]
    divisor = extremes[1] if len(extremes) > 1 else 1.0
    figure = extremes[0] / divisor if divisor else math.inf
    return MedianSummary(min(map(len, sides)), figure, figure, figure, statistic)


def minima(run: Run) -> list[TreatmentMinimum]:
    """Return the least figure of each treatment for which a minimum was published.

    Treatments without an included trial are left out.
    """
    claims = [c for c in run.definition.get("claims", []) if c.get("statistic") == MINIMUM]
    found = (_treatment_minimum(run, treatment, claims) for treatment in treatments(run))
    return [one for one in found if one is not None]


def _treatment_minimum(
    run: Run, treatment: Treatment, claims: Sequence[dict[str, Any]]
) -> TreatmentMinimum | None:
    own = [c for c in claims if not c.get("over") and c["where"].items() <= dict(treatment).items()]
    if not own:
        return None
    response = own[0]["response"]
    values = included_values(run, treatment, response)
    if not values:
        return None
    published = {claim["id"]: (claim["published"], claim["unit"]) for claim in own}
    return TreatmentMinimum(treatment, response, min(values), len(values), published)


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
