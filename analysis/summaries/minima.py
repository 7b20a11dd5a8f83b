"""Minima of the trials of each treatment, as an article publishes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.data.load import Run, Treatment
from analysis.formatting import treatment_label
from analysis.stats.intervals import MedianSummary
from analysis.summaries.cells import included_values, treatments

MINIMUM = "minimum"
"""Statistic of a claim whose published figure is the least of several trials."""


@dataclass(frozen=True)
class TreatmentMinimum:
    """The least figure of a treatment's included trials, and their number.

    `published` has the published minima by the id of their claims, in `unit`.
    """

    treatment: Treatment
    response: str
    minimum: float
    n: int
    published: dict[str, float]
    unit: str

    @property
    def label(self) -> str:
        """The levels of the treatment, in one line."""
        return treatment_label(self.treatment)


def minimum_summary(values: Sequence[float]) -> MedianSummary:
    """Return the least value; a minimum has no interval, so both ends are the minimum itself.

    Raises ValueError if there are no values.
    """
    least = min(values)
    return MedianSummary(len(values), least, least, least, MINIMUM)


def minimum_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> MedianSummary:
    """Return the ratio of two minima; infinite if the second is zero.

    Raises ValueError if a side has no values.
    """
    low = min(denominator)
    ratio = min(numerator) / low if low else float("inf")
    return MedianSummary(min(len(numerator), len(denominator)), ratio, ratio, ratio, MINIMUM)


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
    published = {claim["id"]: claim["published"] for claim in own}
    return TreatmentMinimum(
        treatment, response, min(values), len(values), published, own[0]["unit"]
    )
