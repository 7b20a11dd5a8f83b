"""Dots and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from analysis.cells import treatments
from analysis.comparison import Comparison, ComparisonRow, run_letter, varying_label
from analysis.data.load import Run
from analysis.figures import panels
from analysis.figures.style import (
    COLOURS,
    GREY,
    MARKERS,
    TreatmentStyle,
    numeric_factor,
    quantity_formatter,
)
from analysis.formatting import response_title, treatment_label
from pagecage.units import format_bytes

WIDTH = 8.6
"""Inches. A page shrinks a figure to 36rem, at which its text is still legible."""
TWO_DECADES = 100
"""A log axis that spans less has room for labels between the powers of ten."""
ACROSS = 4
"""Panels side by side."""


def strip_figure(
    trial_df: pd.DataFrame,
    response: str,
    styles: Mapping[str, TreatmentStyle],
    marks: Mapping[str, float] | None = None,
) -> Figure:
    """Draw every trial as a point, and a line at each of the values in `marks`."""
    styles = {name: one for name, one in styles.items() if name in set(trial_df["treatment"])}
    figure = Figure(figsize=(WIDTH, 1.0 + 0.34 * len(styles)))
    axes = panels.strip(figure.subplots(), trial_df, response, styles)
    for text, value in (marks or {}).items():
        axes.axvline(value, color="#8A8A8A", lw=1, ls=(0, (4, 3)))
        where = ("data", "axes fraction")
        axes.annotate(text, (value, 1), xycoords=where, va="bottom", ha="center", fontsize=8)
    axes.set_xlabel(response_title(response) + (" (log)" if axes.get_xscale() == "log" else ""))
    axes.xaxis.set_major_formatter(quantity_formatter(response))
    axes.xaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_xlim()
    if axes.get_xscale() == "log" and high / low < TWO_DECADES:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    return figure


def wrapped_label(name: str) -> str:
    """Return a label with its last level on its own line, so that neighbours do not overlap."""
    head, _, last = name.rpartition(" · ")
    return f"{head}\n{last}"


def changing_residency(
    vmtouch_df: pd.DataFrame, styles: Mapping[str, TreatmentStyle]
) -> dict[str, pd.DataFrame]:
    """Return, by treatment, the rows of the first trial whose number of resident pages changes."""
    found = {}
    for name in styles:
        rows = vmtouch_df[vmtouch_df["treatment"] == name]
        trials = (trial for _, trial in rows.groupby("trial_id", sort=False))
        changing = (trial for trial in trials if trial["resident_pages"].nunique() > 1)
        if (first := next(changing, None)) is not None:
            found[name] = first
    return found


def residency_figure(
    shown: Mapping[str, pd.DataFrame], styles: Mapping[str, TreatmentStyle]
) -> Figure | None:
    """Draw one panel per trial; None if there is no trial."""
    if not shown:
        return None
    figure = Figure(figsize=(WIDTH, 3.4 * -(-len(shown) // ACROSS)), layout="constrained")
    stacks = stacked_axes(figure, len(shown), ["seconds since go"])
    for [axes], (name, rows) in zip(stacks, shown.items(), strict=True):
        panels.residency(axes, rows, styles[name].colour)
        axes.set_title(wrapped_label(styles[name].name))
        axes.set_xlabel("position in the file, %")
    return figure


def stacked_axes(figure: Figure, count: int, labels: Sequence[str]) -> list[list[Axes]]:
    """Return axes one below the other for each of `count` treatments, ACROSS of them side by side.

    The `labels` of the vertical axes are written once, on the left.
    """
    across, height = min(ACROSS, count), -(-count // ACROSS)
    grid = figure.subplots(len(labels) * height, across, squeeze=False)
    stacks = []
    for position in range(height * across):
        row, column = divmod(position, across)
        stack = [grid[row * len(labels) + depth][column] for depth in range(len(labels))]
        for axes, label in zip(stack, labels, strict=True):
            axes.set_visible(position < count)
            axes.set_ylabel(label if column == 0 else "")
        stacks.append(stack)
    return stacks[:count]


def readahead_figure(
    readahead_df: pd.DataFrame, styles: Mapping[str, TreatmentStyle], page_bytes: int
) -> Figure | None:
    """Draw the sizes of the kernel's read-ahead requests, in pages, by treatment."""
    if readahead_df.empty:
        return None
    names = [name for name in styles if name in set(readahead_df["treatment"])]
    figure = Figure(figsize=(WIDTH, 1.2 + 0.52 * len(names)))
    axes = panels.readahead(figure.subplots(), readahead_df, styles)
    axes.set_xlabel(f"pages per request ({format_bytes(page_bytes)} each)")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return figure


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
    least = min((value for value in values.values() if value > 0), default=1.0)
    axes, positions = (
        figure.subplots(),
        ({level: value or least / 2 for level, value in values.items()}),
    )
    for name, rows in lines.items():
        _draw_curve(axes, rows, factor, positions, response, styles, name)
    has_zero = any((rows[response] <= 0).any() for rows in lines.values())
    axes.set_xscale("log")
    axes.set_yscale("linear" if has_zero else "log")
    axes.xaxis.set_major_locator(FixedLocator(list(positions.values())))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    names = {position: level for level, position in positions.items()}
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value, "")))
    format_value_axis(axes, response)
    axes.set_xlabel(factor.replace("_", " "))
    axes.set_ylabel(response_title(response))
    label_lines(axes)
    return figure


