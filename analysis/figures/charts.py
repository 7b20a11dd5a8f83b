"""Dots and curves: trials, ratios, curves over a factor, residency and read-ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

from analysis.cells import treatments, varying_label
from analysis.comparison import Comparison, ComparisonRow, run_letter
from analysis.data.load import Run
from analysis.figures.style import (
    COLOURS,
    GREY,
    MARKERS,
    Styles,
    format_value_axis,
    mark_value,
    numeric_factor,
)
from analysis.formatting import format_quantity, response_title, treatment_label
from pagecage.units import format_bytes

WIDTH = 8.6
"""Inches. A page shrinks a figure to 36rem, at which its text is still legible."""
ACROSS = 4
"""Panels side by side."""
_BAR_HEIGHT = 0.08
"""Greatest height of one bar of residency, as a share of the measured time."""
_FEWEST_BARS = 8
"""With fewer bars in the measured part, a time axis would be nearly empty."""
_SHARE_BY_SIGN = {" ": 0.0, "o": 0.5, "O": 1.0}
_MOST_NAMED = 6
"""Number of treatments that a text names; further ones are only counted."""


def strip_figure(
    trial_df: pd.DataFrame, response: str, styles: Styles, marks: Mapping[str, float] | None = None
) -> Figure:
    """Draw every trial as a point, and a line at each of the values in `marks`."""
    styles = {name: one for name, one in styles.items() if name in set(trial_df["treatment"])}
    figure = Figure(figsize=(WIDTH, 1.0 + 0.34 * len(styles)))
    axes = figure.subplots()
    _draw_trials(axes, trial_df, response, styles)
    for text, value in (marks or {}).items():
        mark_value(axes, value, text, size=8, lw=1, ls=(0, (4, 3)))
    axes.set_xlabel(response_title(response) + (" (log)" if axes.get_xscale() == "log" else ""))
    format_value_axis(axes.xaxis, response)
    return figure


def _draw_trials(axes: Axes, trial_df: pd.DataFrame, response: str, styles: Styles) -> None:
    """Draw one point per trial, and a stroke at the included trials' median."""
    names = list(styles)
    for position, (name, style) in enumerate(styles.items()):
        rows = trial_df[trial_df["treatment"] == name]
        values = rows.get(response, pd.Series(np.nan, index=rows.index))
        jitter = np.linspace(-0.16, 0.16, len(rows)) if len(rows) > 1 else np.zeros(1)
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


def strip_alt_text(trial_df: pd.DataFrame, response: str, styles: Styles) -> str:
    """Describe the treatments with the lowest and the highest median."""
    title, points = response_title(response), "one point per trial"
    counted = trial_df[trial_df["is_included"]].get(response, pd.Series(dtype=float))
    points += "" if counted.notna().any() else ", none of them included"
    return f"{title}, {points}: {extremes(medians(trial_df, response), response, styles)}"


def wrapped_label(name: str) -> str:
    head, _, last = name.rpartition(" · ")
    return f"{head}\n{last}"


def changing_residency(vmtouch_df: pd.DataFrame, styles: Styles) -> dict[str, pd.DataFrame]:
    """Return, by treatment, the rows of the first trial whose number of resident pages changes."""
    found = {}
    for name in styles:
        rows = vmtouch_df[vmtouch_df["treatment"] == name]
        trials = (trial for _, trial in rows.groupby("trial_id", sort=False))
        changing = (trial for trial in trials if trial["resident_pages"].nunique() > 1)
        if (first := next(changing, None)) is not None:
            found[name] = first
    return found


def residency_figure(shown: Mapping[str, pd.DataFrame], styles: Styles) -> Figure | None:
    if not shown:
        return None
    figure, stacks = stacked_axes(len(shown), ["seconds since go"], 3.4)
    for [axes], (name, rows) in zip(stacks, shown.items(), strict=True):
        draw_residency(axes, rows, styles[name].colour)
        axes.set(title=wrapped_label(styles[name].name), xlabel="position in the file, %")
    return figure


