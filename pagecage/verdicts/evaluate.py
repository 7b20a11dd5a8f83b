"""All verdicts on one trial: the limits, the conditions, the binding limit and the diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagecage.model.record import Record
from pagecage.model.run_files import check_traces, read_lines
from pagecage.verdicts.cache_state import judge_cache_state
from pagecage.verdicts.consistency import judge_consistency, watched
from pagecage.verdicts.counters import Rows
from pagecage.verdicts.diagnosis import Diagnosis, diagnose
from pagecage.verdicts.io_demand import amplification, time_floor
from pagecage.verdicts.limits import judge_limits
from pagecage.verdicts.quiet import judge_disk_speed, judge_host_quiet
from pagecage.verdicts.repeats import judge_output, others_by_trial, output_reasons
from pagecage.verdicts.verdict import (
    Amplification,
    BindingVerdict,
    LimitVerdict,
    TimeFloor,
    Verdict,
    limit_title,
)
from pagecage.verdicts.volume_account import judge_witnesses, late_volumes
from pagecage.verdicts.windows import judge_binding_limit, windows_of

DATA_POINTS = frozenset({"ok", "oom_killed", "timed_out"})
"""Outcomes that answer the experiment's question. No verdict makes another outcome a data point."""

_EXCLUDING = {
    "not_reached": "cache state not reached",
    "not_quiet": "host not quiet",
    "contradictory": "contradictory evidence",
}
_EMULATION = {
    None: Verdict("unknown", "The host did not report whether it emulates the CPU."),
    True: Verdict(
        "yes", "QEMU emulates the CPU (TCG): times that the CPU decides hold for this host only."
    ),
    False: Verdict("no", "The CPU runs the instructions itself."),
}


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on one trial. An `excluded` one, for `reasons`, is shown but not averaged."""

    limits: tuple[LimitVerdict, ...]
    cache_state_reached: Verdict
    host_quiet: Verdict
    emulated: Verdict
    binding_limit: BindingVerdict
    amplification: Amplification
    floor: TimeFloor
    diagnosis: Diagnosis
    witnesses: Verdict
    consistency: Verdict
    disk_speed: Verdict
    output: Verdict
    is_data_point: bool
    excluded: bool
    reasons: tuple[str, ...]


Judge = Callable[[Record], Verdicts]
"""A function that returns the verdicts on a record (`judge_of`)."""
JudgedRecords = dict[tuple[tuple[str, int], ...], Verdicts]
"""Verdicts by trial and attempt of a record and of the repeats that it was compared with."""


def judge_of(
    run_path: Path, last: Mapping[str, Record], known: JudgedRecords | None = None
) -> Judge:
    """Return a function that evaluates each record of a run once, with its samples and repeats.

    `last` has each trial's last record; `known` keeps the verdicts between calls.
    """
    others = others_by_trial(last.values())
    found: JudgedRecords = {} if known is None else known

    def judge(record: Record) -> Verdicts:
        repeats = others.get(record.trial_id, ())
        key = tuple((one.trial_id, one.attempt) for one in (record, *repeats))
        if key not in found:
            rows = read_lines(run_path, record, "sampler")
            found[key] = evaluate(record, rows, check_traces(run_path, record), repeats)
        return found[key]

    return judge


def evaluate(
    record: Record,
    series: Rows = (),
    damage: Sequence[str] = (),
    repeats: Sequence[Record] = (),
) -> Verdicts:
    """Return all verdicts on a record and its sampler series; docs/METHODOLOGY.md has the rules.

    `damage` has a sentence about each trace that is missing or altered (check_traces()). `repeats`
    are the other repeats of its treatment. The result depends on the arguments alone.
    """
    speed, output = judge_disk_speed(record, repeats), judge_output(record, repeats)
    cache, quiet = judge_cache_state(record), judge_host_quiet(record, series, speed)
    consistency, windows = judge_consistency(record, series, damage), windows_of(record, series)
    limits = watched(judge_limits(record), record, series, windows)
    binding = judge_binding_limit(record, windows)
    conditions = [(one.verdict, one.reason) for one in (cache, quiet, consistency)]
    reasons = (
        *(f"{limit_title(one)} leaky: {one.reason}" for one in limits if one.verdict == "leaky"),
        *(f"{_EXCLUDING[word]}: {reason}" for word, reason in conditions if word in _EXCLUDING),
        *(*late_volumes(record), *incomplete_collectors(record)),
        *output_reasons(record, output),
    )
    return Verdicts(
        limits,
        cache_state_reached=cache,
        host_quiet=quiet,
        emulated=_EMULATION[record.emulated],
        binding_limit=binding,
        amplification=amplification(record),
        floor=time_floor(record),
        diagnosis=diagnose(record, binding, windows),
        witnesses=judge_witnesses(record, binding),
        consistency=consistency,
        disk_speed=speed,
        output=output,
        is_data_point=record.outcome in DATA_POINTS,
        excluded=bool(reasons),
        reasons=reasons,
    )


def verdicts_to_json(verdicts: Verdicts) -> dict[str, Any]:
    """Return the verdicts as plain data, with keys about disks only if the cage names several."""
    data = asdict(verdicts)
    limits, diagnosis = data["limits"], data["diagnosis"]
    silent = [limit for limit in limits if limit["disk"] is None]
    if not diagnosis["others"]:
        silent += [diagnosis, *diagnosis["seconds"]]
    for table in silent:
        table.pop("disk")
        table.pop("others", None)
    return data


def incomplete_collectors(record: Record) -> tuple[str, ...]:
    """Return why the data of a collector that the definition requires are not complete."""
    return tuple(
        f"required collector {name} {entry['status']}: {entry.get('reason') or 'no reason given'}"
        for name, entry in record.collectors.items()
        if entry.get("required") and entry.get("status") != "ok"
    )
