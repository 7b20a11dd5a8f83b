"""A sweep of limits: its table, knees and picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from analysis import cells
from analysis.cells import response_value, trials_of
from analysis.data.load import JudgedTrial, Run
from analysis.figures.charts import WIDTH, draw_legend, format_value_axis
from analysis.figures.style import GREY, INK, TreatmentStyle
from analysis.formatting import format_quantity, response_title
from pagecage.model.run_files import read_lines
from pagecage.model.services import MetricPattern, is_better_if_higher
from pagecage.units import format_seconds
from pagecage.verdicts.counters import whole_seconds
from pagecage.verdicts.limits import is_io_cap, requested_caps
from pagecage.verdicts.prediction import Knee, Prediction, find_knee, predict

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
        """Format a figure with its unit."""
        return format_quantity(self.response, value) if self.response else format_seconds(value)


def sweep_of(run: Run) -> Sweep | None:
    """Return the sweep of a run; None if the run is not a sweep."""
    varied = run.plan.get("sweep")
    if not varied:
        return None
    trials = {level: trials_of(run.trials, {varied["factor"]: level}) for level in varied["values"]}
    source = _source(run, varied, trials)
    points = tuple(
        _point(run, varied, level, level_trials, source) for level, level_trials in trials.items()
    )
    figures = [
        (point.value, point.measured) for point in points if point.measured and point.is_counted
    ]
    response = _metric(run)
    knee = _knee(run, figures, response)
    name = _name(varied, source[0]) if source else None
    return Sweep(varied["property"], name, points, knee, response)


def _knee(run: Run, figures: list[tuple[float, float]], response: str | None) -> Knee:
    """Return the knee; of a latency's curve the reason speaks of that latency, not of a time."""
    if response is None or is_metric_rate(run, response):
        return find_knee(figures, response)
    knee = find_knee(figures)
    return replace(knee, reason=knee.reason.replace("the time", f"the metric {response}"))


def _metric(run: Run) -> str | None:
    """Return the main figure of a service, whose time is its load's own choice; else None."""
    return run.response if run.definition["workload"].get("kind") == "service" else None


def is_metric_rate(run: Run, response: str) -> bool:
    """Return whether more of a service's figure is better."""
    found = run.metrics.get(response)
    if isinstance(found, Mapping):
        return is_better_if_higher(response, MetricPattern(**found))
    return is_better_if_higher(response)


def _figure(run: Run, trial: JudgedTrial) -> float | None:
    response = _metric(run)
    return response_value(trial, response) if response else whole_seconds(trial.record)


def _timed(run: Run, trials: list[JudgedTrial]) -> tuple[list[tuple[float, JudgedTrial]], bool]:
    """Return the trials with a figure, least first, and whether they are included ones.

    Excluded trials are returned only if no included trial has a figure.
    """
    timed = [(figure, t) for t in trials if (figure := _figure(run, t)) is not None]
    counted = [pair for pair in timed if pair[1].is_included]
    return sorted(counted or timed, key=lambda pair: pair[0]), bool(counted)


def _source(
    run: Run, varied: Mapping[str, Any], trials: Mapping[str, list[JudgedTrial]]
) -> tuple[str, JudgedTrial] | None:
    """Return the level and trial on which predictions are based.

    The cage's own value comes first, then the lowest value; among several trials the median one is
    used. An excluded trial is used only if no other has a time.
    """
    found = [
        (level, *_timed(run, trials.get(level, []))) for level in [varied["own"], *varied["values"]]
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
    timed, is_counted = _timed(run, trials)
    measured = median(seconds for seconds, _ in timed) if timed else None
    prediction = _predicted(run, varied, level, source)
    predicted = _predicted_figure(run, prediction, source)
    error = predicted / measured - 1 if predicted is not None and measured else None
    return SweepPoint(
        level=level,
        name=_name(varied, level),
        value=varied["values"][level],
        measured=measured,
        error=error,
        predicted=predicted,
        binds=(
            prediction.held_share >= BINDS
            if prediction and prediction.held_share is not None
            else None
        ),
        bound_by=trials[0].verdicts.binding_limit.verdict if trials else None,
        is_source=bool(source and source[0] == level),
        is_counted=is_counted,
        has_gap=cells.has_gap(trials),
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


def _predicted_figure(
    run: Run, prediction: Prediction | None, source: tuple[str, JudgedTrial] | None
) -> float | None:
    """Return the predicted time, or a service's rate if its load's I/O took that time.

    A latency or another figure of which less is better is not predicted.
    """
    if prediction is None or prediction.seconds is None or source is None:
        return None
    response = _metric(run)
    if response is None or response == "wall_seconds":
        return prediction.seconds
    record, figure = source[1].record, _figure(run, source[1])
    if not is_metric_rate(run, response) or figure is None or record.measured is None:
        return None
    return figure * record.measured.seconds / prediction.seconds


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


def format_figure(
    sweep: Sweep, value: float | None, *, is_counted: bool = True, has_gap: bool = False
) -> str:
    """Format a figure for a table: in brackets if excluded, marked if it lacks a proof."""
    text = "–" if value is None else sweep.format(value)
    if not is_counted and value is not None:
        return f"({text}) †"
    return f"{text} {cells.MARK}" if has_gap else text


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
            "measured": format_figure(
                sweep, p.measured, is_counted=p.is_counted, has_gap=p.has_gap
            ),
            "predicted": format_figure(sweep, p.predicted),
            "error": format_error(p),
            "binding limit": p.bound_by or "–",
            "cap binds": "–" if p.binds is None else "yes" if p.binds else "no",
        }
        for p in sweep.points
    ]


