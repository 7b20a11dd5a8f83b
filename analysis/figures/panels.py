"""Single panels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, to_rgb

from analysis.figures.style import GREY, INK, TreatmentStyle

JITTER = 0.16
BAR_HEIGHT = 0.08
"""Greatest height of one bar, as a share of the measured time."""
MOST_POINTS = 2000
"""Greatest number of points per panel; more would fall on the same pixels."""
FEWEST_POINTS = 30
"""Least number of points per trial, however many trials share a panel."""
FEWEST_BARS = 8
"""With fewer bars in the measured part, a time axis would be nearly empty."""
_SHARE_BY_SIGN = {" ": 0.0, "o": 0.5, "O": 1.0}


def strip(
    axes: Axes, trial_df: pd.DataFrame, response: str, styles: Mapping[str, TreatmentStyle]
) -> Axes:
    """Draw one point per trial on a log axis, and a stroke at the included trials' median."""
    names = list(styles)
    for position, (name, style) in enumerate(styles.items()):
        rows = trial_df[trial_df["treatment"] == name]
        values = rows.get(response, pd.Series(math.nan, index=rows.index))
        jitter = np.linspace(-JITTER, JITTER, len(rows)) if len(rows) > 1 else np.zeros(1)
        for is_included in (True, False):
            chosen = (rows["is_included"] == is_included).to_numpy() & values.notna().to_numpy()
            if len(values[chosen]):
                look: dict[str, Any] = {"marker": style.marker, "edgecolors": style.colour}
                face = style.colour if is_included else "none"
                y = position + jitter[chosen]
                axes.scatter(values[chosen], y, 34, facecolors=face, alpha=0.85, zorder=3, **look)
        included = values[rows["is_included"]].dropna()
        if len(included):
            stroke = [position - 0.34, position + 0.34]
            axes.plot([included.median()] * 2, stroke, color=style.colour, lw=2)
    axes.set_xscale("log" if trial_df.get(response, pd.Series(dtype=float)).min() > 0 else "linear")
    axes.set_yticks(range(len(names)), [one.name for one in styles.values()])
    axes.invert_yaxis()
    killed = trial_df[trial_df["outcome"] == "oom_killed"].groupby("treatment").size()
    for killed_name, count in killed.items():
        text = f"killed for memory, {count} of {(trial_df['treatment'] == killed_name).sum()}"
        where, what = (0.02, names.index(str(killed_name))), ("axes fraction", "data")
        axes.annotate(text, where, xycoords=what, va="center", style="italic")
    return axes


def timeline(
    axes: Axes,
    trace_df: pd.DataFrame,
    iostat_df: pd.DataFrame,
    column: str,
    style: TreatmentStyle,
    cap: float | None = None,
) -> Axes:
    """Draw a quantity over time: the 10 Hz series as one line per trial, and iostat's as markers.

    A cap is dashed.
    """
    if trials := list(_thinned(trace_df, column)):
        lines = LineCollection(trials, colors=style.colour, linewidths=1.2, alpha=0.8, zorder=2)
        lines.set(capstyle="projecting", joinstyle="round")
        axes.add_collection(lines)
        axes.autoscale_view()
    if disks := list(_thinned(iostat_df, column)):
        seconds, values = np.concatenate(disks).T
        [marks] = axes.plot(seconds, values, ls="none", marker=style.marker, ms=4)
        marks.set(markeredgecolor=style.colour, markerfacecolor="none", markeredgewidth=0.9)
    if cap:
        axes.axhline(cap, color=INK, lw=1.0, ls=(0, (6, 3)))
        where = ("axes fraction", "data")
        axes.annotate("cap", (1, cap), xycoords=where, va="bottom", ha="right", fontsize=8)
    axes.set_ylim(bottom=0)
    return axes


def shade_outside(axes: Axes, start: float, end: float) -> Axes:
    """Shade what lies before `start` and after `end`, the measured part, in pale grey."""
    low, high = axes.get_xlim()
    for left, right in ((low, start), (end, high)):
        if left < right:
            axes.axvspan(left, right, facecolor=GREY, alpha=0.16, lw=0, zorder=0)
    axes.set_xlim(low, high)
    return axes


