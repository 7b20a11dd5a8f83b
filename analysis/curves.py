"""Curves: a response over a factor whose levels are numbers, and latencies over how rare they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from analysis.figures import TWO_DECADES, WIDTH
from analysis.levels import numbers
from analysis.load import Run
from analysis.look import COLOURS, LINES, MARKERS, Look, looks
from analysis.wording import label, quantity, title

_MOST_LINES = 14
"""More lines than this cannot be told apart."""
_APART = tuple(COLOURS[place] for place in (0, 4, 2, 3, 5, 1, 6))
"""The project's colours, neighbours as different as can be."""
_PERCENTILE = re.compile(r"^(?P<what>.+)_p(?P<digits>[0-9]+)_(?P<unit>us|ms|ns|seconds)$")


def numeric_factor(run: Run) -> tuple[str, dict[str, float]] | None:
    """The factor with the most levels that are numbers and vary in this run; of two the later one."""
    found = None
    for name in run.factors:
        used = [v for v in run.factors[name] if any(trial["treatment"][name] == v for trial in run.plan["trials"])]
        known = numbers(used)
        if known and (found is None or len(known) >= len(found[1])):
            found = name, known
    return found


def curve_figure(run: Run, trial_df: pd.DataFrame, response: str) -> Figure | None:
    """The response over the numeric factor, one line for each combination of the others; None without such a factor."""
    numeric = numeric_factor(run)
    if numeric is None or response not in trial_df:
        return None
    factor, values = numeric
    rows = trial_df[trial_df["is_included"] & trial_df[response].notna()].copy()
    others = [name for name in run.factors if name != factor and name not in run.layout.constant]
    rows["line"] = [label({name: row[name] for name in others}) for _, row in rows.iterrows()]
    lines = [str(name) for name, one in rows.groupby("line", sort=False) if one[factor].nunique() > 1]
    if not lines:
        return None
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    axes, places = figure.subplots(), _places(values)
    shown = rows[rows["line"].isin(lines)]
    groups = _groups(run, shown, "line", others, response, _in_plan_order(run, others, lines))
    for name, (number, told) in groups.items():
        _curve(axes, rows[rows["line"] == name], factor, places, response, told, number)
    _finish(axes, response, factor, places, has_zero=bool((rows[response] <= 0).any()))
    _legend(axes)
    return figure


def _groups(
    run: Run, rows: pd.DataFrame, key: str, factors: Sequence[str], response: str, order: Sequence[str]
) -> dict[str, tuple[int, str]]:
    """For each line the number of its colour and what the legend says: all of its levels.

    Where there are too many to tell apart it is the level of the one factor that tells most of the response.
    """
    if len(order) <= _MOST_LINES:
        return {name: (number, name) for number, name in enumerate(order)}
    factor = max(factors, key=lambda one: _explained(rows, one, response))
    levels = {name: str(rows[rows[key] == name][factor].iloc[0]) for name in order}
    used = [level for level in run.factors[factor] if level in levels.values()]
    return {name: (used.index(level), f"{factor} {level}") for name, level in levels.items()}


def _explained(rows: pd.DataFrame, factor: str, response: str) -> float:
    """How far apart the levels of a factor are on a log axis."""
    logs = np.log(rows[response].where(rows[response] > 0))
    return float(logs.groupby(rows[factor]).median().std(ddof=0))


def _in_plan_order(run: Run, others: Sequence[str], lines: Sequence[str]) -> list[str]:
    planned = dict.fromkeys(label({name: trial["treatment"][name] for name in others}) for trial in run.plan["trials"])
    order = {name: place for place, name in enumerate(planned)}
    return sorted(lines, key=lambda name: order.get(name, len(order)))


def _places(values: Mapping[str, float]) -> dict[str, float]:
    """Where a level stands on a log axis: nothing stands half as far as the smallest that is something."""
    least = min((value for value in values.values() if value > 0), default=1.0)
    return {level: value or least / 2 for level, value in values.items()}


