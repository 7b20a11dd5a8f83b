"""Noise floor: the difference that a comparison of identical trials shows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from analysis.data.load import Run, Treatment
from analysis.stats.intervals import RANGE, blocked_ratio
from analysis.stats.rank_tests import FEWEST
from analysis.summaries.cells import included_by_block, included_values

MIN_TO_COMPARE = 2
_IDENTITY = frozenset({"trial_id", "treatment", "repeat", "block", "position"})


@dataclass(frozen=True)
class NoiseFloor:
    """The relative difference between identical trials; a `share` of 0.05 is 5 %.

    `kind` names the trials. `a_a_pair`: two treatments with different names and the same program,
    cage, cache and data in the plan, or whose levels the definition declares identical. `range`:
    two to four repeats of one treatment, from the least to the largest.
    """

    share: float
    kind: str


def noise_floor(run: Run, treatment: Treatment, response: str) -> NoiseFloor | None:
    """Return the noise floor of one treatment.

    It is the larger of what its A/A pairs show and of the range of its repeats, if there are fewer
    than five. None if neither shows a difference that the repeats themselves do not explain.
    """
    floors = [noise_of(included_values(run, treatment, response))]
    floors += [
        _a_a_floor(run, [treatment, identical], response)
        for identical in identical_treatments(run, treatment)
    ]
    return largest_floor(floors)


def largest_floor(floors: Sequence[NoiseFloor | None]) -> NoiseFloor | None:
    """Return the largest of the floors that there are; None without any."""
    return max((floor for floor in floors if floor), key=lambda one: one.share, default=None)


def _a_a_floor(run: Run, pair: Sequence[Treatment], response: str) -> NoiseFloor | None:
    """Return the difference of an A/A pair, compared as any two treatments of a run are.

    None if the interval of the comparison contains 1: the difference is that of any two samples.
    """
    blocks = [included_by_block(run, treatment, response) for treatment in pair]
    sides = [[value for values in one.values() for value in values] for one in blocks]
    if not all(_are_positive(side) for side in sides):
        return None
    rows = [[median(one[number]) for one in blocks] for number in blocks[0] if number in blocks[1]]
    ratio = blocked_ratio(sides, rows)
    if ratio.kind != RANGE and ratio.low <= 1 <= ratio.high:
        return None
    return NoiseFloor(max(ratio.middle, 1 / ratio.middle) - 1, "a_a_pair")


def noise_of(values: Sequence[float]) -> NoiseFloor | None:
    """Return the range of two to four repeats, of which no test makes an interval.

    None for another number of values, and for values that are not positive.
    """
    if not MIN_TO_COMPARE <= len(values) < FEWEST or not _are_positive(values):
        return None
    return NoiseFloor(max(values) / min(values) - 1, RANGE)


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
