"""The treatments of a run: all combinations of levels, or few that contain every level."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from pagecage.model.experiment import Experiment

Treatment = dict[str, str]


def treatments(experiment: Experiment) -> Iterator[Treatment]:
    """Yield all combinations of levels in the definition's order, without the excluded ones."""
    names = list(experiment.factors)
    for levels in itertools.product(*experiment.factors.values()):
        treatment = dict(zip(names, levels, strict=True))
        if not any(all(treatment[k] == v for k, v in out.items()) for out in experiment.exclude):
            yield treatment


def covering(all_treatments: list[Treatment]) -> list[Treatment]:
    """Return few treatments that together contain every level.

    A full product needs as many as its largest factor has levels. The choice is greedy: it takes
    the first treatment with the most missing levels, so equal definitions give equal choices.
    """
    missing = {pair for treatment in all_treatments for pair in treatment.items()}
    chosen: list[Treatment] = []
    while missing:
        best = max(all_treatments, key=lambda treatment: len(missing & set(treatment.items())))
        chosen.append(best)
        missing -= set(best.items())
    return chosen or all_treatments


def with_levels(every: list[Treatment], levels: Mapping[str, str]) -> list[Treatment]:
    """Return the treatments that have all of these levels."""
    return [treatment for treatment in every if levels.items() <= treatment.items()]


def selected(
    experiment: Experiment, size: str, levels: Mapping[str, str] | None = None
) -> list[Treatment]:
    """Return the treatments of a run of this size, in the definition's order.

    With `levels` by factor, only treatments with all of them.
    """
    every = with_levels(list(treatments(experiment)), levels or {})
    if experiment.sizes[size].treatments == "all":
        return every
    chosen = covering(every)
    return [treatment for treatment in every if treatment in chosen]
