"""A run's raw figures at their own grains, for whoever goes on where the report ends: samples and counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from analysis.data.load import JudgedTrial, Run
from analysis.formatting import label

_MOMENTS = ("before", "after", "totals")


def sample_frame(run: Run) -> pd.DataFrame:
    """One row a timed pass of a workload: what its `sample` line tells."""
    rows = [{**_identity(trial), **sample} for trial in run.trials for sample in trial.record.samples]
    return pd.DataFrame(rows, columns=None if rows else list(_identity(run.trials[0])))


def counter_frame(run: Run) -> pd.DataFrame:
    """One row a counter of a trial, under the kernel's own name: at `go`, at `end`, what it grew by, at the very end.

    `source` is `cgroup`, `device` or `host`; names of nested counters are joined by dots (`memory.stat.pgmajfault`).
    What was not read is not a number.
    """
    rows = [row for trial in run.trials for row in _counters(trial)]
    columns = [*_identity(run.trials[0]), "source", "counter", *_MOMENTS]
    frame = pd.DataFrame(rows, columns=columns)
    frame[list(_MOMENTS)] = frame[list(_MOMENTS)].astype(float)
    frame.insert(frame.columns.get_loc("totals"), "grown", frame["after"] - frame["before"])  # type: ignore[arg-type]
    return frame


def _counters(trial: JudgedTrial) -> Iterator[dict[str, Any]]:
    read = {moment: dict(_flat(getattr(trial.record.counters, moment) or {})) for moment in _MOMENTS}
    for place in dict.fromkeys(place for values in read.values() for place in values):
        source, _, counter = place.partition(".")
        values = {moment: read[moment].get(place) for moment in _MOMENTS}
        yield {**_identity(trial), "source": source, "counter": counter, **values}


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, int | float):
            yield f"{prefix}{key}", value


def _identity(trial: JudgedTrial) -> dict[str, Any]:
    record = trial.record
    names = {"trial_id": record.trial_id, "treatment": label(dict(record.treatment)), "repeat": record.repeat}
    return {**names, "is_included": trial.is_included}
