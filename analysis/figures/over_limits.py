"""Pictures over a limit: the figures of a sweep, and the time and refaults of a memory search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from analysis.figures.charts import WIDTH, draw_legend, format_levels
from analysis.figures.style import COLOURS, GREY, INK, Styles, format_value_axis, mark_value
from analysis.formatting import format_quantity, response_title
from analysis.memory import MemoryRun, memory_points
from analysis.sweep import Sweep, SweepPoint, sweep_sentences
from pagecage.units import format_bytes, format_seconds

_THROUGH = {
    "IOReadBandwidthMax": "device_read_bytes_per_second",
    "IOWriteBandwidthMax": "device_write_bytes_per_second",
    "IOReadIOPSMax": "device_reads_per_second",
    "IOWriteIOPSMax": "device_writes_per_second",
}
"""The response that each cap limits."""


def sweep_figure(
    sweep: Sweep, factor: str, trial_df: pd.DataFrame, styles: Styles
) -> Figure | None:
    points = [point for point in sweep.points if point.measured is not None]
    if len(points) < 2:
        return None
    through = _THROUGH.get(sweep.property, "")
    has_throughput = through in trial_df
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    panels = figure.subplots(1, 1 + has_throughput, squeeze=False)[0]
    colours = {str(row[factor]): styles[row["treatment"]].colour for _, row in trial_df.iterrows()}
    _draw_figures(panels[0], points, colours)
    format_value_axis(panels[0].yaxis, sweep.response or "read_seconds")
    panels[0].set_ylabel(response_title(sweep.response) if sweep.response else "time")
    if has_throughput:
        _draw_throughput(panels[1], points, trial_df, factor, through, colours)
    names = {point.value: point.name for point in sweep.points}
    for axes in panels:
        format_levels(axes, names)
        axes.set_xlabel(sweep.property)
        if sweep.knee.value:
            mark_value(axes, sweep.knee.value, "knee", size=8.5)
    return figure


def _draw_figures(axes: Axes, points: Sequence[SweepPoint], colours: Mapping[str, str]) -> None:
    values, figures = [one.value for one in points], [one.measured or 0.0 for one in points]
    axes.plot(values, figures, color=GREY, lw=1.6, label="measured")
    for point, figure in zip(points, figures, strict=True):
        colour = colours[point.level]
        face = colour if point.is_counted else "none"
        axes.plot(point.value, figure, marker="o", ms=7, mec=colour, mfc=face)
    predictions = [(one.value, one.predicted) for one in points if one.predicted is not None]
    if predictions:
        look: dict[str, Any] = {"color": INK, "lw": 1.2, "ls": (0, (4, 3)), "marker": "x", "ms": 6}
        axes.plot(*zip(*predictions, strict=True), label="predicted", **look)
    axes.set(xscale="log", yscale="log")


def _draw_throughput(
    axes: Axes,
    points: Sequence[SweepPoint],
    trial_df: pd.DataFrame,
    factor: str,
    response: str,
    colours: Mapping[str, str],
) -> None:
    values, middle = [point.value for point in points], []
    for point in points:
        colour, of_level = colours[point.level], trial_df[trial_df[factor] == point.level]
        for is_included, chosen in of_level.dropna(subset=[response]).groupby("is_included"):
            face, x = colour if is_included else "none", [point.value] * len(chosen)
            axes.scatter(x, chosen[response], s=34, c=face, edgecolors=colour, zorder=3)
        counted = of_level[of_level["is_included"]][response].dropna()
        middle.append((of_level[response] if counted.empty else counted).median())
    axes.plot(values, middle, color=GREY, lw=1.6, zorder=2, label="went through")
    axes.plot(values, values, color=INK, lw=1.0, ls=(0, (1, 2)), label="the cap")
    axes.set(xscale="log", yscale="log", ylabel=response_title(response))
    format_value_axis(axes.yaxis, response)


def sweep_alt_text(sweep: Sweep) -> str:
    timed = [(point.level, point.measured) for point in sweep.points if point.measured is not None]
    response = sweep.response or "read_seconds"
    first, last = (
        f"{format_quantity(response, figure)} at {level}" for level, figure in (timed[0], timed[-1])
    )
    figure = response_title(sweep.response) if sweep.response else "Time"
    conclusions = " ".join(sweep_sentences(sweep))
    return f"{figure} and throughput over {sweep.property}: {first}, {last}. {conclusions}"


def memory_figure(found: MemoryRun) -> Figure | None:
    """Draw time and refaults, with the needs as lines and the reference at its own memory."""
    points = memory_points(found)
    if len(points) < 2:
        return None
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    times, refaults = figure.subplots(1, 2)
    line = {"marker": "o", "ms": 5, "lw": 1.6}
    # The levels at which the OOM killer or the time limit ended a trial, at the top.
    ended = [(size, 0.97) for size, step in points if step.outcome != "ok" or step.oom_kills]
    timed = [(size, step.seconds) for size, step in points if step.seconds is not None]
    _draw(times, timed, color=COLOURS[0], label="counts", **line)
    excluded = [
        (size, step.shown_seconds)
        for size, step in points
        if step.seconds is None and step.shown_seconds is not None and step.outcome == "ok"
    ]
    _draw(times, excluded, color=COLOURS[0], marker="o", mfc="none", ls="", label="excluded")
    counted = [(x, s.refaults) for x, s in points if s.refaults is not None and not s.oom_kills]
    _draw(refaults, counted, color=COLOURS[1], label="pages", **line)
    for axes, criterion in ((times, "time"), (refaults, "refaults")):
        top = axes.get_xaxis_transform()
        _draw(axes, ended, color=INK, marker="x", ls="", label="killed or given up", transform=top)
        for need in found.answer.needs if found.answer else ():
            if need.criterion == criterion:
                text = f"needed: {format_bytes(need.needed_bytes)}"
                mark_value(axes, need.needed_bytes, text, size=8.5)
    times.yaxis.set_major_formatter(lambda value, _: format_seconds(value))
    times.set(ylim=(0, 1.1 * times.get_ylim()[1]), ylabel="time")
    refaults.set_yscale("symlog", linthresh=100)
    refaults.set_ylim(bottom=0)
    refaults.set_ylabel("pages read again")
    for axes in (times, refaults):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: format_bytes(value))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("MemoryMax")
        draw_legend(axes, inside=True)
    return figure


def _draw(axes: Axes, pairs: Sequence[tuple[float, float]], **look: Any) -> None:
    axes.plot([x for x, _ in pairs], [y for _, y in pairs], **look)