def label_lines(axes: Axes) -> None:
    """Write the name of each line at its right end, moved apart where lines end close together."""
    named = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    lines = [line for line in named if np.size(line.get_xdata())]
    points = [np.asarray(line.get_xydata()) for line in lines]
    ends = [(float(of[-1, 0]), float(of[-1, 1])) for of in points]
    if len(lines) < 2:
        return
    to_share = axes.transData + axes.transAxes.inverted()
    wanted = sorted((float(to_share.transform(end)[1]), number) for number, end in enumerate(ends))
    least, placed = min(_LABEL_HEIGHT, 1 / len(wanted)), list[float]()
    for share, _ in wanted:
        placed.append(max(share, placed[-1] + least) if placed else max(0.0, share))
    for place in reversed(range(len(placed))):
        highest = 1.0 if place == len(placed) - 1 else placed[place + 1] - least
        placed[place] = min(placed[place], highest)
    arrow = {"arrowstyle": "-", "lw": 0.8, "alpha": 0.7, "relpos": (0, 0.5), "shrinkA": 1}
    look: dict[str, Any] = {"va": "center", "fontsize": 9, "annotation_clip": False}
    for share, (_, number) in zip(placed, wanted, strict=True):
        name, at = str(lines[number].get_label()), (1.03, share)
        look["arrowprops"] = {**arrow, "color": lines[number].get_color()}
        axes.annotate(name, ends[number], at, textcoords="axes fraction", **look)


_LABEL_HEIGHT = 0.055
"""Height of a label as a share of the axes' height."""


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


def _draw_curve(
    axes: Axes,
    rows: pd.DataFrame,
    factor: str,
    positions: Mapping[str, float],
    response: str,
    styles: Mapping[str, TreatmentStyle],
    name: str,
) -> None:
    """Draw one point per trial and a line through the medians."""
    point_styles = [styles[name] for name in rows["treatment"]]
    is_one_group = len({one.number for one in point_styles}) == 1
    first, x = point_styles[0], rows[factor].map(positions)
    marker, colours = first.curve_marker, [one.colour for one in point_styles]
    axes.scatter(x, rows[response], s=22, marker=marker, c=colours, alpha=0.6, zorder=3)
    middle = rows.groupby(x)[response].median().sort_index()
    colour = first.colour if is_one_group else GREY
    look: dict[str, Any] = {"ls": first.curve_line, "lw": 1.6, "ms": 5}
    look |= {"marker": marker if is_one_group else "", "label": name}
    axes.plot(middle.index, middle, color=colour, **look)


def format_value_axis(axes: Axes, response: str) -> None:
    """Format the axis of a response; a log axis gets more labels if it spans few decades."""
    axes.yaxis.set_major_formatter(quantity_formatter(response))
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


_HEIGHT_SHARE = 0.9
"""Share of a treatment's height that its runs occupy."""
_DECADE = 10
"""A log axis that spans less has no second power of ten to label."""
RATIO_ALT = "Ratios of medians with their intervals; the noise floor is grey"
_RUN_COLOURS = tuple(COLOURS[position] for position in (0, 4, 2, 3, 5, 1, 6))


def ratio_figure(comparison: Comparison, rows: Sequence[ComparisonRow]) -> Figure | None:
    """Draw the ratios with intervals on a log axis, and the noise floor as a band around 1.

    None without ratios.
    """
    rows = [row for row in rows if any(one.ratio and one.ratio.low > 0 for one in row.changes)]
    if not rows:
        return None
    figure = Figure(figsize=(WIDTH, 1.0 + 0.34 * len(rows)))
    axes, count = figure.subplots(), len(comparison.runs) - 1
    axes.axvline(1, color=GREY, lw=1)
    for position, row in enumerate(rows):
        for number, change in enumerate(row.changes):
            at, ratio = position + _HEIGHT_SHARE * ((number + 0.5) / count - 0.5), change.ratio
            colour = _RUN_COLOURS[number % len(_RUN_COLOURS)]
            if change.floor:
                share, thick = 1 + change.floor.share, 0.5 / count
                left, width = 1 / share, share - 1 / share
                axes.barh(at, width, thick, left=left, color=GREY, alpha=0.3, lw=0)
            if ratio and ratio.low > 0 and ratio.high < float("inf"):
                axes.plot([ratio.low, ratio.high], [at, at], color=colour, lw=1.6)
                marker, label = MARKERS[number % len(MARKERS)], run_letter(number + 1)
                axes.plot([ratio.middle], [at], color=colour, marker=marker, ls="none", label=label)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    if high / low < _DECADE:
        axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(rows)), [varying_label(comparison, row.treatment) for row in rows])
    axes.invert_yaxis()
    draw_legend(axes, is_needed=count > 1)
    return figure
