"""Tables of trials, responses and samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.data.events import UNTRACED, events_in_measured_part
from analysis.data.load import STALLS, JudgedTrial, Run, Series, Treatment
from analysis.formatting import treatment_label
from pagecage.errors import PagecageError
from pagecage.model.collectors import FieldValues, field_values, script_values
from pagecage.model.run_files import read_lines, trace_path
from pagecage.verdicts.counters import measured_seconds
from pagecage.verdicts.verdict import limit_title

KIB = 1024
SHORT_SECONDS = 3.0
"""In parts shorter than this, rates are taken over 0.2 s instead of 0.5 s."""


def trial_frame(run: Run) -> pd.DataFrame:
    """Return one row per trial: factors, outcome, responses, verdicts and reasons for exclusion."""
    rows = [_trial_row(trial) for trial in run.trials]
    clash = set(run.factors) & set(_trial_columns(run.trials[0]))
    if clash:
        raise PagecageError(
            f"factor {min(clash)!r} has the name of a column", "rename it in the definition"
        )
    return pd.DataFrame(rows)


def _trial_row(trial: JudgedTrial) -> dict[str, Any]:
    return {**trial.record.treatment, **_trial_columns(trial), **trial.record.response}


def _trial_columns(trial: JudgedTrial) -> dict[str, Any]:
    record, verdicts = trial.record, trial.verdicts
    return {
        "trial_id": record.trial_id,
        "treatment": treatment_label(record.treatment),
        "repeat": record.repeat,
        "position": record.position,
        "attempt": record.attempt,
        "outcome": record.outcome,
        "is_included": trial.is_included,
        "reasons": "; ".join(verdicts.reasons),
        "limits": ", ".join(f"{limit_title(limit)} {limit.verdict}" for limit in verdicts.limits),
        "cache_state": verdicts.cache_state_reached.verdict,
        "host_quiet": verdicts.host_quiet.verdict,
        "binding_limit": verdicts.binding_limit.verdict,
        "floor_closeness": verdicts.floor.closeness,
        "error": record.error or "",
    }


def trace_frame(run: Run) -> pd.DataFrame:
    """Return the 10 Hz series as rates between samples; `seconds` counts from `go`."""
    parts = [(trial, _rates(trial)) for trial in run.trials if trial.record.measured]
    columns = (
        {name: np.concatenate([part[name] for _, part in parts]) for name in parts[0][1]}
        if parts
        else {}
    )
    if not columns or not len(columns["t"]):
        return pd.DataFrame(columns=[*trial_identity(run.trials[0]), "seconds"])
    lengths = [len(part["t"]) for _, part in parts]
    return pd.DataFrame({**_repeated([trial for trial, _ in parts], lengths), **columns})


def _rates(trial: JudgedTrial) -> dict[str, np.ndarray]:
    """Return rates over 0.5 s, or over 0.2 s in short parts.

    The interval smooths the bursts in which blk-throttle admits I/O, one per throttle slice.
    """
    steps = 2 if (measured_seconds(trial.record) or 0) < SHORT_SECONDS else 5
    series, measured = trial.series, trial.record.measured
    assert measured is not None
    t = np.asarray(series.t)
    first, last = t[: max(0, len(t) - steps)], t[steps:]
    keep = last > first
    span = (last - first)[keep]
    columns = {name: _grown(series.io[key], steps)[keep] / span for name, key in _RATES.items()}
    columns |= _waits(series, steps, keep, span)
    middle = ((first + last) / 2)[keep]
    states = {
        name: np.asarray(getattr(series, name))[steps:][keep]
        for name in ("resident_pages", "memory_current")
    }
    states["resident_bytes"] = states["resident_pages"] * trial.record.page_bytes
    return {"t": middle, **columns, **states, "seconds": middle - measured.start_monotonic_seconds}


def _waits(series: Series, steps: int, keep: np.ndarray, span: np.ndarray) -> dict[str, np.ndarray]:
    """Return bytes per I/O, refaults per second and stalled fractions; NaN where unknown.

    A stalled fraction is the share of time in which at least one task waited.
    """
    moved = _grown(series.io["rbytes"], steps) + _grown(series.io["wbytes"], steps)
    count = _grown(series.io["rios"], steps) + _grown(series.io["wios"], steps)
    size = np.divide(moved, count, out=np.full(len(count), np.nan), where=count > 0)
    stalled = {
        f"{kind}_stalled_fraction": _grown(series.stalled_us[kind], steps)[keep] / 1e6 / span
        for kind in STALLS
    }
    return {
        "bytes_per_io": size[keep],
        "refaults_per_second": _grown(series.refaults, steps)[keep] / span,
        **stalled,
    }


_RATES = {
    "read_bytes_per_second": "rbytes",
    "reads_per_second": "rios",
    "write_bytes_per_second": "wbytes",
    "writes_per_second": "wios",
}


def _grown(total: Sequence[float], steps: int) -> np.ndarray:
    values = np.asarray(total)
    difference: np.ndarray = values[steps:] - values[: max(0, len(values) - steps)]
    return difference


def _repeated(trials: Sequence[JudgedTrial], lengths: Sequence[int]) -> dict[str, Any]:
    """Return the columns that identify a trial, repeated for each of its rows.

    Text columns are categorical, because there are many rows and few trials.
    """
    identities = [
        {**trial_identity(trial), "measured_seconds": measured_seconds(trial.record)}
        for trial in trials
    ]
    columns: dict[str, Any] = {}
    for name in identities[0]:
        values = [one[name] for one in identities]
        codes_by_value = {value: code for code, value in enumerate(dict.fromkeys(values))}
        codes = np.repeat([codes_by_value[value] for value in values], lengths)
        is_text = isinstance(values[0], str)
        names = pd.Index(list(codes_by_value))
        columns[name] = (
            pd.Categorical.from_codes(codes, names) if is_text else np.repeat(values, lengths)
        )
    return columns


def iostat_frame(run: Run) -> pd.DataFrame:
    """Return iostat's samples of the measured disk, one row per second.

    The file may contain the other devices of the disk's stack as well. A row describes the second
    before its timestamp and is placed in the middle of it.
    """
    return _stack(run, _iostat_rows, "wall")


def _iostat_rows(run: Run, trial: JudgedTrial) -> Iterator[dict[str, Any]]:
    file = trace_path(run.path, trial.record, "iostat")
    if not file:
        return
    try:
        hosts = json.loads(file.read_text())["sysstat"]["hosts"]
    except (ValueError, KeyError):
        return
    for row in hosts[0]["statistics"]:
        for disk in _measured_disks(row.get("disk", []), trial.record.device.name):
            yield {
                "wall": pd.Timestamp(row["timestamp"]).timestamp() - 0.5,
                "read_bytes_per_second": disk["rkB/s"] * KIB,
                "reads_per_second": disk["r/s"],
                "write_bytes_per_second": disk["wkB/s"] * KIB,
                "writes_per_second": disk["w/s"],
                "util_percent": disk.get("util"),
            }


def _measured_disks(disks: Sequence[Mapping[str, Any]], name: str | None) -> list[Any]:
    """Return the measured disk's entry; all entries if iostat calls it by another name."""
    return [disk for disk in disks if disk.get("disk_device") == name] or list(disks)


