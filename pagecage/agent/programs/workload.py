"""The measured part and the outcome of workloads and of fio, which end with a report."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pagecage.agent.cache_checks import confirmed
from pagecage.agent.caged import Caged
from pagecage.agent.programs.arguments import CANNOT
from pagecage.agent.programs.handshake_process import HandshakeProcess
from pagecage.agent.programs.measured_part import MeasuredPart
from pagecage.agent.programs.program import oom_kills, signal_slice
from pagecage.agent.responses import wrong_response
from pagecage.agent.trial_run import Ending, Measured, TrialRun
from pagecage.model.requirements import MissedRequirement, Requirement

FAULTS = ("lost_", "doubled_", "torn_", "disordered_", "failed_")
"""Prefixes of figures that count faults in an answer (workloads/README.md)."""


def finish(run: TrialRun, caged: Caged, process: HandshakeProcess, *, is_killed: bool) -> dict[str, Any]:
    """End the process, first by killing its slice if `is_killed`.

    Return and keep the record's `exit`.
    """
    if is_killed and process.process.poll() is None:
        signal_slice(caged.context, "KILL")
    status = process.finish()
    found = {"status": status, "oom_kill": oom_kills(caged.context.cgroup)}
    run.keep("exit", **found)
    run.keep("workload", end=process.end)
    run.samples = list(process.samples)
    return found


def measured_of(
    run: TrialRun, argv: list[str], process: HandshakeProcess, part: MeasuredPart, *, is_timed_out: bool
) -> Measured:
    """Return what was measured of a process that has ended."""
    return Measured(
        argv=tuple(argv), interval=run.interval, counters=run.sections["counters"], end=process.end,
        exit=run.sections["exit"], last_line=process.last_line(), start_seconds=part.start_seconds,
        is_timed_out=is_timed_out,
    )  # fmt: skip


def is_past(deadline: float) -> bool:
    """True if CLOCK_MONOTONIC is past the deadline."""
    return time.monotonic() >= deadline


def judge(run: TrialRun, measured: Measured) -> Ending:
    """Return the outcome of a workload, with the requirement that it reports missing."""
    ending = confirmed(run, measured, judge_end(measured, run.trial.timeout_seconds))
    if ending.outcome != "requirement_missed":
        return ending
    reason = ending.error or "the workload cannot run on this host"
    return Ending(ending.outcome, ending.error, (MissedRequirement(Requirement.WORKLOAD, reason, ""),))


def judge_end(measured: Measured, timeout_seconds: float) -> Ending:
    """Return the outcome from the evidence, strongest first."""
    status, end, last_line = measured.exit["status"], measured.end, measured.last_line
    if measured.exit["oom_kill"]:
        return Ending("oom_killed")
    if measured.is_timed_out:
        return Ending("timed_out", f"not done after {timeout_seconds:g} s")
    if status == CANNOT or end.get("refused"):
        return Ending("requirement_missed", last_line or end.get("refused"))
    if end.get("checksum_ok") is False:
        return Ending("wrong_answer", describe_fault(end, last_line))
    if status != 0:
        return Ending("failed", last_line or f"exit status {status}")
    if not end:
        return Ending("failed", last_line or "it ended without an end line")
    if wrong := wrong_response(end.get("response", {})):
        return Ending("failed", wrong)
    return Ending("ok")


def describe_fault(end: Mapping[str, Any], last_line: str | None) -> str:
    """Return the workload's sentence about its wrong answer, and the faults that it counted."""
    own = end.get("response", {})
    faults = own.items() if wrong_response(own) is None else ()
    counted = [f"{value:,.0f} {name.replace('_', ' ')}" for name, value in faults if name.startswith(FAULTS) and value]
    sentence = last_line or f"checksum {end.get('checksum')} is not the sidecar's"
    return ": ".join(filter(None, (sentence, ", ".join(counted))))
