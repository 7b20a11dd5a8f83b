"""Which way of the disk's traffic is drawn over time: the one in which the trials moved more."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from analysis import frames
from analysis.figures import timeline_figure
from analysis.load import load_run
from tests.fixtures.runs import build_run


@pytest.mark.parametrize(("written", "words"), [(0, "read from the disk"), (10**15, "written to the disk")])
def test_the_larger_traffic_is_drawn(tmp_path: Any, written: int, words: str) -> None:
    run = load_run(build_run(tmp_path / "run"))
    trial_df = frames.trial_frame(run)
    trial_df["device_write_bytes"] = written
    drawn = timeline_figure(run, trial_df, frames.trace_frame(run), frames.iostat_frame(run))
    assert drawn is not None
    assert drawn.axes[0].get_ylabel() == words


def test_a_record_from_before_writes_were_counted_shows_reads(tmp_path: Any) -> None:
    run = load_run(build_run(tmp_path / "run"))
    trial_df = frames.trial_frame(run).drop(columns="device_write_bytes", errors="ignore")
    assert isinstance(trial_df, pd.DataFrame)
    drawn = timeline_figure(run, trial_df, frames.trace_frame(run), frames.iostat_frame(run))
    assert drawn is not None
    assert drawn.axes[0].get_ylabel() == "read from the disk"
