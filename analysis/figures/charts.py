"""Whole figures of a run: which panels there are, what stands on their axes."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis.figures import panels
from analysis.figures.style import TreatmentStyle
from analysis.formatting import quantity, title

WIDTH = 10.8
TWO_DECADES = 100
"""A log axis that spans less has room for more figures than the powers of ten."""
ACROSS = 4
"""Panels side by side."""


def strip_figure(
    trial_df: pd.DataFrame, response: str, look: Mapping[str, TreatmentStyle], marks: Mapping[str, float] | None = None
) -> Figure:
    """Every trial as a point; `marks` are values to draw a line at."""
    look = {name: one for name, one in look.items() if name in set(trial_df["treatment"])}
    figure = Figure(figsize=(WIDTH, 1.0 + 0.34 * len(look)))
    axes = panels.strip(figure.subplots(), trial_df, response, look)
    for text, value in (marks or {}).items():
        axes.axvline(value, color="#8A8A8A", lw=1, ls=(0, (4, 3)))
        axes.annotate(text, (value, 1), xycoords=("data", "axes fraction"), va="bottom", ha="center", fontsize=8)
    axes.set_xlabel(title(response) + (" (log)" if axes.get_xscale() == "log" else ""))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(response, value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_xlim()
    if axes.get_xscale() == "log" and high / low < TWO_DECADES:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    return figure


def two_lines(name: str) -> str:
    """A treatment's label, its last level on a line of its own, so that neighbours do not run into one another."""
    head, _, last = name.rpartition(" · ")
    return f"{head}\n{last}"


def changing_residency(vmtouch_df: pd.DataFrame, look: Mapping[str, TreatmentStyle]) -> dict[str, pd.DataFrame]:
    """By treatment the rows of the first trial whose resident pages are not the same all the time."""
    found = {name: _changing(vmtouch_df[vmtouch_df["treatment"] == name]) for name in look}
    return {name: rows for name, rows in found.items() if rows is not None}


def residency_figure(shown: Mapping[str, pd.DataFrame], look: Mapping[str, TreatmentStyle]) -> Figure | None:
    """One panel for each of these trials; None where there is none."""
    if not shown:
        return None
    height = -(-len(shown) // ACROSS)
    figure = Figure(figsize=(WIDTH, 3.4 * height), layout="constrained")
    panels = figure.subplots(height, min(ACROSS, len(shown)), squeeze=False)
    for axes in panels.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, (name, rows) in zip(panels.flat, shown.items(), strict=False):
        _residency_panel(axes, rows, look[name])
    return figure


def _residency_panel(axes: Axes, rows: pd.DataFrame, look: TreatmentStyle) -> None:
    panels.residency(axes, rows, look.colour)
    axes.set_title(two_lines(look.name))
    axes.set_xlabel("place in the file, %")
    place = axes.get_subplotspec()
    if place and place.is_first_col():
        axes.set_ylabel("seconds since go")


def _changing(rows: pd.DataFrame) -> pd.DataFrame | None:
    for _, one in rows.groupby("trial_id", sort=False):
        if one["resident_pages"].nunique() > 1:
            return one
    return None


def readahead_figure(readahead_df: pd.DataFrame, look: Mapping[str, TreatmentStyle]) -> Figure | None:
    """Sizes of the kernel's read-ahead requests, in pages, by treatment."""
    if readahead_df.empty:
        return None
    names = [name for name in look if name in set(readahead_df["treatment"])]
    figure = Figure(figsize=(WIDTH, 1.2 + 0.52 * len(names)))
    axes = panels.readahead(figure.subplots(), readahead_df, look)
    axes.set_xlabel("pages asked for at once (4 KiB each)")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return figure
