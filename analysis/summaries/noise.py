"""Noise floor: the difference that a comparison of identical trials would show."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from analysis.data.load import Run, Treatment
from analysis.summaries.cells import included_values

MIN_TO_COMPARE = 2
MIN_TO_HALVE = 4
MAX_SPLITS = 999
SEED = 20261121
SHARE = 0.95
_IDENTITY = frozenset({"trial_id", "treatment", "repeat", "block", "position"})


@dataclass(frozen=True)
class NoiseFloor:
    """The relative difference between two medians of identical trials; a `share` of 0.05 is 5 %.

    `kind` names the trials. `a_a_pair`: two treatments with different names and the same program,
    cage, cache and data in the plan, or whose levels the definition declares identical. `halves`:
    the repeats of one treatment, split in two in every way or in 999 random ways; `share` is the
    95th percentile, scaled to samples that are not halved. `range`: two or three repeats, from the
    least to the largest.
    """

    share: float
    kind: str


def noise_floor(run: Run, treatment: Treatment, response: str) -> NoiseFloor | None:
    """Return the noise floor of one treatment.

    None if the treatment has neither an A/A pair nor two repeats.
    """
    own = included_values(run, treatment, response)
    for identical in identical_treatments(run, treatment):
        other = included_values(run, identical, response)
        if _are_positive(own) and _are_positive(other):
            return NoiseFloor(_relative_difference(median(own), median(other)), "a_a_pair")
    return noise_of(own)


def noise_of(values: Sequence[float]) -> NoiseFloor | None:
    """Return the noise floor of one treatment's repeats.

    None for a single value, and for values that are not positive.
    """
    if len(values) < MIN_TO_COMPARE or not _are_positive(values):
        return None
    if len(values) < MIN_TO_HALVE:
        return NoiseFloor(_relative_difference(min(values), max(values)), "range")
    differences = (
        _relative_difference(median(one), median(other)) for one, other in _halves(values)
    )
    shares = sorted(differences)
    return NoiseFloor(_of_whole(shares[math.ceil(SHARE * len(shares)) - 1]), "halves")


def identical_treatments(run: Run, treatment: Treatment) -> list[Treatment]:
    """Return the treatments whose planned trials are equal apart from their names and order.

    Treatments follow that the definition declares identical (`identical`).
    """
    treatments_by_content: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for trial in run.plan["trials"]:
        content = {key: value for key, value in trial.items() if key not in _IDENTITY}
        group = treatments_by_content[json.dumps(content, sort_keys=True)]
        if trial["treatment"] not in group:
            group.append(trial["treatment"])
    own_group = next(
        (group for group in treatments_by_content.values() if dict(treatment) in group), []
    )
    equal = [dict(other) for other in own_group if dict(other) != dict(treatment)]
    return [*equal, *(other for other in _declared_identical(run, treatment) if other not in equal)]


def _declared_identical(run: Run, treatment: Treatment) -> list[dict[str, str]]:
    """Return the planned treatments that differ only in levels declared to do the same."""
    planned = [dict(trial["treatment"]) for trial in run.plan["trials"]]
    others = [
        {**treatment, factor: level}
        for table in run.definition.get("identical") or []
        for factor, levels in table.items()
        for level in levels
        if treatment.get(factor) in levels and level != treatment[factor]
    ]
    return [other for other in others if other in planned]


def _are_positive(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0


def _relative_difference(one: float, other: float) -> float:
    return max(one, other) / min(one, other) - 1


def _of_whole(share: float) -> float:
    """Return the noise between two samples, from that between the halves of one.

    The difference of two means of n values has the variance 2/n of one value's, and that of two
    halves of a sample 4/n: on the logarithmic scale it is larger by the square root of 2.
    """
    return math.expm1(math.log1p(share) / math.sqrt(2))


def _halves(values: Sequence[float]) -> Iterator[tuple[list[float], list[float]]]:
    """Yield the values split in two: in every way, or in some random ways if there are too many."""
    n, half = len(values), len(values) // 2
    rng = random.Random(SEED)
    if math.comb(n, half) <= MAX_SPLITS:
        splits: Iterable[Sequence[int]] = itertools.combinations(range(n), half)
    else:
        splits = (rng.sample(range(n), half) for _ in range(MAX_SPLITS))
    for split in splits:
        chosen = set(split)
        yield [values[i] for i in split], [values[i] for i in range(n) if i not in chosen]
