"""Tables of trials, responses and samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.data.events import UNTRACED, events_in_measured_part
from analysis.data.load import STALLS, JudgedTrial, Run, flattened
from analysis.formatting import treatment_label
from pagecage.errors import PagecageError
from pagecage.model.collectors import field_values, script_values
from pagecage.model.run_files import read_lines, trace_path
from pagecage.verdicts.counters import measured_seconds
from pagecage.verdicts.verdict import limit_title

KIB = 1024
SHORT_SECONDS = 3.0
"""In parts shorter than this, rates are taken over 0.2 s instead of 0.5 s."""


def trial_frame(run: Run) -> pd.DataFrame:
    """Return one row per trial: factors, outcome, responses, verdicts, reasons for exclusion."""
    rows = []
    for trial in run.trials:
        record, verdicts = trial.record, trial.verdicts
        limits = (f"{limit_title(limit)} {limit.verdict}" for limit in verdicts.limits)
        row = {
            "trial_id": record.trial_id,
            "treatment": treatment_label(record.treatment),
            "repeat": record.repeat,
            "position": record.position,
            "attempt": record.attempt,
            "outcome": record.outcome,
            "is_included": trial.is_included,
            "reasons": "; ".join(verdicts.reasons),
            "limits": ", ".join(limits),
            "cache_state": verdicts.cache_state_reached.verdict,
            "host_quiet": verdicts.host_quiet.verdict,
            "binding_limit": verdicts.binding_limit.verdict,
            "floor_closeness": verdicts.floor.closeness,
            "error": record.error or "",
        }
        if clash := set(run.factors) & set(row):
            raise PagecageError(
                f"factor {min(clash)!r} has the name of a column", "rename it in the definition"
            )
        rows.append({**record.treatment, **row, **record.response})
    return pd.DataFrame(rows)


def trace_frame(run: Run) -> pd.DataFrame:
    """Return the 10 Hz series as rates between samples; `seconds` counts from `go`."""
    parts = [(trial, _rates(trial)) for trial in run.trials if trial.record.measured]
    if not any(len(part["t"]) for _, part in parts):
        return _frame(run, [], "seconds")
    about = pd.DataFrame(
        {**_trial_identity(trial), "measured_seconds": measured_seconds(trial.record)}
        for trial, _ in parts
    )
    for name in ("trial_id", "treatment"):  # because there are many rows and few trials
        about[name] = pd.Categorical(about[name], about[name].unique())
    repeated = about.index.repeat([len(part["t"]) for _, part in parts])
    rates = {name: np.concatenate([part[name] for _, part in parts]) for name in parts[0][1]}
    return about.loc[repeated].reset_index(drop=True).assign(**rates)


def _rates(trial: JudgedTrial) -> dict[str, np.ndarray]:
    """Return rates over 0.5 s, or over 0.2 s in short parts; NaN where unknown.

    The interval smooths the bursts in which blk-throttle admits I/O, one per throttle slice. A
    stalled fraction is the share of time in which at least one task waited.
    """
    steps = 2 if (measured_seconds(trial.record) or 0) < SHORT_SECONDS else 5
    series, measured = trial.series, trial.record.measured
    assert measured is not None
    t = np.asarray(series.t)
    first, last = t[: max(0, len(t) - steps)], t[steps:]
    keep = last > first
    span, middle = (last - first)[keep], ((first + last) / 2)[keep]

    def grown(total: Sequence[float]) -> np.ndarray:
        values = np.asarray(total)
        difference: np.ndarray = values[steps:] - values[: max(0, len(values) - steps)]
        return difference[keep]

    io = {key: grown(total) for key, total in series.io.items()}
    moved, count = io["rbytes"] + io["wbytes"], io["rios"] + io["wios"]
    resident = np.asarray(series.resident_pages)[steps:][keep]
    stalled = {kind: grown(series.stalled_us[kind]) / 1e6 / span for kind in STALLS}
    return {
        "t": middle,
        "read_bytes_per_second": io["rbytes"] / span,
        "reads_per_second": io["rios"] / span,
        "write_bytes_per_second": io["wbytes"] / span,
        "writes_per_second": io["wios"] / span,
        "bytes_per_io": np.divide(moved, count, out=np.full(len(count), np.nan), where=count > 0),
        "refaults_per_second": grown(series.refaults) / span,
        **{f"{kind}_stalled_fraction": share for kind, share in stalled.items()},
        "resident_pages": resident,
        "memory_current": np.asarray(series.memory_current)[steps:][keep],
        "resident_bytes": resident * trial.record.page_bytes,
        "seconds": middle - measured.start_monotonic_seconds,
    }


def iostat_frame(run: Run) -> pd.DataFrame:
    """Return iostat's samples of the measured disk, one row per second.

    The file may contain the other devices of the disk's stack as well. A row describes the second
    before its timestamp and is placed in the middle of it.
    """
    return _stack(run, iostat_rows, "wall")


def iostat_rows(run: Run, trial: JudgedTrial) -> Iterator[dict[str, Any]]:
    """Yield iostat's samples of the measured disk in a trial; nothing without a complete file."""
    file = trace_path(run.path, trial.record, "iostat")
    if not file:
        return
    try:
        hosts = json.loads(file.read_text())["sysstat"]["hosts"]
    except (ValueError, KeyError):
        return
    for row in hosts[0]["statistics"]:
        disks = row.get("disk", [])
        measured = [one for one in disks if one.get("disk_device") == trial.record.device.name]
        for disk in measured or disks:  # iostat may call it by another name
            yield {
                "wall": pd.Timestamp(row["timestamp"]).timestamp() - 0.5,
                "read_bytes_per_second": disk["rkB/s"] * KIB,
                "reads_per_second": disk["r/s"],
                "write_bytes_per_second": disk["wkB/s"] * KIB,
                "writes_per_second": disk["w/s"],
                "util_percent": disk.get("util"),
            }


