"""Series of the collectors that a definition brings along, from their traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from analysis.data.frames import trial_identity
from analysis.data.load import JudgedTrial, Run
from pagecage.model.collectors.lines import FieldValues, field_values, script_values
from pagecage.model.traces import read_lines

_COLUMNS = ("collector", "field", "seconds", "measured_seconds", "value")


def own_collector_names(run: Run) -> list[str]:
    """Return the collectors of the definition, in its order."""
    specs = (one for trial in run.plan["trials"] for one in _specs(trial))
    return list(dict.fromkeys(str(one["name"]) for one in specs))


def own_frame(run: Run) -> pd.DataFrame:
    """Return one row per number that a collector of the definition printed.

    `seconds` counts from `go`. A trial without a measured part has no rows.
    """
    scripts = {
        one["name"] for trial in run.plan["trials"] for one in _specs(trial) if one.get("is_script")
    }
    names = own_collector_names(run)
    rows = [
        row
        for trial in run.trials
        for name in names
        for row in _rows(run, trial, name, is_script=name in scripts)
    ]
    return pd.DataFrame(rows, columns=[*trial_identity(run.trials[0]), *_COLUMNS])


def _specs(trial: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the collectors of a trial of plan.json, which may be untrusted."""
    specs = trial.get("own_collectors") or ()
    return [one for one in specs if isinstance(one, dict) and isinstance(one.get("name"), str)]


def _rows(run: Run, trial: JudgedTrial, name: str, *, is_script: bool) -> Iterator[dict[str, Any]]:
    measured = trial.record.measured
    if measured is None:
        return
    identity = {**trial_identity(trial), "collector": name, "measured_seconds": measured.seconds}
    entry = trial.record.collectors.get(name) or {}
    started = entry.get("start_monotonic_seconds") or 0.0
    for line in read_lines(run.path, trial.record, name):
        values = _values(line, started, is_script=is_script)
        for field, value in (values.values if values else {}).items():
            seconds = values.t - measured.start_monotonic_seconds if values else 0.0
            yield {**identity, "field": field, "seconds": seconds, "value": value}


def _values(line: Any, started: float, *, is_script: bool) -> FieldValues | None:
    """Return the numbers of a line of a trace; None for one that is no JSON object."""
    if not isinstance(line, dict) or not isinstance(line.get("line"), dict):
        return None
    arrived = line.get("arrived")
    if not isinstance(arrived, int | float):
        return None
    if is_script:
        return script_values(line["line"], arrived)
    return field_values(line["line"], arrived, started)
