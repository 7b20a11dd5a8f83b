"""A sweep of limits: its table and its knees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from analysis import cells
from analysis.cells import response_value, trials_of
from analysis.data.load import JudgedTrial, Run
from analysis.formatting import format_quantity, sentence_case
from pagecage.model.run_files import read_lines
from pagecage.model.services import MetricPattern, is_better_if_higher
from pagecage.units import format_seconds
from pagecage.verdicts.counters import whole_seconds
from pagecage.verdicts.io_demand import Knee, Prediction, find_knee, predict
from pagecage.verdicts.limits import is_io_cap, requested_caps

BINDS = 0.5
"""Least share of the predicted time in which a cap would throttle, for the cap to bind.

Below it, the program's own time dominates.
"""


@dataclass(frozen=True)
class SweepPoint:
    """One value of the limit, with its measured median and its prediction; None if unknown.

    `level` is the value's level among the run's factors, and `name` its short name within the
    sweep. `is_counted` is whether included trials were measured; the knee and the prediction's
    error use only those. `has_gap` is whether one of them lacks a proof.
    """

    level: str
    name: str
    value: float
    measured: float | None
    predicted: float | None
    error: float | None
    binds: bool | None
    bound_by: str | None
    is_source: bool
    is_counted: bool
    has_gap: bool = False


@dataclass(frozen=True)
class Sweep:
    """The points in order, the value on which predictions are based, and the measured knee.

    `response` is a service's main figure; None for other programs, whose time is measured.
    """

    property: str
    source: str | None
    points: tuple[SweepPoint, ...]
    knee: Knee
    response: str | None = None

    def format(self, value: float) -> str:
        return format_quantity(self.response, value) if self.response else format_seconds(value)


def sweep_of(run: Run) -> Sweep | None:
    varied = run.plan.get("sweep")
    if not varied:
        return None
    trials = {level: trials_of(run.trials, {varied["factor"]: level}) for level in varied["values"]}
    source = _source(run, varied, trials)

    points = []
    for level, of_level in trials.items():
        timed, is_counted = _timed(run, of_level)
        measured = median(seconds for seconds, _ in timed) if timed else None
        prediction = predicted = None
        if source and is_io_cap(varied["property"]):
            # One trial does not show what memory or CPU would cost under another limit.
            record = source[1].record
            caps = {**requested_caps(record), varied["property"]: varied["values"][level]}
            prediction = predict(record, read_lines(run.path, record, "sampler"), caps)
            predicted = _predicted_figure(run, prediction, source[1])
        error = predicted / measured - 1 if predicted is not None and measured else None
        share = prediction.held_share if prediction else None
        points.append(
            SweepPoint(
                level=level,
                name=_name(varied, level),
                value=varied["values"][level],
                measured=measured,
                error=error,
                predicted=predicted,
                binds=None if share is None else share >= BINDS,
                bound_by=of_level[0].verdicts.binding_limit.verdict if of_level else None,
                is_source=bool(source and source[0] == level),
                is_counted=is_counted,
                has_gap=cells.has_gap(of_level),
            )
        )
    figures = [(one.value, one.measured) for one in points if one.measured and one.is_counted]
    knee = _knee(run, figures, response := _metric(run))
    name_of_source = _name(varied, source[0]) if source else None
    return Sweep(varied["property"], name_of_source, tuple(points), knee, response)


def _name(varied: Mapping[str, Any], level: str) -> str:
    """Return the value alone; a level of whole cages also names the cage and the property."""
    return level.rpartition(f"{varied['property']} ")[2]


def _knee(run: Run, figures: list[tuple[float, float]], response: str | None) -> Knee:
    """Return the knee; of a latency's curve the reason speaks of that latency, not of a time."""
    if response is None or is_metric_rate(run, response):
        return find_knee(figures, response)
    knee = find_knee(figures)
    return replace(knee, reason=knee.reason.replace("the time", f"the metric {response}"))


def _predicted_figure(run: Run, prediction: Prediction, source: JudgedTrial) -> float | None:
    """Return the predicted time, or a service's rate if its load's I/O took that time.

    A latency or another figure of which less is better is not predicted.
    """
    response, measured = _metric(run), source.record.measured
    if prediction.seconds is None or response in (None, "wall_seconds"):
        return prediction.seconds
    figure = response_value(source, response)
    if not is_metric_rate(run, response) or figure is None or measured is None:
        return None
    return figure * measured.seconds / prediction.seconds


def _metric(run: Run) -> str | None:
    """Return the main figure of a service, whose time is its load's own choice; else None."""
    return run.response if run.definition["workload"].get("kind") == "service" else None


def is_metric_rate(run: Run, response: str) -> bool:
    found = run.metrics.get(response)
    if isinstance(found, Mapping):
        return is_better_if_higher(response, MetricPattern(**found))
    return is_better_if_higher(response)


def _timed(run: Run, trials: list[JudgedTrial]) -> tuple[list[tuple[float, JudgedTrial]], bool]:
    """Return the trials with a figure, least first, and whether they are included ones."""
    response = _metric(run)
    timed = []
    for trial in trials:
        figure = response_value(trial, response) if response else whole_seconds(trial.record)
        if figure is not None:
            timed.append((figure, trial))
    counted = [pair for pair in timed if pair[1].is_included]
    return sorted(counted or timed, key=lambda pair: pair[0]), bool(counted)


def _source(
    run: Run, varied: Mapping[str, Any], trials: Mapping[str, list[JudgedTrial]]
) -> tuple[str, JudgedTrial] | None:
    """Return the level and trial on which predictions are based.

    The cage's own value comes first, then the lowest value; the median trial is used. An excluded
    trial is used only if no other has a time.
    """
    levels = [varied["own"], *varied["values"]]
    found = [(level, *_timed(run, trials.get(level, []))) for level in levels]
    for level, timed, _ in sorted(found, key=lambda one: not one[2]):
        if timed:
            return level, timed[(len(timed) - 1) // 2][1]
    return None


def sweep_sentences(sweep: Sweep) -> list[str]:
    knee = sweep.knee
    found = f"The knee is at {sweep.property} {knee.value:,.0f}: " if knee.value else ""
    lines = [f"{sentence_case(found + knee.reason)}."]
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


def format_figure(
    sweep: Sweep, value: float | None, *, is_counted: bool = True, has_gap: bool = False
) -> str:
    text = "–" if value is None else sweep.format(value)
    if not is_counted and value is not None:
        return f"({text}) †"
    return f"{text} {cells.MARK}" if has_gap else text


def sweep_rows(sweep: Sweep) -> list[dict[str, str]]:
    rows = []
    for p in sweep.points:
        measured = format_figure(sweep, p.measured, is_counted=p.is_counted, has_gap=p.has_gap)
        error = "–" if p.error is None else f"{100 * p.error:+.0f} %"
        rows.append(
            {
                sweep.property: p.name,
                "measured": measured,
                "predicted": format_figure(sweep, p.predicted),
                "error": "(source)" if p.is_source else error,
                "binding limit": p.bound_by or "–",
                "cap binds": "–" if p.binds is None else "yes" if p.binds else "no",
            }
        )
    return rows
