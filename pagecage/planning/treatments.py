"""Treatments of an experiment, by the tables of its definition alone."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

Treatment = dict[str, str]


def combinations(
    factors: Mapping[str, Sequence[str]], exclude: Collection[Mapping[str, str]]
) -> Iterator[Treatment]:
    """Yield all combinations of levels in the definition's order, without the excluded ones."""
    for levels in itertools.product(*factors.values()):
        treatment = dict(zip(factors, levels, strict=True))
        if not any(all(treatment[k] == v for k, v in out.items()) for out in exclude):
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
