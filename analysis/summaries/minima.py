"""Minima of the trials of each treatment, as an article publishes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.data.load import Run, Treatment
from analysis.formatting import treatment_label
from analysis.stats.intervals import MedianSummary
from analysis.summaries.cells import included_values, treatments

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
