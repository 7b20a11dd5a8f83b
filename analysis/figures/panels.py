"""Figures: frame -> Axes. What is excluded is drawn hollow; nothing is averaged here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb

from analysis.figures.style import GREY, INK, TreatmentStyle

JITTER = 0.16
BAR_HEIGHT = 0.08
"""The most that one bar may stand for, of the measured time."""
MOST_POINTS = 2000
"""Points of a panel: more than its width has pixels for, by far."""
FEWEST_POINTS = 30
"""Points of a trial, however many trials share a panel."""
FEWEST_BARS = 8
"""Fewer than this within the measured part would leave an axis of time nearly empty."""
BAR = {" ": 0.0, "o": 0.5, "O": 1.0}


def strip(axes: Axes, trial_df: pd.DataFrame, response: str, look: Mapping[str, TreatmentStyle]) -> Axes:
    """One point a trial on a log axis, a stroke at the median of the included ones; killed trials at the right."""
    names = list(look)
    for place, name in enumerate(names):
        rows = trial_df[trial_df["treatment"] == name]
        values = rows.get(response, pd.Series(math.nan, index=rows.index))
        jitter = np.linspace(-JITTER, JITTER, len(rows)) if len(rows) > 1 else [0.0]
        for is_included in (True, False):
            chosen = (rows["is_included"] == is_included).to_numpy() & values.notna().to_numpy()
            _points(axes, values[chosen], place + np.asarray(jitter)[chosen], look[name], is_included=is_included)
        kept_values = values[rows["is_included"]].dropna()
        if len(kept_values):
            axes.plot([kept_values.median()] * 2, [place - 0.34, place + 0.34], color=look[name].colour, lw=2)
    axes.set_xscale("log" if trial_df.get(response, pd.Series(dtype=float)).min() > 0 else "linear")
    axes.set_yticks(range(len(names)), [one.name for one in look.values()])
    axes.invert_yaxis()
    _killed(axes, trial_df, names)
    return axes


def _points(axes: Axes, x: pd.Series[float], y: np.ndarray, look: TreatmentStyle, *, is_included: bool) -> None:
    """Points of one treatment; hollow where they are excluded."""
    face = look.colour if is_included else "none"
    if len(x):
        axes.scatter(x, y, s=34, marker=look.marker, facecolors=face, edgecolors=look.colour, zorder=3, alpha=0.85)


def _killed(axes: Axes, trial_df: pd.DataFrame, names: Sequence[str]) -> None:
    killed = trial_df[trial_df["outcome"] == "oom_killed"].groupby("treatment").size()
    for name, count in killed.items():
        axes.annotate(
            f"killed for memory, {count} of {(trial_df['treatment'] == name).sum()}",
            (0.02, names.index(str(name))), xycoords=("axes fraction", "data"), va="center", style="italic",
        )  # fmt: skip


def timeline(
    axes: Axes,
    fine_df: pd.DataFrame,
    second_df: pd.DataFrame,
    column: str,
    look: TreatmentStyle,
    cap: float | None = None,
) -> Axes:
    """A figure over time: the 10 Hz series as lines, one a trial, iostat's seconds as marks, a cap dashed."""
    for rows in _thinned(fine_df, column):
        axes.plot(rows["seconds"], rows[column], color=look.colour, lw=1.2, alpha=0.8)
    for rows in _thinned(second_df, column):
        axes.plot(
            rows["seconds"], rows[column], ls="none", marker=look.marker, ms=4, mec=look.colour, mfc="none", mew=0.9
        )
    if cap:
        axes.axhline(cap, color=INK, lw=1.0, ls=(0, (6, 3)))
        axes.annotate("cap", (1, cap), xycoords=("axes fraction", "data"), va="bottom", ha="right", fontsize=8)
    axes.set_ylim(bottom=0)
    return axes


def shade_outside(axes: Axes, start: float, end: float) -> Axes:
    """What lies before `start` and after `end`, the measured part, in pale grey, as far as the axis goes."""
    low, high = axes.get_xlim()
    for left, right in ((low, start), (end, high)):
        if left < right:
            axes.axvspan(left, right, facecolor=GREY, alpha=0.16, lw=0, zorder=0)
    axes.set_xlim(low, high)
    return axes