def _curve(
    axes: Axes, rows: pd.DataFrame, factor: str, places: Mapping[str, float], response: str, name: str, number: int
) -> None:
    colour, marker = _APART[number % len(_APART)], MARKERS[number % len(MARKERS)]
    x = rows[factor].map(places)
    axes.scatter(x, rows[response], s=22, marker=marker, color=colour, alpha=0.6)
    middle = rows.groupby(x)[response].median().sort_index()
    line = LINES[number // len(COLOURS) % len(LINES)]
    axes.plot(middle.index, middle, color=colour, ls=line, lw=1.6, marker=marker, ms=5, label=name)


def _finish(axes: Axes, response: str, factor: str, places: Mapping[str, float], *, has_zero: bool) -> None:
    axes.set_xscale("log")
    axes.set_yscale("linear" if has_zero else "log")
    axes.xaxis.set_major_locator(FixedLocator(list(places.values())))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    names = {place: level for level, place in places.items()}
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value, "")))
    _quantities(axes, response)
    axes.set_xlabel(factor.replace("_", " "))
    axes.set_ylabel(title(response))


def _quantities(axes: Axes, response: str) -> None:
    """An axis of a response, with as many figures on a log axis as its decades leave room for."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(response, value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log" and high / low < TWO_DECADES:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))


def _legend(axes: Axes) -> None:
    """What the colours mean, each once, and nothing where there is one line that needs no name."""
    handles, names = axes.get_legend_handles_labels()
    once = dict(zip(names, handles, strict=True))
    once.pop("", None)
    if len(once) > 1:
        axes.legend(once.values(), once.keys(), loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8.5)


def percentiles(columns: Sequence[str]) -> dict[str, dict[str, float]]:
    """Responses by what they are percentiles of, each with the share that is slower: `x_p999_us` is 0.001."""
    found: dict[str, dict[str, float]] = {}
    for column in columns:
        match = _PERCENTILE.match(column)
        if match:
            share = 1 - float(f"0.{match['digits']}")
            found.setdefault(f"{match['what']}_{match['unit']}", {})[column] = share
    return {what: named for what, named in found.items() if len(named) > 1}


def latency_figures(run: Run, trial_df: pd.DataFrame) -> dict[str, Figure]:
    """For each latency that has percentiles, a figure of them by what it is of; both axes are logarithmic."""
    found = {}
    for what, named in percentiles(list(trial_df.columns)).items():
        rows = trial_df[trial_df["is_included"]].dropna(subset=list(named), how="all")
        if len(rows):
            found[what.rpartition("_")[0]] = _latency(run, rows, named)
    return found


def _latency(run: Run, rows: pd.DataFrame, named: Mapping[str, float]) -> Figure:
    figure = Figure(figsize=(WIDTH, 4.8), layout="constrained")
    axes, order = figure.subplots(), sorted(named, key=lambda column: -named[column])
    look = {name: one for name, one in looks(run).items() if name in set(rows["treatment"])}
    factors = [name for name in run.factors if name not in run.layout.constant]
    for name, (number, told) in _groups(run, rows, "treatment", factors, order[-1], list(look)).items():
        one = look[name] if told == name else Look(told, _APART[number % len(_APART)], ".", "-")
        _latency_line(axes, rows[rows["treatment"] == name][order].median(), named, one)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.invert_xaxis()
    axes.xaxis.set_major_locator(FixedLocator([named[column] for column in order]))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * (1 - share):.6g} %"))
    _quantities(axes, order[0])
    axes.set_xlabel("of all are quicker than this")
    _legend(axes)
    return figure


def _latency_line(axes: Axes, middle: pd.Series, named: Mapping[str, float], look: Look) -> None:
    known = middle[middle > 0].dropna()
    axes.plot(
        [named[str(column)] for column in known.index], known, color=look.colour, ls=look.line, marker=look.marker,
        ms=4.5, lw=1.5, label=look.name,
    )  # fmt: skip
