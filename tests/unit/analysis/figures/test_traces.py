"""Tests of timelines: the direction with more traffic, and the state of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.data import frames
from analysis.data.load import load_run
from analysis.figures.style import treatment_styles
from analysis.figures.traces import state_figure, state_panels, timeline_figure, timeline_treatments
from tests.fixtures.runs import build_run

CAGED_RANDOM = "tenth · unloaded · random"


@pytest.mark.parametrize(
    ("written", "words"), [(0, "read from the disk"), (10**15, "written to the disk")]
)
def test_the_larger_traffic_is_drawn(tmp_path: Any, written: int, words: str) -> None:
    run = load_run(build_run(tmp_path / "run"))
    trial_df = frames.trial_frame(run)
    trial_df["device_write_bytes"] = written
    drawn = timeline_figure(
        run, trial_df, frames.trace_frame(run), frames.iostat_frame(run), treatment_styles(run)
    )
    assert drawn is not None
    assert drawn.axes[0].get_ylabel() == words


def test_each_trial_has_a_line_and_a_panel_without_traffic_the_scale_of_the_others(
    tmp_path: Any,
) -> None:
    run = load_run(build_run(tmp_path / "run"))
    trial_df, trace_df = frames.trial_frame(run), frames.trace_frame(run)
    styles = treatment_styles(run)
    first = timeline_treatments(trial_df, trace_df, styles)[1][0]
    column, rows = "read_bytes_per_second", trace_df["treatment"] == first
    one = trace_df[rows].iloc[0]["trial_id"]
    drawn = timeline_figure(run, trial_df, trace_df, frames.iostat_frame(run), styles)
    assert drawn is not None
    (lines,) = drawn.axes[0].collections
    segments = lines.get_segments()
    assert len(segments) == trace_df[rows]["trial_id"].nunique() > 1
    expected = trace_df[rows & (trace_df["trial_id"] == one)][["seconds", column]].to_numpy()
    assert np.array_equal(segments[0], expected[~np.isnan(expected).any(axis=1)])
    trace_df.loc[rows, column] = 0.0
    idle = timeline_figure(run, trial_df, trace_df, frames.iostat_frame(run).iloc[:0], styles)
    assert idle is not None
    assert idle.axes[0].get_ylim() == (0, trace_df[column].max())


def test_a_record_from_before_writes_were_counted_shows_reads(tmp_path: Any) -> None:
    run = load_run(build_run(tmp_path / "run"))
    trial_df = frames.trial_frame(run).drop(columns="device_write_bytes", errors="ignore")
    assert isinstance(trial_df, pd.DataFrame)
    drawn = timeline_figure(
        run, trial_df, frames.trace_frame(run), frames.iostat_frame(run), treatment_styles(run)
    )
    assert drawn is not None
    assert drawn.axes[0].get_ylabel() == "read from the disk"


def test_the_measured_part_is_white_and_the_rest_is_not(tmp_path: Any) -> None:
    run = load_run(build_run(tmp_path / "run"))
    trial_df, trace_df = frames.trial_frame(run), frames.trace_frame(run)
    drawn = timeline_figure(
        run, trial_df, trace_df, frames.iostat_frame(run), treatment_styles(run)
    )
    assert drawn is not None
    axes = drawn.axes[0]
    low, high = axes.get_xlim()
    (before, after) = ((patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches)
    longest = trace_df[trace_df["treatment"] == "uncaged · unloaded · sequential"][
        "measured_seconds"
    ].max()
    assert before == (pytest.approx(low), 0.0)
    assert after == (pytest.approx(longest), pytest.approx(high))


def test_refaults_residency_and_stalls_are_those_of_the_sampler(tmp_path: Any) -> None:
    run = load_run(build_run(tmp_path / "run"))
    rows = frames.trace_frame(run)
    rows = rows[(rows["treatment"] == CAGED_RANDOM) & rows["is_included"]]
    inside = rows[(rows["seconds"] > 1) & (rows["seconds"] < rows["measured_seconds"] - 1)]
    trial = next(t for t in run.trials if t.record.trial_id == inside["trial_id"].iloc[0])
    one = inside[inside["trial_id"] == trial.record.trial_id]
    moved, seconds = trial.record.response["device_read_bytes"], trial.record.measured.seconds
    assert one["bytes_per_io"].median() == pytest.approx(131072, rel=0.01)
    assert one["refaults_per_second"].median() == pytest.approx(moved / 4096 / seconds, rel=0.01)
    assert one["io_stalled_fraction"].median() == pytest.approx(0.4, rel=0.01)
    assert one["memory_stalled_fraction"].max() == 0
    assert one["resident_bytes"].max() <= 13_421_772


def test_panels_without_data_are_left_out(tmp_path: Any) -> None:
    run = load_run(build_run(tmp_path / "run"))
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
