"""Timelines of treatments: quantities one below the other, treatments side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from analysis.data.load import Run
from analysis.figures import panels
from analysis.figures.charts import ACROSS, WIDTH, stacked_axes, wrapped_label
from analysis.figures.style import TreatmentStyle, quantity_formatter
from analysis.formatting import treatment_label

MIN_BYTES = 1_000_000
"""Treatments that transfer fewer bytes have no timeline."""
_PANEL_INCHES = 1.95
_MIN_STALL = 0.02
"""A stall is drawn only if its share of the time exceeds this at its maximum."""


@dataclass(frozen=True)
class TimelinePanel:
    """A quantity over time: its column, response name, words, and the cap that limits it."""

    column: str
    response: str
    words: str
    cap: str | None = None


@dataclass(frozen=True)
class TrafficDirection:
    """A direction of disk traffic: the response with its total, and its panels."""

    total: str
    panels: tuple[TimelinePanel, TimelinePanel]


READ = TrafficDirection(
    "device_read_bytes",
    (
        TimelinePanel(
            "read_bytes_per_second", "bytes_per_second", "read from the disk", "IOReadBandwidthMax"
        ),
        TimelinePanel("reads_per_second", "reads_per_second", "reads", "IOReadIOPSMax"),
    ),
)
WRITE = TrafficDirection(
    "device_write_bytes",
    (
        TimelinePanel(
            "write_bytes_per_second",
            "bytes_per_second",
            "written to the disk",
            "IOWriteBandwidthMax",
        ),
        TimelinePanel("writes_per_second", "writes_per_second", "writes", "IOWriteIOPSMax"),
    ),
)
_STATES = (
    TimelinePanel("bytes_per_io", "io_bytes", "I/O size"),
    TimelinePanel("resident_bytes", "resident_bytes", "resident"),
    TimelinePanel("refaults_per_second", "refaults_per_second", "refaults"),
    TimelinePanel("io_stalled_fraction", "io_stalled_fraction", "stalled on I/O"),
    TimelinePanel("memory_stalled_fraction", "memory_stalled_fraction", "stalled on memory"),
)


def timeline_treatments(
    trial_df: pd.DataFrame, trace_df: pd.DataFrame, styles: Mapping[str, TreatmentStyle]
) -> tuple[TrafficDirection, list[str]]:
    """Return the direction with more traffic, and the treatments with enough of it to draw."""
    written, read = (
        trial_df.get(direction.total, pd.Series(dtype=float)).sum() for direction in (WRITE, READ)
    )
    direction = WRITE if written > read else READ
    moved = (
        trial_df[trial_df[direction.total] > MIN_BYTES]["treatment"]
        if direction.total in trial_df
        else ()
    )
    return direction, [name for name in styles if name in set(moved) & set(trace_df["treatment"])]


def timeline_figure(
    run: Run,
    trial_df: pd.DataFrame,
    trace_df: pd.DataFrame,
    iostat_df: pd.DataFrame,
    styles: Mapping[str, TreatmentStyle],
) -> Figure | None:
    """Draw bytes and I/Os per second of every treatment that used the disk."""
    direction, names = timeline_treatments(trial_df, trace_df, styles)
    if not names:
        return None
    return _draw_panels(run, names, direction.panels, trace_df, iostat_df, styles)


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
    styles: Mapping[str, TreatmentStyle],
) -> Figure | None:
    """Draw these panels: the state of memory while the disk was used."""
    if not names or not specs:
        return None
    return _draw_panels(run, names, specs, trace_df, trace_df.iloc[:0], styles)


def _draw_panels(
    run: Run,
    names: Sequence[str],
    specs: Sequence[TimelinePanel],
    trace_df: pd.DataFrame,
    iostat_df: pd.DataFrame,
    styles: Mapping[str, TreatmentStyle],
) -> Figure:
    height = _PANEL_INCHES * len(specs) * -(-len(names) // ACROSS)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    stacks = stacked_axes(figure, len(names), [spec.words for spec in specs])
    for name, stack in zip(names, stacks, strict=True):
        _draw_treatment(run, stack, name, specs, (trace_df, iostat_df), styles[name])
    return figure


def _draw_treatment(
    run: Run,
    column_axes: Sequence[Axes],
    name: str,
    specs: Sequence[TimelinePanel],
    frames: Sequence[pd.DataFrame],
    style: TreatmentStyle,
) -> None:
    trials = (t for t in run.trials if treatment_label(t.record.treatment) == name)
    first = next(trials, None)
    caps = (first.record.cage.requested if first else None) or {}
    trace_df, iostat_df = (frame[frame["treatment"] == name] for frame in frames)
    start, end = trace_df["seconds"].min(), trace_df["seconds"].max()
    if not iostat_df.empty and not trace_df.empty:
        iostat_df = iostat_df[iostat_df["seconds"].between(start - 0.5, end + 0.5)]
    for axes, spec in zip(column_axes, specs, strict=True):
        cap = caps.get(spec.cap or "")
        panels.timeline(axes, trace_df, iostat_df, spec.column, style, cap)
        axes.set_xlim(min(0.0, float(start)), float(end))
        panels.shade_outside(axes, 0.0, float(trace_df["measured_seconds"].max()))
        top = axes.get_ylim()[1]
        if axes.dataLim.y1 <= 0:
            top = max(float(frames[0][spec.column].max()), 1.0)
        top = 1.0 if spec.response.endswith("_fraction") else top
        axes.set_ylim(0, top)
        is_binary = spec.response.endswith("_bytes")
        axes.yaxis.set_major_locator(
            MultipleLocator(2 ** math.ceil(math.log2(top / 4))) if is_binary else MaxNLocator(5)
        )
        axes.yaxis.set_major_formatter(quantity_formatter(spec.response))
        axes.tick_params(labelbottom=axes is column_axes[-1])
    column_axes[0].set_title(wrapped_label(style.name))
    column_axes[-1].set_xlabel("seconds since go")
