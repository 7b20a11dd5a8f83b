"""Knee of a figure over the numeric levels of one factor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from analysis.claims.rules import RuleResult, is_within_factor
from analysis.claims.sides import trial_value
from analysis.data.load import JudgedTrial, Run
from analysis.stats.intervals import MedianSummary
from pagecage.verdicts.prediction import find_knee

LEAST_GAIN = 1.5
"""A knee exists only if the least level takes this many times as long as the knee's."""


def evaluate_knee(
    run: Run, claim: Mapping[str, Any], trials: Sequence[JudgedTrial]
) -> tuple[MedianSummary | None, RuleResult]:
    """Return the knee of the claim's response along its factor, and whether it is as published.

    The summary is None, and the claim does not hold, if there is no knee: the figure is the same
    at all levels, or it still falls at the largest one. It is undecided if a level has no figure.
    """
    middles = _medians(run, claim, trials)
    without = [level for level in run.factors[claim["along"]] if float(level) not in middles]
    if without:
        return None, (None, f"no figure for {claim['along']} {', '.join(without)}")
    knee = find_knee(list(middles.items()))
    if knee.value is None:
        return None, (False, f"there is no knee: {knee.reason}")
    gain = middles[min(middles)] / middles[knee.value]
    if gain < LEAST_GAIN:
        return None, (
            False,
            f"there is no knee: the least level takes only {gain:.2f} times as long as"
            f" {knee.value:,.0f}",
        )
    published, factor = float(claim["published"]), float(claim["tolerance_factor"])
    held = is_within_factor(knee.value, published, factor)
    word = "within" if held else "outside"
    n = len(trials)
    return (
        MedianSummary(n, knee.value, knee.value, knee.value, "knee"),
        (held, f"{knee.reason}; {word} a factor of {factor:g} of the published knee"),
    )


def _medians(
    run: Run, claim: Mapping[str, Any], trials: Sequence[JudgedTrial]
) -> dict[float, float]:
    """Return the median figure by level, as a number."""
    values: dict[float, list[float]] = defaultdict(list)
    for trial in trials:
        value = trial_value(run, trial, claim["response"], claim)
        if value is not None:
            values[float(trial.record.treatment[claim["along"]])].append(value)
    return {level: median(figures) for level, figures in values.items()}
