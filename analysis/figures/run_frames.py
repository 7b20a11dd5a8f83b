"""A run with the data frames and the styles of its figures."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from analysis.data import frames, raw_frames
from analysis.data.load import Run
from analysis.figures import latencies
from analysis.figures.style import TreatmentStyle, treatment_styles


class RunFrames:
    """A run whose data frames are made once, on first use."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def trial_df(self) -> pd.DataFrame:
        """One row per trial."""
        return frames.trial_frame(self.run)

    @cached_property
    def sample_df(self) -> pd.DataFrame:
        """One row per timed pass of a workload."""
        return raw_frames.sample_frame(self.run)

    @cached_property
    def counter_df(self) -> pd.DataFrame:
        """One row per kernel counter of a trial."""
        return raw_frames.counter_frame(self.run)

    @cached_property
    def trace_df(self) -> pd.DataFrame:
        """One row per 0.1 s of a trial: rates of the slice's I/O."""
        return frames.trace_frame(self.run)

    @cached_property
    def latency_df(self) -> pd.DataFrame:
        """One row per bucket of a trial's latency histograms."""
        return latencies.latency_frame(self.run)

    @cached_property
    def styles(self) -> dict[str, TreatmentStyle]:
        """The style of each treatment, the same in every figure."""
        return treatment_styles(self.run)