def _thinned(frame: pd.DataFrame, column: str) -> Iterator[np.ndarray]:
    """Yield each trial's seconds and values as rows of two.

    If there are too many, only the minimum and maximum per stretch, and the last one.
    """
    if frame.empty:
        return
    points = frame[["seconds", column]].to_numpy(dtype=float)
    groups = frame.groupby("trial_id", observed=True, sort=False).indices.values()
    most = max(FEWEST_POINTS, MOST_POINTS // len(groups))
    for positions in groups:
        rows = points[positions]
        if len(rows) > most:
            stretches = most // 2
            length = len(rows) // stretches
            table = rows[: stretches * length, 1].reshape(stretches, length)
            starts = length * np.arange(stretches)
            ends = {*(starts + table.argmin(axis=1)), *(starts + table.argmax(axis=1))}
            rows = rows[sorted({*ends, len(rows) - 1})]
        yield rows


def residency(axes: Axes, vmtouch_df: pd.DataFrame, colour: str) -> Axes:
    """Draw the residency bars of one trial below one another, time downwards.

    Many bars are placed at their times, each as high as the time it represents. Few bars have equal
    heights, each labelled with its time. Lines mark `go` and `end`.
    """
    bars = vmtouch_df.sort_values("seconds")
    end, times = float(bars["measured_seconds"].iloc[0]), bars["seconds"].to_numpy()
    rows = [[_SHARE_BY_SIGN.get(sign, 0.0) for sign in bar.ljust(60)[:60]] for bar in bars["bar"]]
    during = (times >= 0) & (times <= end)
    if during.sum() < FEWEST_BARS:
        edges, picture = _bars_of_equal_height(axes, times, rows, end, colour)
    else:
        edges, picture = _bars_at_times(axes, times, rows, end, colour)
    rgb = to_rgb(colour)
    axes.pcolormesh(
        np.linspace(0, 100, 61),
        edges,
        picture,
        cmap=LinearSegmentedColormap.from_list("resident", [(*rgb, 0.0), (*rgb, 0.4), (*rgb, 1.0)]),
        vmin=0,
        vmax=1,
        rasterized=True,
    )
    axes.grid(visible=False)
    return axes


def _bars_at_times(
    axes: Axes, times: np.ndarray, rows: Sequence[Sequence[float]], end: float, colour: str
) -> tuple[np.ndarray, np.ndarray]:
    gaps = np.concatenate([[np.inf], np.diff(times), [np.inf]])
    reach = np.minimum(gaps, BAR_HEIGHT * end) / 2
    picture = np.full((2 * len(rows) - 1, 60), np.nan)
    picture[::2] = rows
    for moment in (0.0, end):
        axes.axhline(moment, color=colour, lw=0.9)
    axes.set_ylim(end * 1.1, -0.1 * end)
    return np.stack([times - reach[:-1], times + reach[1:]], axis=1).ravel(), picture


def _bars_of_equal_height(
    axes: Axes, times: np.ndarray, rows: Sequence[Sequence[float]], end: float, colour: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return edges and pixels of bars of equal height.

    Shown are the last bar before `go`, all up to `end`, and the first one after it.
    """
    first = max(0, int((times < 0).sum()) - 1)
    last = min(len(times), int((times <= end).sum()) + 1)
    shown = times[first:last]
    picture = np.full((2 * len(shown) - 1, 60), np.nan)
    picture[::2] = rows[first:last]
    edges = np.stack([np.arange(len(shown)) + 0.06, np.arange(len(shown)) + 0.94], axis=1).ravel()
    for moment in (0.0, end):
        axes.axhline(float((shown <= moment).sum()), color=colour, lw=0.9, ls=(0, (4, 2)))
    axes.set_yticks(np.arange(len(shown)) + 0.5, [f"{moment:.3g}" for moment in shown])
    axes.set_ylim(len(shown), 0)
    return edges, picture


def readahead(axes: Axes, readahead_df: pd.DataFrame, styles: Mapping[str, TreatmentStyle]) -> Axes:
    """Draw read-ahead request sizes: a dot per size, its area the share of the requests."""
    names = [name for name in styles if name in set(readahead_df["treatment"])]
    for position, name in enumerate(names):
        counts = readahead_df[readahead_df["treatment"] == name].groupby("pages")["count"].sum()
        shares = counts / counts.sum()
        axes.scatter(
            counts.index,
            [position] * len(counts),
            s=30 + 420 * shares,
            color=styles[name].colour,
            alpha=0.75,
        )
        for pages, share in shares[shares >= 0.05].items():
            axes.annotate(
                f"{100 * share:.0f} %",
                (float(str(pages)), position),
                textcoords="offset points",
                xytext=(0, 13),
                ha="center",
                fontsize=8,
            )
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.8, 1.4 * max(64, int(readahead_df["pages"].max())))
    axes.set_yticks(range(len(names)), [styles[name].name for name in names])
    axes.set_ylim(len(names) - 0.4, -0.7)
    return axes
