"""What a treatment's trials did over time: lanes above one another, treatments side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from analysis.data.load import Run
from analysis.figures import panels
from analysis.figures.charts import ACROSS, WIDTH, two_lines
from analysis.figures.style import TreatmentStyle
from analysis.formatting import label, quantity

MOVES_BYTES = 1_000_000
"""Treatments that move less than this have no timeline worth drawing."""
_LANE_INCHES = 1.95
_SELDOM = 0.02
"""A stall of a smaller share of the time, at its longest, is none to draw."""


@dataclass(frozen=True)
class TimelinePanel:
    """One figure over time: its column, what it is called as a response, its words, the cap that may hold it."""

    column: str
    response: str
    words: str
    cap: str | None = None


@dataclass(frozen=True)
class TrafficDirection:
    """A way of the disk's traffic: its total in the records, and its lanes."""

    total: str
    lanes: tuple[TimelinePanel, TimelinePanel]


READ = TrafficDirection("device_read_bytes", (
    TimelinePanel("read_bytes_per_second", "bytes_per_second", "read from the disk", "IOReadBandwidthMax"),
    TimelinePanel("reads_per_second", "reads_per_second", "reads", "IOReadIOPSMax"),
))  # fmt: skip
WRITE = TrafficDirection("device_write_bytes", (
    TimelinePanel("write_bytes_per_second", "bytes_per_second", "written to the disk", "IOWriteBandwidthMax"),
    TimelinePanel("writes_per_second", "writes_per_second", "writes", "IOWriteIOPSMax"),
))  # fmt: skip
_STATES = (
    TimelinePanel("bytes_per_io", "io_bytes", "size of an I/O"),
    TimelinePanel("resident_bytes", "resident_bytes", "resident"),
    TimelinePanel("refaults_per_second", "refaults_per_second", "refaults"),
    TimelinePanel("io_stalled_fraction", "io_stalled_fraction", "waited for I/O"),
    TimelinePanel("memory_stalled_fraction", "memory_stalled_fraction", "waited for memory"),
)


def busy(
    trial_df: pd.DataFrame, fine_df: pd.DataFrame, look: Mapping[str, TreatmentStyle]
) -> tuple[TrafficDirection, list[str]]:
    """The way in which the trials moved more, and the treatments that moved something worth drawing in time."""
    way = _direction(trial_df)
    moved = trial_df[trial_df[way.total] > MOVES_BYTES]["treatment"] if way.total in trial_df else ()
    return way, [name for name in look if name in set(moved) & set(fine_df["treatment"])]


def _direction(trial_df: pd.DataFrame) -> TrafficDirection:
    written, read = (trial_df.get(way.total, pd.Series(dtype=float)).sum() for way in (WRITE, READ))
    return WRITE if written > read else READ


def timeline_figure(
    run: Run, trial_df: pd.DataFrame, fine_df: pd.DataFrame, second_df: pd.DataFrame, look: Mapping[str, TreatmentStyle]
) -> Figure | None:
    """MB/s above, I/Os a second below, for every treatment that used the disk: reads, or writes where they are more."""
    way, names = busy(trial_df, fine_df, look)
    if not names:
        return None
    return _lanes(run, names, way.lanes, fine_df, second_df, look)


def states(fine_df: pd.DataFrame, names: Sequence[str]) -> list[TimelinePanel]:
    """Size of an I/O, what is resident, refaults and stalls; without those that these treatments never had."""
    shown = fine_df[fine_df["treatment"].isin(list(names))]
    return [lane for lane in _STATES if _has_something(shown, lane)]


def state_figure(
    run: Run,
    names: Sequence[str],
    lanes: Sequence[TimelinePanel],
    fine_df: pd.DataFrame,
    look: Mapping[str, TreatmentStyle],
) -> Figure | None:
    """What went on in memory while the disk was used, in these lanes."""
    return _lanes(run, names, lanes, fine_df, fine_df.iloc[:0], look) if names and lanes else None


def _has_something(fine_df: pd.DataFrame, lane: TimelinePanel) -> bool:
    most = fine_df[lane.column].max() if lane.column in fine_df else 0
    return bool(most > (_SELDOM if lane.response.endswith("_fraction") else 0))


def _lanes(
    run: Run, names: Sequence[str], lanes: Sequence[TimelinePanel], fine_df: pd.DataFrame, second_df: pd.DataFrame,
    look: Mapping[str, TreatmentStyle],
) -> Figure:  # fmt: skip
    height = -(-len(names) // ACROSS)
    figure = Figure(figsize=(WIDTH, _LANE_INCHES * len(lanes) * height), layout="constrained")
    panels = figure.subplots(len(lanes) * height, min(ACROSS, len(names)), squeeze=False)
    for place in range(height * panels.shape[1]):
        row, column = divmod(place, panels.shape[1])
        pile = [panels[row * len(lanes) + depth][column] for depth in range(len(lanes))]
        if place >= len(names):
            for axes in pile:
                axes.set_visible(False)
            continue
        _pile(run, pile, names[place], lanes, (fine_df, second_df), look[names[place]])
        for axes, lane in zip(pile, lanes, strict=True):
            axes.set_ylabel(lane.words if column == 0 else "")
    return figure


def _pile(
    run: Run,
    pile: Sequence[Axes],
    name: str,
    lanes: Sequence[TimelinePanel],
    frames: Sequence[pd.DataFrame],
    look: TreatmentStyle,
) -> None:
    """One treatment's lanes over the same time, the measured part on white."""
    requested = _caps(run, name)
    fine_df, second_df = (frame[frame["treatment"] == name] for frame in frames)
    second_df = _during(second_df, fine_df)
    for axes, lane in zip(pile, lanes, strict=True):
        panels.timeline(axes, fine_df, second_df, lane.column, look, requested.get(lane.cap or ""))
        axes.set_xlim(min(0.0, float(fine_df["seconds"].min())), float(fine_df["seconds"].max()))
        panels.shade_outside(axes, 0.0, float(fine_df["measured_seconds"].max()))
        _upright(axes, lane, float(frames[0][lane.column].max()))
        axes.tick_params(labelbottom=axes is pile[-1])
    pile[0].set_title(two_lines(look.name))
    pile[-1].set_xlabel("seconds since go")


def _upright(axes: Axes, lane: TimelinePanel, most: float) -> None:
    """The vertical axis from 0: shares to 1, what never was as far as others have it, bytes in powers of two."""
    top = axes.get_ylim()[1]
    drawn = any(np.nanmax(line.get_ydata(), initial=0) > 0 for line in axes.lines)
    top = 1.0 if lane.response.endswith("_fraction") else top if drawn else max(most, 1.0)
    axes.set_ylim(0, top)
    is_binary = lane.response.endswith("_bytes")
    axes.yaxis.set_major_locator(MultipleLocator(2 ** math.ceil(math.log2(top / 4))) if is_binary else MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(lane.response, value)))


def _during(second_df: pd.DataFrame, fine_df: pd.DataFrame) -> pd.DataFrame:
    """iostat's seconds within the time that the series spans."""
    if second_df.empty or fine_df.empty:
        return second_df
    return second_df[second_df["seconds"].between(fine_df["seconds"].min() - 0.5, fine_df["seconds"].max() + 0.5)]


def _caps(run: Run, name: str) -> dict[str, int]:
    for trial in run.trials:
        if label(dict(trial.record.treatment)) == name:
            return dict(trial.record.cage.requested or {})
    return {}
