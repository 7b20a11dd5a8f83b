"""Figure of a sweep: measured and predicted figures, and the throughput beside the cap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from analysis.figures.charts import WIDTH
from analysis.figures.curves import draw_legend, format_value_axis
from analysis.figures.style import GREY, INK, TreatmentStyle
from analysis.formatting import response_title
from analysis.summaries.sweeps import Sweep, SweepPoint

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
