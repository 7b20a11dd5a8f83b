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
from analysis.formatting import label, quantity, title
from analysis.summaries.cells import treatments


def curve_figure(run: Run, trial_df: pd.DataFrame, response: str, look: Mapping[str, TreatmentStyle]) -> Figure | None:
    """The response over the numeric factor, one line for each combination of the others; None without such a factor."""
    numeric = numeric_factor(run)
    if numeric is None or response not in trial_df:
        return None
    factor, values = numeric
    lines = lines_of(run, trial_df, response, factor)
    if not lines:
        return None
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    axes, places = figure.subplots(), _places(values)
    for rows in lines.values():
        _curve(axes, rows, factor, places, response, look)
    has_zero = any((rows[response] <= 0).any() for rows in lines.values())
    _finish(axes, response, factor, places, has_zero=has_zero)
    legend(axes)
    return figure


def lines_of(run: Run, trial_df: pd.DataFrame, response: str, factor: str) -> dict[str, pd.DataFrame]:
    """The included trials that have the response, by their levels of all factors but the one on the axis.

    Lines stand in the plan's order; one with a single place on the axis is none.
    """
    rows = trial_df[trial_df["is_included"] & trial_df[response].notna()]
    others = [name for name in run.factors if name != factor and name not in run.layout.constant]
    names = pd.Series([label({name: row[name] for name in others}) for _, row in rows.iterrows()], index=rows.index)
    planned = dict.fromkeys(label({name: treatment[name] for name in others}) for treatment in treatments(run))
    found = {name: rows[names == name] for name in planned}
    return {name: one for name, one in found.items() if len(one) and one[factor].nunique() > 1}


def _places(values: Mapping[str, float]) -> dict[str, float]:
    """Where a level stands on a log axis: nothing stands half as far as the smallest that is something."""
    least = min((value for value in values.values() if value > 0), default=1.0)
    return {level: value or least / 2 for level, value in values.items()}


def _curve(
    axes: Axes,
    rows: pd.DataFrame,
    factor: str,
    places: Mapping[str, float],
    response: str,
    look: Mapping[str, TreatmentStyle],
) -> None:
    """A point a trial and a line through the medians; grey where each of its treatments has a colour of its own."""
    drawn = [look[name] for name in rows["treatment"]]
    is_one_group = len({one.number for one in drawn}) == 1
    first, x = drawn[0], rows[factor].map(places)
    colour = first.colour if is_one_group else GREY
    marker = MARKERS[first.number % len(MARKERS)]
    axes.scatter(x, rows[response], s=22, marker=marker, c=[one.colour for one in drawn], alpha=0.6, zorder=3)
    middle = rows.groupby(x)[response].median().sort_index()
    line = LINES[first.number // len(COLOURS) % len(LINES)]
    name = first.group if is_one_group else ""
    axes.plot(
        middle.index, middle, color=colour, ls=line, lw=1.6, marker=marker if is_one_group else "", ms=5, label=name
    )


def _finish(axes: Axes, response: str, factor: str, places: Mapping[str, float], *, has_zero: bool) -> None:
    axes.set_xscale("log")
    axes.set_yscale("linear" if has_zero else "log")
    axes.xaxis.set_major_locator(FixedLocator(list(places.values())))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    names = {place: level for level, place in places.items()}
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value, "")))
    quantities(axes, response)
    axes.set_xlabel(factor.replace("_", " "))
    axes.set_ylabel(title(response))


def quantities(axes: Axes, response: str) -> None:
    """An axis of a response, with as many figures on a log axis as its decades leave room for."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(response, value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log" and high / low < TWO_DECADES:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))


def legend(axes: Axes, *, inside: bool = False) -> None:
    """What the colours mean, each once, and nothing where there is one line that needs no name."""
    handles, names = axes.get_legend_handles_labels()
    once = dict(zip(names, handles, strict=True))
    if len(once) > 1:
        where = {"loc": "best"} if inside else {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
        axes.legend(once.values(), once.keys(), fontsize=8.5, **where)