def draw_residency(axes: Axes, vmtouch_df: pd.DataFrame, colour: str) -> None:
    """Draw the residency bars of one trial below one another; lines mark `go` and `end`.

    Many bars are placed at their times, each as high as the time it represents. Few bars have equal
    heights, each labelled with its time.
    """
    bars = vmtouch_df.sort_values("seconds")
    end, times = float(bars["measured_seconds"].iloc[0]), bars["seconds"].to_numpy()
    rows = [[_SHARE_BY_SIGN.get(sign, 0.0) for sign in bar.ljust(60)[:60]] for bar in bars["bar"]]
    is_short = ((times >= 0) & (times <= end)).sum() < _FEWEST_BARS
    place = _bars_of_equal_height if is_short else _bars_at_times
    edges, picture = place(axes, times, rows, end, colour)
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


def _bars_at_times(
    axes: Axes, times: np.ndarray, rows: Sequence[Sequence[float]], end: float, colour: str
) -> tuple[np.ndarray, np.ndarray]:
    gaps = np.concatenate([[np.inf], np.diff(times), [np.inf]])
    reach = np.minimum(gaps, _BAR_HEIGHT * end) / 2
    picture = np.full((2 * len(rows) - 1, 60), np.nan)
    picture[::2] = rows
    for moment in (0.0, end):
        axes.axhline(moment, color=colour, lw=0.9)
    axes.set_ylim(end * 1.1, -0.1 * end)
    return np.stack([times - reach[:-1], times + reach[1:]], axis=1).ravel(), picture


def _bars_of_equal_height(
    axes: Axes, times: np.ndarray, rows: Sequence[Sequence[float]], end: float, colour: str
) -> tuple[np.ndarray, np.ndarray]:
    """Show the last bar before `go`, all up to `end`, and the first one after it."""
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


def residency_alt_text(shown: Mapping[str, pd.DataFrame], styles: Styles) -> str:
    parts = []
    for name, rows in shown.items():
        shares = rows.sort_values("seconds")["resident_pages"] / rows["total_pages"].max()
        first, most, last = shares.iloc[0], shares.max(), shares.iloc[-1]
        described = f"{first:.0%} at first, {most:.0%} at most, {last:.0%} at last"
        parts.append(f"{styles[name].name}: {described}")
    return f"Resident share of the data over time. {first_of(parts)}"


def stacked_axes(
    count: int, labels: Sequence[str], panel_height: float, margin: float = 0.0
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure with axes one below the other for each of `count` treatments.

    ACROSS treatments are side by side. The `labels` of the vertical axes are written once, on the
    left. Heights are in inches.
    """
    across, height = min(ACROSS, count), -(-count // ACROSS)
    size = (WIDTH, margin + panel_height * len(labels) * height)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(labels) * height, across, squeeze=False)
    stacks = []
    for position in range(height * across):
        row, column = divmod(position, across)
        stack = [grid[row * len(labels) + depth][column] for depth in range(len(labels))]
        for axes, label in zip(stack, labels, strict=True):
            axes.set_visible(position < count)
            axes.set_ylabel(label if column == 0 else "")
        stacks.append(stack)
    return figure, stacks[:count]


def readahead_figure(readahead_df: pd.DataFrame, styles: Styles, page_bytes: int) -> Figure | None:
    """Draw the read-ahead requests, in pages; a dot's area is the share of its size."""
    if readahead_df.empty:
        return None
    names = [name for name in styles if name in set(readahead_df["treatment"])]
    figure = Figure(figsize=(WIDTH, 1.2 + 0.52 * len(names)))
    axes = figure.subplots()
    for position, name in enumerate(names):
        counts = readahead_df[readahead_df["treatment"] == name].groupby("pages")["count"].sum()
        shares, y = counts / counts.sum(), [position] * len(counts)
        axes.scatter(counts.index, y, s=30 + 420 * shares, color=styles[name].colour, alpha=0.75)
        for pages, share in shares[shares >= 0.05].items():
            text, at = f"{100 * share:.0f} %", (float(str(pages)), position)
            look: dict[str, Any] = {"textcoords": "offset points", "xytext": (0, 13)}
            axes.annotate(text, at, ha="center", fontsize=8, **look)
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.8, 1.4 * max(64, int(readahead_df["pages"].max())))
    axes.set_yticks(range(len(names)), [styles[name].name for name in names])
    axes.set_ylim(len(names) - 0.4, -0.7)
    axes.set_xlabel(f"pages per request ({format_bytes(page_bytes)} each)")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return figure


def readahead_alt_text(readahead_df: pd.DataFrame, styles: Styles) -> str:
    parts = []
    for name, rows in readahead_df.groupby("treatment", sort=False):
        counts = rows.groupby("pages")["count"].sum()
        share = f"{counts.max() / counts.sum():.0%}"
        parts.append(f"{styles[str(name)].name}: {counts.idxmax()} pages in {share}")
    return f"Most frequent read-ahead request: {first_of(parts)}"


