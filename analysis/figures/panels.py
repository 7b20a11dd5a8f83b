"""Single panels and thumbnails."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.cells import make_cell, treatments
from analysis.data.load import Run
from analysis.figures.style import GREY, INK, TreatmentStyle, drawing_style, svg, treatment_styles
from analysis.formatting import format_quantity, response_title, treatment_label

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


WIDTH, HEIGHT = 360.0, 202.5
"""Size in points: 480 x 270 CSS pixels."""
MOST_BARS = 6
_LABELS, _VALUES, _MARGIN = 138.0, 66.0, 8.0
"""Widths of the columns of labels and of values, and of the margin, in points."""
_HEAD, _ROW = 42.0, 24.5
_TEXT, _LABEL_TEXT, _NOTE_TEXT = 11.5, 10.3, 9.0
_LONGEST_LABEL = 23
_LONGEST_TITLE = 28
_UNITS = ("_seconds", "_bytes", "_us", "_ms", "_ns")
"""Suffixes of responses; the figures next to the bars have the units."""
_MOST_LINEAR = 40.0
"""Ratio of the longest to the shortest bar above which the scale is logarithmic."""


@dataclass(frozen=True)
class Bar:
    """One treatment; `value` is None if it has no figure, and `text` is then the reason."""

    label: str
    text: str
    value: float | None
    colour: str
    is_included: bool


def thumbnail_svg(run: Run, headline: str = "", published: str = "") -> str:
    """Return the thumbnail; `headline` is a ratio such as `36×`, next to the published one."""
    found = bars(run)
    with drawing_style():
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
        axes.axis("off")
        if headline:
            _write(axes, WIDTH - _MARGIN, _HEAD / 2, headline, 22, ha="right", weight="bold")
        if published:
            left = WIDTH - _MARGIN - 14.5 * len(headline) - 6
            _write(axes, left, _HEAD / 2 + 5, f"published {published}", _NOTE_TEXT, ha="right")
        lengths, is_logarithmic = _lengths(found)
        unit = next((unit for unit in _UNITS if run.response.endswith(unit)), "")
        title = response_title(run.response).removesuffix(unit.replace("_", " "))
        lines = textwrap.wrap(title, _LONGEST_TITLE, max_lines=2, placeholder=" …")
        _write(axes, _MARGIN, _HEAD / 2, "\n".join(lines), _TEXT)
        notes = ["log scale"] if is_logarithmic else []
        notes += [] if all(bar.is_included for bar in found) else ["hollow: excluded"]
        _write(axes, WIDTH - _MARGIN, HEIGHT - 7, ", ".join(notes), _NOTE_TEXT, ha="right")
        for position, (bar, length) in enumerate(zip(found, lengths, strict=True)):
            middle = _HEAD + _ROW * (position + 0.5)
            start, whole = _MARGIN + _LABELS, WIDTH - 2 * _MARGIN - _LABELS - _VALUES
            face = bar.colour if bar.is_included else "none"
            _write(axes, start - 6, middle, _label_lines(bar.label), _LABEL_TEXT, ha="right")
            if length:
                corner = (start, middle - 0.32 * _ROW)
                size = (max(1.5, length * whole), 0.64 * _ROW)
                axes.add_patch(
                    Rectangle(corner, *size, facecolor=face, edgecolor=bar.colour, lw=1.2)
                )
            _write(axes, start + length * whole + 5, middle, bar.text, _TEXT)
        text = "; ".join(f"{bar.label}: {bar.text}" for bar in found)
        alt_text = escape(f"{response_title(run.response)}: {text}")
        return svg(figure, alt_text, is_tight=False)


def bars(run: Run) -> list[Bar]:
    """Return up to MOST_BARS treatments in the definition's order.

    If there are more, those with a figure come first, at even distances between the least and the
    greatest figure.
    """
    styles, found = treatment_styles(run), []
    for treatment in treatments(run):
        style, cell = styles[treatment_label(treatment)], make_cell(run, treatment, run.response)
        value = cell.summary.middle if cell.summary else None
        text = "killed" if cell.killed else "–"
        text = text if value is None else format_quantity(cell.response, value)
        is_included = not cell.is_all_excluded and not cell.is_all_wrong
        found.append(Bar(style.name, text, value, style.colour, is_included))
    if len(found) <= MOST_BARS:
        return found
    ranked = sorted(found, key=lambda bar: (bar.value is None, bar.value or 0.0))
    figures = [bar for bar in ranked if bar.value is not None] or ranked
    last = len(figures) - 1
    chosen = {round(step * last / (MOST_BARS - 1)) for step in range(MOST_BARS)}
    return sorted((figures[one] for one in chosen), key=found.index)


def _label_lines(label: str) -> str:
    if len(label) <= _LONGEST_LABEL:
        return label
    words = label.split(" · ")
    splits = [
        (" · ".join(words[:middle]), " · ".join(words[middle:]))
        for middle in range(1, len(words) + 1)
    ]
    lines = min(splits, key=lambda split: max(map(len, split)))
    return "\n".join(
        line if len(line) <= _LONGEST_LABEL else f"{line[: _LONGEST_LABEL - 1]}…"
        for line in lines
        if line
    )


def _lengths(found: Sequence[Bar]) -> tuple[list[float], bool]:
    values = [bar.value for bar in found if bar.value]
    if not values or min(values) < 0:
        return [0.0 for _ in found], False
    low, high = min(values), max(values)
    if high / low <= _MOST_LINEAR:
        return [(bar.value or 0.0) / high for bar in found], False
    decades = math.log10(high / low) + 0.3
    lengths = [(math.log10(bar.value / low) + 0.3) / decades if bar.value else 0.0 for bar in found]
    return lengths, True


def _write(
    axes: Axes, x: float, y: float, text: str, size: float, ha: str = "left", weight: str = "normal"
) -> None:
    axes.text(
        x, y, text, fontsize=size, ha=ha, va="center", weight=weight, color=INK, linespacing=1.05
    )