_THROUGH = {
    "IOReadBandwidthMax": "device_read_bytes_per_second",
    "IOWriteBandwidthMax": "device_write_bytes_per_second",
    "IOReadIOPSMax": "device_reads_per_second",
    "IOWriteIOPSMax": "device_writes_per_second",
}
"""The response that each cap limits."""
FEWEST_POINTS = 2


def sweep_figure(
    sweep: Sweep, factor: str, trial_df: pd.DataFrame, styles: Mapping[str, TreatmentStyle]
) -> Figure | None:
    """Draw figures over the limit on the left, throughput on the right, and the knee as a line.

    The figures are times, or those of a service's response. None below two measured values.
    """
    points = [point for point in sweep.points if point.measured is not None]
    if len(points) < FEWEST_POINTS:
        return None
    through = _THROUGH.get(sweep.property, "")
    has_throughput = through in trial_df
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    panels = figure.subplots(1, 1 + has_throughput, squeeze=False)[0]
    colours = {str(row[factor]): styles[row["treatment"]].colour for _, row in trial_df.iterrows()}
    _draw_figures(panels[0], points, colours)
    format_value_axis(panels[0], sweep.response or "read_seconds")
    panels[0].set_ylabel(response_title(sweep.response) if sweep.response else "time")
    if has_throughput:
        _draw_throughput(panels[1], points, trial_df, factor, through, colours)
    for axes in panels:
        _format_axes(axes, sweep)
    return figure


def _draw_figures(axes: Axes, points: Sequence[SweepPoint], colours: Mapping[str, str]) -> None:
    measured = [(point, point.measured) for point in points if point.measured is not None]
    axes.plot(
        [point.value for point, _ in measured],
        [y for _, y in measured],
        color=GREY,
        lw=1.6,
        label="measured",
    )
    for point, seconds in measured:
        colour = colours[point.level]
        axes.plot(
            point.value,
            seconds,
            marker="o",
            ms=7,
            mec=colour,
            mfc=colour if point.is_counted else "none",
        )
    predictions = [
        (point.value, point.predicted) for point in points if point.predicted is not None
    ]
    if predictions:
        axes.plot(
            *zip(*predictions, strict=True),
            color=INK,
            lw=1.2,
            ls=(0, (4, 3)),
            marker="x",
            ms=6,
            label="predicted",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")


def _draw_throughput(
    axes: Axes,
    points: Sequence[SweepPoint],
    trial_df: pd.DataFrame,
    factor: str,
    response: str,
    colours: Mapping[str, str],
) -> None:
    """Draw one point per trial, a line through the medians, and the cap as an upper bound."""
    for point in points:
        rows = trial_df[trial_df[factor] == point.level].dropna(subset=[response])
        for is_included, chosen in rows.groupby("is_included"):
            colour = colours[point.level]
            face = colour if is_included else "none"
            axes.scatter(
                [point.value] * len(chosen),
                chosen[response],
                s=34,
                c=face,
                edgecolors=colour,
                zorder=3,
            )
    values = [point.value for point in points]
    middle = [_median(trial_df[trial_df[factor] == point.level], response) for point in points]
    axes.plot(values, middle, color=GREY, lw=1.6, zorder=2, label="went through")
    axes.plot(values, values, color=INK, lw=1.0, ls=(0, (1, 2)), label="the cap")
    axes.set_xscale("log")
    axes.set_yscale("log")
    format_value_axis(axes, response)
    axes.set_ylabel(response_title(response))


def _median(rows: pd.DataFrame, response: str) -> float:
    """Return the median of the included trials, or of all if none is included."""
    counted = rows[rows["is_included"]][response]
    return float((rows[response] if counted.dropna().empty else counted).median())


def _format_axes(axes: Axes, sweep: Sweep) -> None:
    names = {point.value: point.name for point in sweep.points}
    axes.xaxis.set_major_locator(FixedLocator(list(names)))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value, "")))
    axes.set_xlabel(sweep.property)
    if sweep.knee.value:
        axes.axvline(sweep.knee.value, color=GREY, lw=1.2, ls=(0, (6, 3)))
        axes.annotate(
            "knee",
            (sweep.knee.value, 1),
            xycoords=("data", "axes fraction"),
            va="bottom",
            ha="center",
            fontsize=8.5,
        )
    draw_legend(axes, inside=True)
