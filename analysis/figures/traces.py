"""Pictures over time: disk traffic, memory and custom collectors; treatments side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from analysis.data.load import Run
from analysis.figures.charts import first_of, stacked_axes, wrapped_label
from analysis.figures.style import GREY, INK, Styles, TreatmentStyle, quantity_formatter
from analysis.formatting import format_quantity, treatment_label

_MIN_BYTES = 1_000_000
"""Treatments that transfer fewer bytes have no timeline."""
_MIN_STALL = 0.02
"""A stall is drawn only if its share of the time exceeds this at its maximum."""
_MOST_POINTS = 2000
"""Greatest number of points per panel; more would fall on the same pixels."""
_FEWEST_POINTS = 30
"""Least number of points per trial, however many trials share a panel."""
MOST_FIELDS = 6
"""Fields of one collector that are drawn: the first ones that it prints."""
_FEW_POINTS = 40
"""With at most this many values of a collector per trial, each is marked."""


@dataclass(frozen=True)
class TimelinePanel:
    """A quantity over time: its column, response name, words, and the cap that limits it."""

    column: str
    response: str
    words: str
    cap: str | None = None


_TRAFFIC = {
    f"device_{verb}_bytes": (
        TimelinePanel(
            f"{verb}_bytes_per_second", "bytes_per_second", words, f"IO{verb.title()}BandwidthMax"
        ),
        TimelinePanel(
            f"{verb}s_per_second", f"{verb}s_per_second", f"{verb}s", f"IO{verb.title()}IOPSMax"
        ),
    )
    for verb, words in (("read", "read from the disk"), ("write", "written to the disk"))
}
"""Panels of each direction of disk traffic, by the response with its total."""
_STATES = (
    TimelinePanel("bytes_per_io", "io_bytes", "I/O size"),
    TimelinePanel("resident_bytes", "resident_bytes", "resident"),
    TimelinePanel("refaults_per_second", "refaults_per_second", "refaults"),
    TimelinePanel("io_stalled_fraction", "io_stalled_fraction", "stalled on I/O"),
    TimelinePanel("memory_stalled_fraction", "memory_stalled_fraction", "stalled on memory"),
)


def timeline_treatments(
    trial_df: pd.DataFrame, trace_df: pd.DataFrame, styles: Styles
) -> tuple[Sequence[TimelinePanel], list[str]]:
    """Return the panels of the direction with more traffic, and treatments with enough to draw."""
    totals = {name: trial_df.get(name, pd.Series(dtype=float)) for name in _TRAFFIC}
    most = max(totals, key=lambda name: float(totals[name].sum()))
    moved = trial_df["treatment"].reindex(totals[most].index[totals[most] > _MIN_BYTES])
    drawn = set(moved) & set(trace_df["treatment"])
    return _TRAFFIC[most], [name for name in styles if name in drawn]


def timeline_figure(
    run: Run,
    trial_df: pd.DataFrame,
    trace_df: pd.DataFrame,
    iostat_df: pd.DataFrame,
    styles: Styles,
) -> Figure | None:
    """Draw bytes and I/Os per second of every treatment that used the disk."""
    panels, names = timeline_treatments(trial_df, trace_df, styles)
    return _draw_panels(run, names, panels, trace_df, iostat_df, styles)


def state_panels(trace_df: pd.DataFrame, names: Sequence[str]) -> list[TimelinePanel]:
    """Return panels for I/O size, residency, refaults and stalls, if these treatments have any."""
    shown, found = trace_df[trace_df["treatment"].isin(list(names))], []
    for spec in _STATES:
        least = _MIN_STALL if spec.response.endswith("_fraction") else 0
        if spec.column in shown and shown[spec.column].max() > least:
            found.append(spec)
    return found


def state_figure(
    run: Run,
    names: Sequence[str],
    specs: Sequence[TimelinePanel],
    trace_df: pd.DataFrame,
    styles: Styles,
) -> Figure | None:
    """Draw these panels: the state of memory while the disk was used."""
    return _draw_panels(run, names, specs, trace_df, trace_df.iloc[:0], styles)


def _draw_panels(
    run: Run,
    names: Sequence[str],
    specs: Sequence[TimelinePanel],
    trace_df: pd.DataFrame,
    iostat_df: pd.DataFrame,
    styles: Styles,
) -> Figure | None:
    if not names or not specs:
        return None
    figure, stacks = stacked_axes(len(names), [spec.words for spec in specs], 1.95)
    for name, stack in zip(names, stacks, strict=True):
        trials = (t for t in run.trials if treatment_label(t.record.treatment) == name)
        first = next(trials, None)
        caps = (first.record.cage.requested if first else None) or {}
        rows, disk_rows = (frame[frame["treatment"] == name] for frame in (trace_df, iostat_df))
        start, end = rows["seconds"].min(), rows["seconds"].max()
        if not disk_rows.empty and not rows.empty:
            disk_rows = disk_rows[disk_rows["seconds"].between(start - 0.5, end + 0.5)]
        for axes, spec in zip(stack, specs, strict=True):
            _draw_lines(axes, rows, disk_rows, spec.column, styles[name])
            if cap := caps.get(spec.cap or ""):
                axes.axhline(cap, color=INK, lw=1.0, ls=(0, (6, 3)))
                where = ("axes fraction", "data")
                axes.annotate("cap", (1, cap), xycoords=where, va="bottom", ha="right", fontsize=8)
            axes.set_ylim(bottom=0)
            axes.set_xlim(min(0.0, float(start)), float(end))
            _shade_outside(axes, float(rows["measured_seconds"].max()))
            top = axes.get_ylim()[1]
            if axes.dataLim.y1 <= 0:
                top = max(float(trace_df[spec.column].max()), 1.0)
            axes.set_ylim(0, 1.0 if spec.response.endswith("_fraction") else top)
        _format_stack(stack, [spec.response for spec in specs], styles[name].name, most_ticks=5)
    return figure


def _format_stack(
    stack: Sequence[Axes], responses: Sequence[str], title: str, most_ticks: int
) -> None:
    for axes, response in zip(stack, responses, strict=True):
        top = axes.get_ylim()[1]
        is_binary = response.endswith("_bytes") and top > 4
        axes.yaxis.set_major_locator(
            MultipleLocator(2 ** math.ceil(math.log2(top / 4)))
            if is_binary
            else MaxNLocator(most_ticks)
        )
        axes.yaxis.set_major_formatter(quantity_formatter(response))
        axes.tick_params(labelbottom=axes is stack[-1])
    stack[0].set_title(wrapped_label(title))
    stack[-1].set_xlabel("seconds since go")


def _draw_lines(
    axes: Axes, trace_df: pd.DataFrame, iostat_df: pd.DataFrame, column: str, style: TreatmentStyle
) -> None:
    """Draw the 10 Hz series as one line per trial, and iostat's as markers."""
    if trials := list(_thinned(trace_df, column)):
        lines = LineCollection(trials, colors=style.colour, linewidths=1.2, alpha=0.8, zorder=2)
        lines.set(capstyle="projecting", joinstyle="round")
        axes.add_collection(lines)
        axes.autoscale_view()
    if disks := list(_thinned(iostat_df, column)):
        seconds, values = np.concatenate(disks).T
        [marks] = axes.plot(seconds, values, ls="none", marker=style.marker, ms=4)
        marks.set(markeredgecolor=style.colour, markerfacecolor="none", markeredgewidth=0.9)


