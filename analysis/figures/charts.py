"""Figures that show single trials: strips, residency maps and read-ahead sizes."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis.figures import panels
from analysis.figures.style import TreatmentStyle
from analysis.formatting import format_quantity, response_title
from pagecage.units import format_bytes

WIDTH = 10.8
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
        axes.annotate(
            text,
            (value, 1),
            xycoords=("data", "axes fraction"),
            va="bottom",
            ha="center",
            fontsize=8,
        )
    axes.set_xlabel(response_title(response) + (" (log)" if axes.get_xscale() == "log" else ""))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_quantity(response, value)))
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
    found = {name: _changing(vmtouch_df[vmtouch_df["treatment"] == name]) for name in styles}
    return {name: rows for name, rows in found.items() if rows is not None}


def residency_figure(
    shown: Mapping[str, pd.DataFrame], styles: Mapping[str, TreatmentStyle]
) -> Figure | None:
    """Draw one panel per trial; None if there is no trial."""
    if not shown:
        return None
    height = -(-len(shown) // ACROSS)
    figure = Figure(figsize=(WIDTH, 3.4 * height), layout="constrained")
    panels = figure.subplots(height, min(ACROSS, len(shown)), squeeze=False)
    for axes in panels.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, (name, rows) in zip(panels.flat, shown.items(), strict=False):
        _residency_panel(axes, rows, styles[name])
    return figure


def _residency_panel(axes: Axes, rows: pd.DataFrame, style: TreatmentStyle) -> None:
    panels.residency(axes, rows, style.colour)
    axes.set_title(wrapped_label(style.name))
    axes.set_xlabel("position in the file, %")
    position = axes.get_subplotspec()
    if position and position.is_first_col():
        axes.set_ylabel("seconds since go")


def _changing(rows: pd.DataFrame) -> pd.DataFrame | None:
    for _, one in rows.groupby("trial_id", sort=False):
        if one["resident_pages"].nunique() > 1:
            return one
    return None


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
