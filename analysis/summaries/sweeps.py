"""Sweeps of one limit: measured and predicted times, and the knee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from analysis.data.load import JudgedTrial, Run
from analysis.summaries.cells import trials_of
from pagecage.model.traces import read_lines
from pagecage.units import format_seconds
from pagecage.verdicts.caps import is_io_cap, requested_caps
from pagecage.verdicts.counters import whole_seconds
from pagecage.verdicts.prediction import Knee, Prediction, find_knee, predict

BINDS = 0.5
"""Least share of the predicted time in which a cap would throttle, for the cap to bind.

Below it, the program's own time dominates.
"""


@dataclass(frozen=True)
class SweepPoint:
    """One value of the limit, with its measured median and predicted time; None if unknown.

    `level` is the value's level among the run's factors, and `name` its short name within the
    sweep. `is_counted` is whether included trials were measured; the knee and the prediction's
    error use only those.
    """

    level: str
    name: str
    value: float
    measured_seconds: float | None
    predicted_seconds: float | None
    error: float | None
    binds: bool | None
    bound_by: str | None
    is_source: bool
    is_counted: bool


@dataclass(frozen=True)
class Sweep:
    """The points in order, the value on which predictions are based, and the measured knee."""

    property: str
    source: str | None
    points: tuple[SweepPoint, ...]
    knee: Knee


def sweep_of(run: Run) -> Sweep | None:
    """Return the sweep of a run; None if the run is not a sweep."""
    varied = run.plan.get("sweep")
    if not varied:
        return None
    trials = {level: trials_of(run.trials, {varied["factor"]: level}) for level in varied["values"]}
    source = _source(varied, trials)
    points = tuple(
        _point(run, varied, level, level_trials, source) for level, level_trials in trials.items()
    )
    times = [
        (point.value, point.measured_seconds)
        for point in points
        if point.measured_seconds and point.is_counted
    ]
    return Sweep(
        varied["property"], _name(varied, source[0]) if source else None, points, find_knee(times)
    )


def _timed(trials: list[JudgedTrial]) -> tuple[list[tuple[float, JudgedTrial]], bool]:
    """Return the trials with a time, shortest first, and whether they are included ones.

    Excluded trials are returned only if no included trial has a time.
    """
    timed = [(seconds, t) for t in trials if (seconds := whole_seconds(t.record)) is not None]
    counted = [pair for pair in timed if pair[1].is_included]
    return sorted(counted or timed, key=lambda pair: pair[0]), bool(counted)


def _source(
    varied: Mapping[str, Any], trials: Mapping[str, list[JudgedTrial]]
) -> tuple[str, JudgedTrial] | None:
    """Return the level and trial on which predictions are based.

    The cage's own value comes first, then the lowest value; among several trials the median one is
    used. An excluded trial is used only if no other has a time.
    """
    found = [
        (level, *_timed(trials.get(level, []))) for level in [varied["own"], *varied["values"]]
    ]
    for level, timed, _ in sorted(found, key=lambda one: not one[2]):
        if timed:
            return level, timed[(len(timed) - 1) // 2][1]
    return None


def _point(
    run: Run,
    varied: Mapping[str, Any],
    level: str,
    trials: list[JudgedTrial],
    source: tuple[str, JudgedTrial] | None,
) -> SweepPoint:
    timed, is_counted = _timed(trials)
    measured = median(seconds for seconds, _ in timed) if timed else None
    prediction = _predicted(run, varied, level, source)
    error = (
        prediction.seconds / measured - 1
        if prediction and prediction.seconds is not None and measured
        else None
    )
    return SweepPoint(
        level=level,
        name=_name(varied, level),
        value=varied["values"][level],
        measured_seconds=measured,
        error=error,
        predicted_seconds=prediction.seconds if prediction else None,
        binds=(
            prediction.held_share >= BINDS
            if prediction and prediction.held_share is not None
            else None
        ),
        bound_by=trials[0].verdicts.binding_limit.verdict if trials else None,
        is_source=bool(source and source[0] == level),
        is_counted=is_counted,
    )


def _name(varied: Mapping[str, Any], level: str) -> str:
    """Return the value alone; a level of whole cages also names the cage and the property."""
    return level.rpartition(f"{varied['property']} ")[2]


def _predicted(
    run: Run, varied: Mapping[str, Any], level: str, source: tuple[str, JudgedTrial] | None
) -> Prediction | None:
    """Return the predicted time at a level; None for a limit that is not an I/O cap.

    One trial does not show what memory or CPU would cost under another limit.
    """
    if source is None or not is_io_cap(varied["property"]):
        return None
    record = source[1].record
    caps = {**requested_caps(record), varied["property"]: varied["values"][level]}
    return predict(record, read_lines(run.path, record, "sampler"), caps)


def sweep_sentences(sweep: Sweep) -> list[str]:
    """Describe the knee, and the prediction's error where a cap binds."""
    knee = sweep.knee
    conclusion = (
        f"The knee is at {sweep.property} {knee.value:,.0f}: {knee.reason}"
        if knee.value
        else knee.reason
    )
    lines = [f"{conclusion[:1].upper()}{conclusion[1:]}."]
    errors = [
        abs(p.error)
        for p in sweep.points
        if p.error is not None and p.binds and p.is_counted and not p.is_source
    ]
    if errors:
        lines.append(
            f"Where a cap binds, the prediction from {sweep.property} {sweep.source} alone came"
            f" within {100 * max(errors):.0f} % of what was measured ({len(errors)}"
            f" value{'s' * (len(errors) > 1)})."
        )
    if not all(point.is_counted for point in sweep.points):
        lines.append(
            "In brackets: excluded trials alone, which neither the knee nor the prediction's error"
            " uses."
        )
    return lines


def format_time(seconds: float | None, *, is_counted: bool = True) -> str:
    """Format a time for a table, in brackets if it rests on excluded trials alone."""
    text = "–" if seconds is None else format_seconds(seconds)
    return text if is_counted or seconds is None else f"({text}) †"


def format_error(point: SweepPoint) -> str:
    """Format the prediction's error for a table; the source of the prediction is marked as such."""
    if point.is_source:
        return "(source)"
    return "–" if point.error is None else f"{100 * point.error:+.0f} %"


def sweep_rows(sweep: Sweep) -> list[dict[str, str]]:
    """Return the points as rows of a table."""
    return [
        {
            sweep.property: p.name,
            "measured": format_time(p.measured_seconds, is_counted=p.is_counted),
            "predicted": format_time(p.predicted_seconds),
            "error": format_error(p),
            "binding limit": p.bound_by or "–",
            "cap binds": "–" if p.binds is None else "yes" if p.binds else "no",
        }
        for p in sweep.points
    ]
