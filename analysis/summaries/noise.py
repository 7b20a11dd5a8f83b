"""What a comparison of nothing with nothing would show: the noise floor beside which an effect must stand out."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from analysis.data.load import Run, Treatment
from analysis.summaries.cells import figures

FEWEST_TO_HALVE = 4
MOST_SPLITS = 999
SEED = 20261121
SHARE = 0.95
_IDENTITY = frozenset({"trial_id", "treatment", "repeat", "block", "position"})


@dataclass(frozen=True)
class NoiseFloor:
    """`share` is how far two medians of the same were apart, 0.05 being 5 %; `kind` says of what.

    `twins`: two treatments that the plan gives the same program, cage, cache and data under different names (an A/A
    pair). `halves`: the repeats of one treatment cut in two in every way, or in 999 ways; 95 % of these were no further
    apart. Halves have half as many trials, so that they exaggerate rather than belittle the noise.
    """

    share: float
    kind: str


def noise_floor(run: Run, treatment: Treatment, response: str) -> NoiseFloor | None:
    """The floor under one treatment's figures; None where neither a twin nor four repeats tell."""
    own = figures(run, treatment, response)
    for twin in twins(run, treatment):
        other = figures(run, twin, response)
        if _are_positive(own) and _are_positive(other):
            return NoiseFloor(_apart(median(own), median(other)), "twins")
    if len(own) < FEWEST_TO_HALVE or not _are_positive(own):
        return None
    shares = sorted(_apart(median(one), median(other)) for one, other in _halves(own))
    return NoiseFloor(shares[math.ceil(SHARE * len(shares)) - 1], "halves")


def twins(run: Run, treatment: Treatment) -> list[Treatment]:
    """Treatments whose trials the plan describes in the same words, names and order aside."""
    kinds: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for trial in run.plan["trials"]:
        said = {key: value for key, value in trial.items() if key not in _IDENTITY}
        kind = kinds[json.dumps(said, sort_keys=True)]
        if trial["treatment"] not in kind:
            kind.append(trial["treatment"])
    mine = next((kind for kind in kinds.values() if dict(treatment) in kind), [])
    return [dict(other) for other in mine if dict(other) != dict(treatment)]


def _are_positive(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0


def _apart(one: float, other: float) -> float:
    return max(one, other) / min(one, other) - 1


def _halves(values: Sequence[float]) -> Iterator[tuple[list[float], list[float]]]:
    n, half = len(values), len(values) // 2
    draw = random.Random(SEED)
    few = math.comb(n, half) <= MOST_SPLITS
    chosen = (
        itertools.combinations(range(n), half) if few else (draw.sample(range(n), half) for _ in range(MOST_SPLITS))
    )
    for places in chosen:
        taken = set(places)
        yield [values[i] for i in places], [values[i] for i in range(n) if i not in taken]
