"""Tests of timelines: the direction with more traffic, and the state of memory."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.data import frames
from analysis.data.load import Run, load_run
from analysis.figures.style import treatment_styles
from analysis.figures.traces import state_figure, state_panels, timeline_figure, timeline_treatments
from tests.fixtures.runs import build_run

CAGED_RANDOM = "tenth · unloaded · random"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(build_run(tmp_path_factory.mktemp("traces") / "run"))


def timelines(
    run: Run, trial_df: pd.DataFrame, trace_df: pd.DataFrame, iostat_df: pd.DataFrame | None = None
) -> Figure:
    seconds = frames.iostat_frame(run) if iostat_df is None else iostat_df
    drawn = timeline_figure(run, trial_df, trace_df, seconds, treatment_styles(run))
    assert drawn is not None
    return drawn


@pytest.mark.parametrize(
    ("written", "words"),
    [(0, "read from the disk"), (10**15, "written to the disk"), (None, "read from the disk")],
    ids=["more reads", "more writes", "a record from before writes were counted"],
)
def test_the_larger_traffic_is_drawn(run: Run, written: int | None, words: str) -> None:
    trial_df = frames.trial_frame(run).drop(columns="device_write_bytes", errors="ignore")
    if written is not None:
        trial_df["device_write_bytes"] = written
    drawn = timelines(run, trial_df, frames.trace_frame(run))
    assert drawn.axes[0].get_ylabel() == words


def test_each_trial_has_a_line_and_a_panel_without_traffic_the_scale_of_the_others(
    run: Run,
) -> None:
    trial_df, trace_df = frames.trial_frame(run), frames.trace_frame(run)
    first = timeline_treatments(trial_df, trace_df, treatment_styles(run))[1][0]
    column, rows = "read_bytes_per_second", trace_df["treatment"] == first
    one = trace_df[rows].iloc[0]["trial_id"]
    (lines,) = timelines(run, trial_df, trace_df).axes[0].collections
    assert isinstance(lines, LineCollection)
    segments = lines.get_segments()
    assert len(segments) == trace_df[rows]["trial_id"].nunique() > 1
    expected = trace_df[rows & (trace_df["trial_id"] == one)][["seconds", column]].to_numpy()
    assert np.array_equal(segments[0], expected[~np.isnan(expected).any(axis=1)])
    trace_df.loc[rows, column] = 0.0
    idle = timelines(run, trial_df, trace_df, frames.iostat_frame(run).iloc[:0])
    assert idle.axes[0].get_ylim() == (0, trace_df[column].max())


def test_the_measured_part_is_white_and_the_rest_is_not(run: Run) -> None:
    trace_df = frames.trace_frame(run)
    axes = timelines(run, frames.trial_frame(run), trace_df).axes[0]
    low, high = axes.get_xlim()
    parts = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    before, after = ((part.get_x(), part.get_x() + part.get_width()) for part in parts)
    of_first = trace_df["treatment"] == "uncaged · unloaded · sequential"
    longest = trace_df[of_first]["measured_seconds"].max()
    assert before == pytest.approx((low, 0.0))
    assert after == pytest.approx((longest, high))


def test_refaults_residency_and_stalls_are_those_of_the_sampler(run: Run) -> None:
    rows = frames.trace_frame(run)
    rows = rows[(rows["treatment"] == CAGED_RANDOM) & rows["is_included"]]
    inside = rows[(rows["seconds"] > 1) & (rows["seconds"] < rows["measured_seconds"] - 1)]
    trial = next(t for t in run.trials if t.record.trial_id == inside["trial_id"].iloc[0])
    one = inside[inside["trial_id"] == trial.record.trial_id]
    moved, measured = trial.record.response["device_read_bytes"], trial.record.measured
    assert moved
    assert measured
    refaults = moved / 4096 / measured.seconds
    assert one["bytes_per_io"].median() == pytest.approx(131072, rel=0.01)
    assert one["refaults_per_second"].median() == pytest.approx(refaults, rel=0.01)
    assert one["io_stalled_fraction"].median() == pytest.approx(0.4, rel=0.01)
    assert one["memory_stalled_fraction"].max() == 0
    assert one["resident_bytes"].max() <= 13_421_772


def test_panels_without_data_are_left_out(run: Run) -> None:
    trial_df, trace_df = frames.trial_frame(run), frames.trace_frame(run)
    _, names = timeline_treatments(trial_df, trace_df, treatment_styles(run))
    lanes = state_panels(trace_df, names)
    assert [lane.words for lane in lanes] == ["I/O size", "resident", "refaults", "stalled on I/O"]
    drawn = state_figure(run, names, lanes, trace_df, treatment_styles(run))
    assert drawn is not None
    assert len([axes for axes in drawn.axes if axes.get_visible()]) == len(names) * len(lanes)
    assert all(axes.get_ylim() == (0, 1) for axes in drawn.axes[12:16])
    nothing = trace_df.assign(**{lane.column: np.nan for lane in lanes})
    assert state_panels(nothing, names) == []
    assert state_figure(run, names, [], nothing, treatment_styles(run)) is None
