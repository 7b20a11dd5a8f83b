"""Curves: a response over a factor whose levels are numbers."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from analysis.data.load import Run
from analysis.figures.charts import TWO_DECADES, WIDTH
from analysis.figures.style import COLOURS, GREY, LINES, MARKERS, TreatmentStyle, numeric_factor
from analysis.formatting import format_quantity, response_title, treatment_label
from analysis.summaries.cells import treatments


def curve_figure(
    run: Run, trial_df: pd.DataFrame, response: str, styles: Mapping[str, TreatmentStyle]
) -> Figure | None:
    """Draw the response over the numeric factor, one line per combination of the other factors.

    None without a numeric factor.
    """
    numeric = numeric_factor(run)
    if numeric is None or response not in trial_df:
        return None
    factor, values = numeric
    lines = curve_lines(run, trial_df, response, factor)
    if not lines:
        return None
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    axes, positions = figure.subplots(), _axis_positions(values)
    for rows in lines.values():
        _draw_curve(axes, rows, factor, positions, response, styles)
    has_zero = any((rows[response] <= 0).any() for rows in lines.values())
    _format_axes(axes, response, factor, positions, has_zero=has_zero)
    draw_legend(axes)
    return figure


def curve_lines(
    run: Run, trial_df: pd.DataFrame, response: str, factor: str
) -> dict[str, pd.DataFrame]:
    """Return the included trials with the response, by the levels of all factors not on the axis.

    Lines are in the plan's order; a line with a single point on the axis is left out.
    """
    rows = trial_df[trial_df["is_included"] & trial_df[response].notna()]
    others = [name for name in run.factors if name != factor and name not in run.layout.constant]
    names = pd.Series(
        [treatment_label({name: row[name] for name in others}) for _, row in rows.iterrows()],
        index=rows.index,
    )
    planned = dict.fromkeys(
        treatment_label({name: treatment[name] for name in others}) for treatment in treatments(run)
    )
    found = {name: rows[names == name] for name in planned}
    return {name: one for name, one in found.items() if len(one) and one[factor].nunique() > 1}


def _axis_positions(values: Mapping[str, float]) -> dict[str, float]:
    """Return the position of each level on a log axis; zero is at half the smallest other value."""
    least = min((value for value in values.values() if value > 0), default=1.0)
    return {level: value or least / 2 for level, value in values.items()}


def _draw_curve(
    axes: Axes,
    rows: pd.DataFrame,
    factor: str,
    positions: Mapping[str, float],
    response: str,
    styles: Mapping[str, TreatmentStyle],
) -> None:
    """Draw one point per trial and a line through the medians.

    The line is grey if its treatments have different colours.
    """
    point_styles = [styles[name] for name in rows["treatment"]]
    is_one_group = len({one.number for one in point_styles}) == 1
    first, x = point_styles[0], rows[factor].map(positions)
    colour = first.colour if is_one_group else GREY
    marker = MARKERS[first.number % len(MARKERS)]
    axes.scatter(
        x,
        rows[response],
        s=22,
        marker=marker,
        c=[one.colour for one in point_styles],
        alpha=0.6,
        zorder=3,
    )
    middle = rows.groupby(x)[response].median().sort_index()
    line = LINES[first.number // len(COLOURS) % len(LINES)]
    name = first.group if is_one_group else ""
    axes.plot(
        middle.index,
        middle,
        color=colour,
        ls=line,
        lw=1.6,
        marker=marker if is_one_group else "",
        ms=5,
        label=name,
    )


def _format_axes(
    axes: Axes, response: str, factor: str, positions: Mapping[str, float], *, has_zero: bool
) -> None:
    axes.set_xscale("log")
    axes.set_yscale("linear" if has_zero else "log")
    axes.xaxis.set_major_locator(FixedLocator(list(positions.values())))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    names = {position: level for level, position in positions.items()}
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value, "")))
    format_value_axis(axes, response)
    axes.set_xlabel(factor.replace("_", " "))
    axes.set_ylabel(response_title(response))


def format_value_axis(axes: Axes, response: str) -> None:
    """Format the axis of a response; a log axis gets more labels if it spans few decades."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_quantity(response, value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log" and high / low < TWO_DECADES:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))


def draw_legend(axes: Axes, *, inside: bool = False, is_needed: bool = False) -> None:
    """Draw a legend with each name once; a single name has one only if it is needed."""
    handles, names = axes.get_legend_handles_labels()
    once = dict(zip(names, handles, strict=True))
    if len(once) > 1 or (once and is_needed):
        where = {"loc": "best"} if inside else {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
        axes.legend(once.values(), once.keys(), fontsize=8.5, **where)