def curve_figure(run: Run, trial_df: pd.DataFrame, response: str, styles: Styles) -> Figure | None:
    """Draw the response over the numeric factor, a line per combination of the others."""
    numeric = numeric_factor(run)
    if numeric is None or response not in trial_df:
        return None
    factor, values = numeric
    lines = curve_lines(run, trial_df, response, factor)
    if not lines:
        return None
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    least = min((value for value in values.values() if value > 0), default=1.0)
    axes, positions = figure.subplots(), {level: at or least / 2 for level, at in values.items()}
    for name, rows in lines.items():
        x, ones = rows[factor].map(positions), [styles[name] for name in rows["treatment"]]
        is_one_group, first = len({one.number for one in ones}) == 1, ones[0]
        marker, colours = first.curve_marker, [one.colour for one in ones]
        axes.scatter(x, rows[response], s=22, marker=marker, c=colours, alpha=0.6, zorder=3)
        middle = rows.groupby(x)[response].median().sort_index()
        look: dict[str, Any] = {"ls": first.curve_line, "lw": 1.6, "ms": 5, "label": name}
        look |= {"marker": marker if is_one_group else ""}
        axes.plot(middle.index, middle, color=first.colour if is_one_group else GREY, **look)
    has_zero = any((rows[response] <= 0).any() for rows in lines.values())
    axes.set(xscale="log", yscale="linear" if has_zero else "log")
    format_levels(axes, {position: level for level, position in positions.items()})
    format_value_axis(axes.yaxis, response)
    axes.set(xlabel=factor.replace("_", " "), ylabel=response_title(response))
    label_lines(axes)
    return figure


def format_levels(axes: Axes, names: Mapping[float, str]) -> None:
    """Label the horizontal axis at these positions alone."""
    axes.xaxis.set_major_locator(FixedLocator(list(names)))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value, "")))


def label_lines(axes: Axes) -> None:
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
    """Return the included trials with the response, by the levels of all other factors.

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


def curve_alt_text(
    lines: Mapping[str, pd.DataFrame], factor: str, levels: Sequence[str], response: str
) -> str:
    """Describe the first and the last point of each line."""
    parts = []
    for name, rows in lines.items():
        medians = rows.groupby(factor)[response].median()
        first, *_, last = [level for level in levels if level in medians.index]
        ends = ", ".join(
            f"{format_quantity(response, medians[level])} at {level}" for level in (first, last)
        )
        parts.append(f"{name}: {ends}" if name else ends)
    return f"{response_title(response)} over {factor.replace('_', ' ')}: {first_of(parts)}"


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
    """Draw the ratios with intervals on a log axis, and the noise floor as a band around 1."""
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
    axes.set_yticks(
        range(len(rows)), [varying_label(comparison.runs[0], row.treatment) for row in rows]
    )
    axes.invert_yaxis()
    draw_legend(axes, is_needed=count > 1)
    return figure


def medians(trial_df: pd.DataFrame, response: str) -> dict[str, float]:
    """Return medians by treatment, over included trials, or over all if none is included."""
    if response not in trial_df:
        return {}
    counted = trial_df[trial_df["is_included"] & trial_df[response].notna()]
    rows = trial_df if counted.empty else counted
    return {
        str(name): float(value)
        for name, value in rows.groupby("treatment")[response].median().dropna().items()
    }


def extremes(found: Mapping[str, float], response: str, styles: Styles) -> str:
    """Name the treatments with the least and the greatest figure."""
    if not found:
        return "no trial is included"
    order = sorted(found, key=lambda name: found[name])
    first, last = order[0], order[-1]
    least, most = (
        f"{styles[one].name} {format_quantity(response, found[one])}" for one in (first, last)
    )
    if first == last:
        return least
    if found[first] <= 0:
        return f"least {least}, most {most}"
    ratio = found[last] / found[first]
    times = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"
    return f"least {least}, most {most}, {times} times as much"


def first_of(parts: Sequence[str]) -> str:
    """Join the first sentences; further ones are only counted."""
    rest = len(parts) - _MOST_NAMED
    return "; ".join([*parts[:_MOST_NAMED], *([f"and {rest} more"] if rest > 0 else [])])
