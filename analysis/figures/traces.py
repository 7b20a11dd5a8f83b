"""Timelines of treatments: quantities one below the other, treatments side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from analysis.data.load import Run
from analysis.figures import panels
from analysis.figures.charts import ACROSS, WIDTH, wrapped_label
from analysis.figures.style import TreatmentStyle
from analysis.formatting import format_quantity, treatment_label

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
    direction = _direction(trial_df)
    moved = (
        trial_df[trial_df[direction.total] > MIN_BYTES]["treatment"]
        if direction.total in trial_df
        else ()
    )
    return direction, [name for name in styles if name in set(moved) & set(trace_df["treatment"])]


def _direction(trial_df: pd.DataFrame) -> TrafficDirection:
    written, read = (
        trial_df.get(direction.total, pd.Series(dtype=float)).sum() for direction in (WRITE, READ)
    )
    return WRITE if written > read else READ


def timeline_figure(
    run: Run,
    trial_df: pd.DataFrame,
    trace_df: pd.DataFrame,
    iostat_df: pd.DataFrame,
    styles: Mapping[str, TreatmentStyle],
) -> Figure | None:
    """Draw bytes and I/Os per second of every treatment that used the disk.

    Reads are drawn, or writes if there are more of them.
    """
    direction, names = timeline_treatments(trial_df, trace_df, styles)
    if not names:
        return None
    return _draw_panels(run, names, direction.panels, trace_df, iostat_df, styles)


def state_panels(trace_df: pd.DataFrame, names: Sequence[str]) -> list[TimelinePanel]:
    """Return panels for I/O size, residency, refaults and stalls, if these treatments have any."""
    shown = trace_df[trace_df["treatment"].isin(list(names))]
    return [spec for spec in _STATES if _has_data(shown, spec)]


def state_figure(
    run: Run,
    names: Sequence[str],
    specs: Sequence[TimelinePanel],
    trace_df: pd.DataFrame,
    styles: Mapping[str, TreatmentStyle],
) -> Figure | None:
    """Draw these panels: the state of memory while the disk was used."""
    return (
        _draw_panels(run, names, specs, trace_df, trace_df.iloc[:0], styles)
        if names and specs
        else None
    )


def _has_data(trace_df: pd.DataFrame, spec: TimelinePanel) -> bool:
    most = trace_df[spec.column].max() if spec.column in trace_df else 0
    return bool(most > (_MIN_STALL if spec.response.endswith("_fraction") else 0))


def _draw_panels(
    run: Run,
    names: Sequence[str],
    specs: Sequence[TimelinePanel],
    trace_df: pd.DataFrame,
    iostat_df: pd.DataFrame,
    styles: Mapping[str, TreatmentStyle],
) -> Figure:
    height = -(-len(names) // ACROSS)
    figure = Figure(figsize=(WIDTH, _PANEL_INCHES * len(specs) * height), layout="constrained")
    panels = figure.subplots(len(specs) * height, min(ACROSS, len(names)), squeeze=False)
    for position in range(height * panels.shape[1]):
        row, column = divmod(position, panels.shape[1])
        column_axes = [panels[row * len(specs) + depth][column] for depth in range(len(specs))]
        if position >= len(names):
            for axes in column_axes:
                axes.set_visible(False)
            continue
        _draw_treatment(
            run, column_axes, names[position], specs, (trace_df, iostat_df), styles[names[position]]
        )
        for axes, spec in zip(column_axes, specs, strict=True):
            axes.set_ylabel(spec.words if column == 0 else "")
    return figure


def _draw_treatment(
    run: Run,
    column_axes: Sequence[Axes],
    name: str,
    specs: Sequence[TimelinePanel],
    frames: Sequence[pd.DataFrame],
    style: TreatmentStyle,
) -> None:
    """Draw one treatment's panels over the same time, with the measured part on white."""
    requested = _caps(run, name)
    trace_df, iostat_df = (frame[frame["treatment"] == name] for frame in frames)
    iostat_df = _within_series(iostat_df, trace_df)
    for axes, spec in zip(column_axes, specs, strict=True):
        panels.timeline(
            axes, trace_df, iostat_df, spec.column, style, requested.get(spec.cap or "")
        )
        axes.set_xlim(min(0.0, float(trace_df["seconds"].min())), float(trace_df["seconds"].max()))
        panels.shade_outside(axes, 0.0, float(trace_df["measured_seconds"].max()))
        _format_value_axis(axes, spec, float(frames[0][spec.column].max()))
        axes.tick_params(labelbottom=axes is column_axes[-1])
    column_axes[0].set_title(wrapped_label(style.name))
    column_axes[-1].set_xlabel("seconds since go")


def _format_value_axis(axes: Axes, spec: TimelinePanel, most: float) -> None:
    """Set a vertical axis that starts at 0.

    Fractions end at 1; unused panels have the scale of the others; bytes have power-of-two ticks.
    """
    top = axes.get_ylim()[1]
    has_data = axes.dataLim.y1 > 0
    top = 1.0 if spec.response.endswith("_fraction") else top if has_data else max(most, 1.0)
    axes.set_ylim(0, top)
    is_binary = spec.response.endswith("_bytes")
    axes.yaxis.set_major_locator(
        MultipleLocator(2 ** math.ceil(math.log2(top / 4))) if is_binary else MaxNLocator(5)
    )
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: format_quantity(spec.response, value))
    )


def _within_series(iostat_df: pd.DataFrame, trace_df: pd.DataFrame) -> pd.DataFrame:
    """Return iostat's rows within the time of the series."""
    if iostat_df.empty or trace_df.empty:
        return iostat_df
    return iostat_df[
        iostat_df["seconds"].between(
            trace_df["seconds"].min() - 0.5, trace_df["seconds"].max() + 0.5
        )
    ]


def _caps(run: Run, name: str) -> dict[str, int]:
    for trial in run.trials:
        if treatment_label(trial.record.treatment) == name:
            return dict(trial.record.cage.requested or {})
    return {}
