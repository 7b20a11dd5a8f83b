"""Every verdict of one trial: what was proven, what held it back, and whether its figures may be averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pagecage.model.record import Record
from pagecage.verdicts.amplification import amplification, floor
from pagecage.verdicts.binding import judge_binding_limit
from pagecage.verdicts.conditions import judge_cache_state, judge_host_quiet
from pagecage.verdicts.diagnosis import Diagnosis, diagnose
from pagecage.verdicts.limits import judge_limits
from pagecage.verdicts.verdict import Amplification, BindingVerdict, LimitVerdict, TimeFloor, Verdict
from pagecage.verdicts.windows import windows

DATA_POINTS = frozenset({"ok", "oom_killed", "timed_out"})
"""Outcomes that answer the question; the others are no data points whatever their verdicts."""


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of one trial. `reasons` are sentences; a trial with any is shown, never averaged in."""

    limits: tuple[LimitVerdict, ...]
    cache_state_reached: Verdict
    host_quiet: Verdict
    emulated: Verdict
    binding_limit: BindingVerdict
    amplification: Amplification
    floor: TimeFloor
    diagnosis: Diagnosis
    is_data_point: bool
    excluded: bool
    reasons: tuple[str, ...]


def judge(record: Record, series: Sequence[Mapping[str, Any]] = ()) -> Verdicts:
    """All verdicts of a record and its sampler series (rows of `sampler.jsonl`; may be empty).

    Pure: the same record and series give the same verdicts on any machine. docs/METHODOLOGY.md has the rules.
    """
    limits, cache, quiet = judge_limits(record), judge_cache_state(record), judge_host_quiet(record)
    reasons, binding = _reasons(limits, cache, quiet), judge_binding_limit(record, series)
    return Verdicts(
        limits=limits,
        cache_state_reached=cache,
        host_quiet=quiet,
        emulated=_emulated(record),
        binding_limit=binding,
        amplification=amplification(record),
        floor=floor(record),
        diagnosis=diagnose(record, binding, windows(record, series)),
        is_data_point=record.outcome in DATA_POINTS,
        excluded=bool(reasons),
        reasons=reasons,
    )


def verdicts_to_json(verdicts: Verdicts) -> dict[str, Any]:
    """The verdicts as plain data."""
    return asdict(verdicts)


def _emulated(record: Record) -> Verdict:
    if record.emulated is None:
        return Verdict("unknown", "The host did not say whether its instructions are translated.")
    if record.emulated:
        return Verdict("yes", "Instructions are translated (TCG): CPU-bound figures do not carry over.")
    return Verdict("no", "Instructions run on the CPU itself.")


def _reasons(limits: tuple[LimitVerdict, ...], cache: Verdict, quiet: Verdict) -> tuple[str, ...]:
    leaks = [f"{limit.property} leaky: {limit.reason}" for limit in limits if limit.verdict == "leaky"]
    state = [f"cache state not reached: {cache.reason}"] if cache.verdict == "not_reached" else []
    noise = [f"host not quiet: {quiet.reason}"] if quiet.verdict == "not_quiet" else []
    return (*leaks, *state, *noise)
