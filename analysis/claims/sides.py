"""Groups of trials that a claim or a finding compares, and the figure that they give."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from analysis.claims.derived import DIVISORS, derived_value, is_derived
from analysis.data.load import JudgedTrial, Run
from analysis.response_units import convert_response
from analysis.stats.intervals import MedianSummary, blocked_ratio, summarise
from analysis.summaries.cells import response_value, trials_of
from analysis.summaries.minima import MAXIMUM, MINIMUM, extreme_summary

Side = list[JudgedTrial]
SIDES = ("where", "over", "than", "than_over")
"""Keys of a claim's groups of trials, in order."""


def number_of_sides(table: Mapping[str, Any]) -> int:
    """Return how many groups of trials a claim or a finding compares."""
    if table.get("than_over"):
        return 4
    return 2 if table.get("over") or table.get("over_boot") else 1


def sides_of(run: Run, table: Mapping[str, Any]) -> list[Side]:
    """Return the groups of trials, in the order of `SIDES`."""
    if table.get("over_boot"):
        return _by_boot(trials_of(run.trials, table.get("where") or {}))
    return [trials_of(run.trials, table.get(key) or {}) for key in SIDES[: number_of_sides(table)]]


def _by_boot(trials: Sequence[JudgedTrial]) -> list[Side]:
    """Return the trials of the first boot and those of the last one.

    The second group is empty if all ran in one boot.
    """
    boots = list(dict.fromkeys(trial.record.boot_id for trial in trials))
    groups = [[trial for trial in trials if trial.record.boot_id == boot] for boot in boots]
    return [groups[0], groups[-1]] if len(groups) > 1 else [list(trials), []]


def responses_of(table: Mapping[str, Any]) -> list[str]:
    """Return the response of each group; `over_response` is that of the divisors."""
    own = table["response"]
    return [own, table.get("over_response") or own] * 2


def side_values(run: Run, table: Mapping[str, Any], sides: Sequence[Side]) -> list[list[float]]:
    """Return the figures of each group's trials; a killed trial has none."""
    return [
        [v for trial in side if (v := trial_value(run, trial, response, table)) is not None]
        for side, response in zip(sides, responses_of(table), strict=False)
    ]


def trial_value(
    run: Run, trial: JudgedTrial, response: str, table: Mapping[str, Any]
) -> float | None:
    """Return a trial's figure in the response's unit.

    With `per`, it is in bytes, pages or seconds per byte of that size. None if the trial was
    killed or has no such figure.
    """
    if trial.is_killed:
        return None
    value = (
        derived_value(run, trial, response)
        if is_derived(response)
        else response_value(trial, response)
    )
    if value is None or not table.get("per"):
        return value
    divisor = DIVISORS[table["per"]](trial)
    return value / divisor if divisor else None


def summarise_sides(
    run: Run, table: Mapping[str, Any], sides: Sequence[Side], unit: str | None = None
) -> MedianSummary | None:
    """Return the figure of the groups: a median or minimum, a ratio, or a difference.

    A median, a minimum and a difference are in `unit`, or in the response's own unit without one;
    a ratio has none. None if a group has no figure.
    """
    values = side_values(run, table, sides)
    if not all(values):
        return None
    statistic = table.get("statistic", "")
    is_extreme = statistic in (MINIMUM, MAXIMUM)
    if len(values) == 4 or (len(values) == 2 and table.get("rule") != "difference"):
        if is_extreme and len(values) == 2:
            return extreme_summary(statistic, *values)
        return blocked_ratio(values, _rows(run, table, sides))
    converted = [
        [convert_response(response, v, unit) if unit else v for v in side]
        for side, response in zip(values, responses_of(table), strict=False)
    ]
    if len(converted) == 2:
        return _difference(*converted)
    return extreme_summary(statistic, converted[0]) if is_extreme else summarise(converted[0])


def _rows(run: Run, table: Mapping[str, Any], sides: Sequence[Side]) -> list[list[float]]:
    """Return a figure of each side for every block and treatment that all sides have.

    Trials match if their block is the same, and their level of each factor that the table leaves
    open. The figure is the median, where a side has several such trials.
    """
    fixed = {factor for key in SIDES for factor in table.get(key) or {}}
    found: list[dict[Any, list[float]]] = []
    for side, response in zip(sides, responses_of(table), strict=False):
        found.append(defaultdict(list))
        for trial in side:
            value = trial_value(run, trial, response, table)
            levels = trial.record.treatment.items()
            key = (trial.record.block, *(level for name, level in levels if name not in fixed))
            if value is not None:
                found[-1][key].append(value)
    common = [key for key in found[0] if all(key in one for one in found)]
    return [[median(one[key]) for one in found] for key in common]


def _difference(ones: Sequence[float], others: Sequence[float]) -> MedianSummary:
    """Return the difference of two medians, with the range of the differences."""
    return MedianSummary(
        min(len(ones), len(others)),
        median(ones) - median(others),
        min(ones) - max(others),
        max(ones) - min(others),
        "range",
    )