def _shade_outside(axes: Axes, end: float) -> None:
    """Shade in pale grey what lies outside of the measured part, from 0 to `end`."""
    low, high = axes.get_xlim()
    for left, right in ((low, 0.0), (end, high)):
        if left < right:
            axes.axvspan(left, right, facecolor=GREY, alpha=0.16, lw=0, zorder=0)
    axes.set_xlim(low, high)


def _thinned(frame: pd.DataFrame, column: str) -> Iterator[np.ndarray]:
    """Yield each trial's seconds and values as rows of two.

    If there are too many, only the minimum and maximum per stretch, and the last one.
    """
    if frame.empty:
        return
    points = frame[["seconds", column]].to_numpy(dtype=float)
    groups = frame.groupby("trial_id", observed=True, sort=False).indices.values()
    most = max(_FEWEST_POINTS, _MOST_POINTS // len(groups))
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


def timeline_alt_text(
    trace_df: pd.DataFrame, names: Sequence[str], specs: Sequence[TimelinePanel], styles: Styles
) -> str:
    """Describe the mean of each panel in the measured part, by treatment."""
    inside = trace_df[
        (trace_df["seconds"] >= 0) & (trace_df["seconds"] <= trace_df["measured_seconds"])
    ]
    parts = []
    for name in names:
        rows = inside[inside["treatment"] == name]
        figures = [
            f"{spec.words} {format_quantity(spec.response, rows[spec.column].mean())}"
            for spec in specs
            if rows[spec.column].notna().any()
        ]
        parts.append(f"{styles[name].name}: {', '.join(figures) or 'no data'}")
    return f"Over time, on average: {first_of(parts)}"


def own_figure(own_df: pd.DataFrame, styles: Styles) -> Figure | None:
    """Draw the fields of one custom collector over time; None without any value."""
    names = [name for name in styles if name in set(own_df["treatment"])]
    if not names:
        return None
    fields = _drawn_fields(own_df)
    labels = [field.replace("_", " ") for field in fields]
    figure, stacks = stacked_axes(len(names), labels, 1.6, 0.5)
    for name, stack in zip(names, stacks, strict=True):
        style, rows = styles[name], own_df[own_df["treatment"] == name]
        end, times = float(rows["measured_seconds"].max()), rows["seconds"]
        for axes, field in zip(stack, fields, strict=True):
            for _, of_trial in rows[rows["field"] == field].groupby("trial_id", sort=False):
                points = of_trial.sort_values("seconds")
                marker = style.marker if len(points) <= _FEW_POINTS else ""
                [line] = axes.plot(points["seconds"], points["value"], marker=marker, ms=3.5)
                line.set(color=style.colour, linewidth=1.2, alpha=0.8)
            axes.set_xlim(min(0.0, float(times.min())), max(end, float(times.max())))
            _shade_outside(axes, end)
            values = own_df[own_df["field"] == field]["value"]
            low, high = min(0.0, float(values.min())), float(values.max())
            margin = 0.05 * (high - low) or 1.0
            axes.set_ylim(low - (margin if low < 0 else 0.0), high + margin)
        _format_stack(stack, fields, style.name, most_ticks=4)
    return figure


def _drawn_fields(own_df: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(own_df["field"]))[:MOST_FIELDS]


def own_alt_text(own_df: pd.DataFrame, styles: Styles) -> str:
    """Describe the range of each drawn field, by treatment."""
    parts = []
    for field in _drawn_fields(own_df):
        for name, rows in own_df[own_df["field"] == field].groupby("treatment", sort=False):
            values = rows["value"]
            low, high = (format_quantity(field, float(x)) for x in (values.min(), values.max()))
            parts.append(f"{field} of {styles[str(name)].name} from {low} to {high}")
    return f"Numbers of a collector over time. {first_of(parts)}"