def vmtouch_frame(run: Run) -> pd.DataFrame:
    """Return vmtouch's residency bars over time, sixty characters each."""
    return _stack(run, lambda r, t: iter(read_lines(r.path, t.record, "vmtouch")), "t")


def readahead_frame(run: Run) -> pd.DataFrame:
    """Return counts of read-ahead sizes (`page_cache_ra_order`) in the measured part."""
    return _counted(run, "page_cache_ra_order", "pages")


def fault_frame(run: Run) -> pd.DataFrame:
    """Return counts of `filemap_fault` calls by the mapping's flags in the measured part."""
    return _counted(run, "filemap_fault", "vm_flags")


def _counted(run: Run, probe: str, key: str) -> pd.DataFrame:
    rows = []
    for trial in run.trials:
        for value, count in events_in_measured_part(
            run, trial, probe, lambda entry: _name(entry, key)
        ).items():
            rows.append({**trial_identity(trial), key: value, "count": count})
    return pd.DataFrame(rows, columns=[*trial_identity(run.trials[0]), key, "count"])


def _name(entry: Mapping[str, Any], key: str) -> Any:
    return (
        " ".join(entry["vm_flag_names"])
        if key == "vm_flags" and entry.get("vm_flag_names")
        else entry.get(key, UNTRACED)
    )


def trial_identity(trial: JudgedTrial) -> dict[str, Any]:
    """Return the columns that identify a trial."""
    record = trial.record
    names = {
        "trial_id": record.trial_id,
        "treatment": treatment_label(record.treatment),
        "repeat": record.repeat,
    }
    return {**names, "is_included": trial.is_included}


def _stack(
    run: Run, rows_of: Callable[[Run, JudgedTrial], Iterator[Mapping[str, Any]]], clock: str
) -> pd.DataFrame:
    """Return all trials' rows in one frame, with `seconds` since `go` by the given clock."""
    key = "start_monotonic_seconds" if clock == "t" else "start_wall_seconds"
    rows = []
    for trial in run.trials:
        if trial.record.measured:
            start = getattr(trial.record.measured, key)
            identity = {**trial_identity(trial), "measured_seconds": trial.record.measured.seconds}
            rows += [
                {**identity, **row, "seconds": row[clock] - start} for row in rows_of(run, trial)
            ]
    return pd.DataFrame(rows, columns=None if rows else [*trial_identity(run.trials[0]), "seconds"])


def only(frame: pd.DataFrame, treatment: Treatment) -> pd.DataFrame:
    """Return the rows of one treatment."""
    return frame[frame["treatment"] == treatment_label(treatment)]


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
