"""Whole figures of a run: which panels there are, what stands on their axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis import plots
from analysis.load import Run
from analysis.look import Look, looks
from analysis.wording import label, quantity, title

WIDTH = 10.8
TWO_DECADES = 100
"""A log axis that spans less has room for more figures than the powers of ten."""
ACROSS = 4
"""Panels side by side."""
MOVES_BYTES = 1_000_000
"""Treatments that move less than this have no timeline worth drawing."""


@dataclass(frozen=True)
class Direction:
    """What of the disk's traffic is drawn: two columns, their caps, their words, and the total in the records."""

    bytes_column: str
    count_column: str
    bytes_cap: str
    count_cap: str
    words: tuple[str, str]
    total: str


_READ = Direction(
    "read_bytes_per_second", "reads_per_second", "IOReadBandwidthMax", "IOReadIOPSMax",
    ("read from the disk", "reads"), "device_read_bytes",
)  # fmt: skip
_WRITE = Direction(
    "write_bytes_per_second", "writes_per_second", "IOWriteBandwidthMax", "IOWriteIOPSMax",
    ("written to the disk", "writes"), "device_write_bytes",
)  # fmt: skip


def strip_figure(run: Run, trial_df: pd.DataFrame, response: str, marks: dict[str, float] | None = None) -> Figure:
    """Every trial as a point; `marks` are values to draw a line at."""
    look = {name: one for name, one in looks(run).items() if name in set(trial_df["treatment"])}
    figure = Figure(figsize=(WIDTH, 1.0 + 0.34 * len(look)))
    axes = plots.strip(figure.subplots(), trial_df, response, look)
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


def timeline_figure(run: Run, trial_df: pd.DataFrame, fine_df: pd.DataFrame, second_df: pd.DataFrame) -> Figure | None:
    """MB/s above, I/Os a second below, for every treatment that used the disk: reads, or writes where they are more."""
    if fine_df.empty or "device_read_bytes" not in trial_df:
        return None
    way = _direction(trial_df)
    busy = trial_df[trial_df[way.total] > MOVES_BYTES]["treatment"]
    names = [name for name in looks(run) if name in set(busy)]
    if not names:
        return None
    height = -(-len(names) // ACROSS)
    figure = Figure(figsize=(WIDTH, 3.9 * height), layout="constrained")
    panels = figure.subplots(2 * height, min(ACROSS, len(names)), squeeze=False)
    for axes in panels.flat[2 * len(names) :]:
        axes.set_visible(False)
    for place, name in enumerate(names):
        row, column = divmod(place, ACROSS)
        pair = [panels[2 * row][column], panels[2 * row + 1][column]]
        _pair(run, pair, name, fine_df, second_df, way, is_first=column == 0)
    return figure


def _direction(trial_df: pd.DataFrame) -> Direction:
    """The one in which the trials moved more."""
    written = trial_df.get(_WRITE.total)
    return _WRITE if written is not None and written.sum() > trial_df[_READ.total].sum() else _READ


def _pair(
    run: Run,
    pair: Sequence[Axes],
    name: str,
    fine_df: pd.DataFrame,
    second_df: pd.DataFrame,
    way: Direction,
    *,
    is_first: bool,
) -> None:
    look, requested = looks(run)[name], _caps(run, name)
    for axes, column, cap in (
        (pair[0], way.bytes_column, requested.get(way.bytes_cap)),
        (pair[1], way.count_column, requested.get(way.count_cap)),
    ):
        chosen = [frame[frame["treatment"] == name] for frame in (fine_df, second_df)]
        plots.timeline(axes, chosen[0], _during(chosen[1], chosen[0]), column, look, cap)
        response = f"device_{column}" if "bytes" in column else column
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _, r=response: quantity(r, value)))
        axes.set_xlim(left=min(0, float(chosen[0]["seconds"].min())))
    pair[0].set_title(_two_lines(look.name))
    pair[1].set_xlabel("seconds since go")
    if is_first:
        pair[0].set_ylabel(way.words[0])
        pair[1].set_ylabel(way.words[1])


def _two_lines(name: str) -> str:
    """A treatment's label, its last level on a line of its own, so that neighbours do not run into one another."""
    head, _, last = name.rpartition(" · ")
    return f"{head}\n{last}"


def _during(second_df: pd.DataFrame, fine_df: pd.DataFrame) -> pd.DataFrame:
    """iostat's seconds within the time that the series spans."""
    if second_df.empty or fine_df.empty:
        return second_df
    return second_df[second_df["seconds"].between(fine_df["seconds"].min() - 0.5, fine_df["seconds"].max() + 0.5)]


def _caps(run: Run, name: str) -> dict[str, int]:
    for trial in run.trials:
        if label(dict(trial.record.treatment)) == name:
            return dict(trial.record.cage.get("requested") or {})
    return {}


def residency_figure(run: Run, vmtouch_df: pd.DataFrame) -> Figure | None:
    """One panel for each treatment whose residency changed, of its first repeat that has bars."""
    if vmtouch_df.empty:
        return None
    look = looks(run)
    chosen = [
        (name, rows) for name in look if (rows := _changing(vmtouch_df[vmtouch_df["treatment"] == name])) is not None
    ]
    if not chosen:
        return None
    height = -(-len(chosen) // ACROSS)
    figure = Figure(figsize=(WIDTH, 3.4 * height), layout="constrained")
    panels = figure.subplots(height, min(ACROSS, len(chosen)), squeeze=False)
    for axes in panels.flat[len(chosen) :]:
        axes.set_visible(False)
    for axes, (name, rows) in zip(panels.flat, chosen, strict=False):
        _residency_panel(axes, rows, look[name])
    return figure


def _residency_panel(axes: Axes, rows: pd.DataFrame, look: Look) -> None:
    plots.residency(axes, rows, look.colour)
    axes.set_title(_two_lines(look.name))
    axes.set_xlabel("place in the file, %")
    place = axes.get_subplotspec()
    if place and place.is_first_col():
        axes.set_ylabel("seconds since go")


def _changing(rows: pd.DataFrame) -> pd.DataFrame | None:
    """The first trial whose resident pages are not the same all the time."""
    for _, one in rows.groupby("trial_id", sort=False):
        if one["resident_pages"].nunique() > 1:
            return one
    return None


def readahead_figure(run: Run, readahead_df: pd.DataFrame) -> Figure | None:
    """Sizes of the kernel's read-ahead requests, in pages, by treatment."""
    if readahead_df.empty:
        return None
    names = [name for name in looks(run) if name in set(readahead_df["treatment"])]
    figure = Figure(figsize=(WIDTH, 1.2 + 0.52 * len(names)))
    axes = plots.readahead(figure.subplots(), readahead_df, looks(run))
    axes.set_xlabel("pages asked for at once (4 KiB each)")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return figure