def _thinned(frame: pd.DataFrame, column: str) -> Iterator[pd.DataFrame]:
    """Each trial's rows; where there are more than a panel can show, of each stretch the lowest and the highest."""
    if frame.empty:
        return
    groups = [rows for _, rows in frame.groupby("trial_id", observed=True, sort=False)]
    most = max(FEWEST_POINTS, MOST_POINTS // len(groups))
    for rows in groups:
        if len(rows) <= most:
            yield rows
            continue
        yield rows.iloc[_lowest_and_highest(rows[column].to_numpy(), most // 2)]


def _lowest_and_highest(values: np.ndarray, stretches: int) -> list[int]:
    """Where in each stretch the lowest and the highest value stand; what does not fill a stretch keeps its last."""
    length = len(values) // stretches
    table = values[: stretches * length].reshape(stretches, length)
    starts = length * np.arange(stretches)
    return sorted({*(starts + table.argmin(axis=1)), *(starts + table.argmax(axis=1)), len(values) - 1})


def residency(axes: Axes, vmtouch_df: pd.DataFrame, colour: str) -> Axes:
    """vmtouch's bars of one trial below one another, time downwards: where in the file what is resident, when.

    Many bars stand at their times, and a bar is as high as its time is known. Few stand below one another at one
    height, each with its time. Lines mark `go` and `end`.
    """
    bars = vmtouch_df.sort_values("seconds")
    end, times = float(bars["measured_seconds"].iloc[0]), bars["seconds"].to_numpy()
    rows = [[BAR.get(sign, 0.0) for sign in bar.ljust(60)[:60]] for bar in bars["bar"]]
    during = (times >= 0) & (times <= end)
    if during.sum() < FEWEST_BARS:
        edges, picture = _one_height(axes, times, rows, end, colour)
    else:
        edges, picture = _at_their_times(axes, times, rows, end, colour)
    axes.pcolormesh(np.linspace(0, 100, 61), edges, picture, cmap=_shades(colour), vmin=0, vmax=1, rasterized=True)
    axes.grid(visible=False)
    return axes


def _at_their_times(
    axes: Axes, times: np.ndarray, rows: Sequence[Sequence[float]], end: float, colour: str
) -> tuple[np.ndarray, np.ndarray]:
    """Where bars are rare there is nothing between them."""
    gaps = np.concatenate([[np.inf], np.diff(times), [np.inf]])
    reach = np.minimum(gaps, BAR_HEIGHT * end) / 2
    picture = np.full((2 * len(rows) - 1, 60), np.nan)
    picture[::2] = rows
    for moment in (0.0, end):
        axes.axhline(moment, color=colour, lw=0.9)
    axes.set_ylim(end * 1.1, -0.1 * end)
    return np.stack([times - reach[:-1], times + reach[1:]], axis=1).ravel(), picture


def _one_height(
    axes: Axes, times: np.ndarray, rows: Sequence[Sequence[float]], end: float, colour: str
) -> tuple[np.ndarray, np.ndarray]:
    """Strips of one height: the last before `go`, all up to `end`, and the first after it."""
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


def _shades(colour: str) -> LinearSegmentedColormap:
    """From nothing over pale (some pages) to full (all pages)."""
    rgb = to_rgb(colour)
    return LinearSegmentedColormap.from_list("resident", [(*rgb, 0.0), (*rgb, 0.4), (*rgb, 1.0)])


def readahead(axes: Axes, readahead_df: pd.DataFrame, look: Mapping[str, TreatmentStyle]) -> Axes:
    """How large read-ahead requests were: a dot a size, its area the share of that treatment's requests."""
    names = [name for name in look if name in set(readahead_df["treatment"])]
    for place, name in enumerate(names):
        counts = readahead_df[readahead_df["treatment"] == name].groupby("pages")["count"].sum()
        shares = counts / counts.sum()
        axes.scatter(counts.index, [place] * len(counts), s=30 + 420 * shares, color=look[name].colour, alpha=0.75)
        for pages, share in shares[shares >= 0.05].items():
            axes.annotate(
                f"{100 * share:.0f} %", (float(str(pages)), place), textcoords="offset points", xytext=(0, 13),
                ha="center", fontsize=8,
            )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.8, 1.4 * max(64, int(readahead_df["pages"].max())))
    axes.set_yticks(range(len(names)), [look[name].name for name in names])
    axes.set_ylim(len(names) - 0.4, -0.7)
    return axes