def vmtouch_frame(run: Run) -> pd.DataFrame:
    return _stack(run, lambda r, t: iter(read_lines(r.path, t.record, "vmtouch")), "t")


def readahead_frame(run: Run) -> pd.DataFrame:
    """Return counts of read-ahead sizes (`page_cache_ra_order`) in the measured part."""
    return _counted(run, "page_cache_ra_order", "pages")


def fault_frame(run: Run) -> pd.DataFrame:
    """Return counts of `filemap_fault` calls by the mapping's flags in the measured part."""
    return _counted(run, "filemap_fault", "vm_flags")


def _counted(run: Run, probe: str, key: str) -> pd.DataFrame:
    def name(entry: Mapping[str, Any]) -> Any:
        flags = entry.get("vm_flag_names") if key == "vm_flags" else None
        return " ".join(flags) if flags else entry.get(key, UNTRACED)

    rows = [
        {**_trial_identity(trial), key: value, "count": count}
        for trial in run.trials
        for value, count in events_in_measured_part(run, trial, probe, name).items()
    ]
    return _frame(run, rows, key, "count")


def _trial_identity(trial: JudgedTrial) -> dict[str, Any]:
    record = trial.record
    names = {
        "trial_id": record.trial_id,
        "treatment": treatment_label(record.treatment),
        "repeat": record.repeat,
    }
    return {**names, "is_included": trial.is_included}


def _frame(run: Run, rows: Sequence[Mapping[str, Any]], *columns: str) -> pd.DataFrame:
    """Return rows as a frame; one without rows has the columns of a trial, and `columns`."""
    named = None if rows else [*_trial_identity(run.trials[0]), *columns]
    return pd.DataFrame(rows, columns=named)


def _stack(
    run: Run, rows_of: Callable[[Run, JudgedTrial], Iterator[Mapping[str, Any]]], clock: str
) -> pd.DataFrame:
    """Return all trials' rows in one frame, with `seconds` since `go` by the given clock."""
    key = "start_monotonic_seconds" if clock == "t" else "start_wall_seconds"
    rows = []
    for trial in run.trials:
        if trial.record.measured:
            start = getattr(trial.record.measured, key)
            identity = {**_trial_identity(trial), "measured_seconds": trial.record.measured.seconds}
            rows += [
                {**identity, **row, "seconds": row[clock] - start} for row in rows_of(run, trial)
            ]
    return _frame(run, rows, "seconds")


_MOMENTS = ("before", "after", "totals")


def sample_frame(run: Run) -> pd.DataFrame:
    """Return one row per timed pass: the fields of a workload's `sample` line."""
    rows = [
        {**_trial_identity(trial), **sample}
        for trial in run.trials
        for sample in trial.record.samples
    ]
    return _frame(run, rows)


def counter_frame(run: Run) -> pd.DataFrame:
    """Return one row per kernel counter of a trial: at `go`, at `end`, its growth, and its total.

    `source` is `cgroup`, `device` or `host`. Names of nested counters are joined by dots
    (`memory.stat.pgmajfault`). A counter that was not read is NaN.
    """
    rows = []
    for trial in run.trials:
        counters = trial.record.counters
        read = {
            one: {
                name: n
                for name, n in flattened(getattr(counters, one) or {})
                if isinstance(n, int | float)
            }
            for one in _MOMENTS
        }
        for name in dict.fromkeys(name for values in read.values() for name in values):
            source, _, counter = name.partition(".")
            values = {moment: read[moment].get(name) for moment in _MOMENTS}
            about = {**_trial_identity(trial), "source": source, "counter": counter}
            rows.append({**about, **values})
    frame = _frame(run, rows, "source", "counter", *_MOMENTS)
    frame[list(_MOMENTS)] = frame[list(_MOMENTS)].astype(float)
    frame.insert(frame.columns.get_loc("totals"), "grown", frame["after"] - frame["before"])  # type: ignore[arg-type]
    return frame


_COLUMNS = ("collector", "field", "seconds", "measured_seconds", "value")


def own_collector_names(run: Run) -> list[str]:
    return list(_custom_collectors(run))


def _custom_collectors(run: Run) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for trial in run.plan["trials"]:
        for one in trial.get("own_collectors") or ():
            if isinstance(one, dict) and isinstance(one.get("name"), str):
                found[one["name"]] = found.get(one["name"], False) or bool(one.get("is_script"))
    return found


def own_frame(run: Run) -> pd.DataFrame:
    """Return one row per number that a custom collector printed; `seconds` counts from `go`."""
    rows = []
    for trial in run.trials:
        if (measured := trial.record.measured) is None:
            continue
        for name, is_script in _custom_collectors(run).items():
            about = {"collector": name, "measured_seconds": measured.seconds}
            entry = trial.record.collectors.get(name) or {}
            started = entry.get("start_monotonic_seconds") or 0.0
            for line in read_lines(run.path, trial.record, name):
                arrived = line.get("arrived") if isinstance(line, dict) else None
                if not isinstance(arrived, int | float) or not isinstance(line.get("line"), dict):
                    continue
                printed = line["line"]
                values = (
                    script_values(printed, arrived)
                    if is_script
                    else field_values(printed, arrived, started)
                )
                if values is not None:
                    about["seconds"] = values.t - measured.start_monotonic_seconds
                    rows += [
                        {**_trial_identity(trial), **about, "field": field, "value": value}
                        for field, value in values.values.items()
                    ]
    return pd.DataFrame(rows, columns=[*_trial_identity(run.trials[0]), *_COLUMNS])
