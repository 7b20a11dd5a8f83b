"""Raw samples and counters as data frames, for further analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from analysis.data.frames import trial_identity
from analysis.data.load import JudgedTrial, Run

_MOMENTS = ("before", "after", "totals")


def sample_frame(run: Run) -> pd.DataFrame:
    """Return one row per timed pass: the fields of a workload's `sample` line."""
    rows = [
        {**trial_identity(trial), **sample}
        for trial in run.trials
        for sample in trial.record.samples
    ]
    return pd.DataFrame(rows, columns=None if rows else list(trial_identity(run.trials[0])))


def counter_frame(run: Run) -> pd.DataFrame:
    """Return one row per kernel counter of a trial: at `go`, at `end`, its growth, and its total.

    `source` is `cgroup`, `device` or `host`. Names of nested counters are joined by dots
    (`memory.stat.pgmajfault`). A counter that was not read is NaN.
    """
    rows = [row for trial in run.trials for row in _counters(trial)]
    columns = [*trial_identity(run.trials[0]), "source", "counter", *_MOMENTS]
    frame = pd.DataFrame(rows, columns=columns)
    frame[list(_MOMENTS)] = frame[list(_MOMENTS)].astype(float)
    frame.insert(frame.columns.get_loc("totals"), "grown", frame["after"] - frame["before"])  # type: ignore[arg-type]
    return frame


def _counters(trial: JudgedTrial) -> Iterator[dict[str, Any]]:
    read = {
        moment: dict(_flat(getattr(trial.record.counters, moment) or {})) for moment in _MOMENTS
    }
    for name in dict.fromkeys(name for values in read.values() for name in values):
        source, _, counter = name.partition(".")
        values = {moment: read[moment].get(name) for moment in _MOMENTS}
        yield {**trial_identity(trial), "source": source, "counter": counter, **values}


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, int | float):
            yield f"{prefix}{key}", value
