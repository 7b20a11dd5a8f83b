"""The outcome of a service's trial, which names the one of the two that failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.agent.programs.observation import describe_escaped, describe_status
from pagecage.agent.trial_run import Ending, Measured
from pagecage.model.services.spec import ServiceSpec

_WHILE = {
    "start": "before it served",
    "warm_up": "while it was warmed up",
    "settle": "while it settled",
    "load": "while under load",
}


def judge_service(
    measured: Measured, load: Mapping[str, Any], service: ServiceSpec, timeout_seconds: float
) -> Ending:
    """Return the outcome from the evidence, strongest first. `load` is the record's section."""
    found, last_line = measured.exit, measured.last_line
    if found["oom_kill"]:
        return Ending("oom_killed")
    if not measured.response:
        reason = last_line or f"status {found['status']}"
        return Ending("failed", f"its scope was not started: {reason}")
    if found["escaped"]:
        return Ending("failed", describe_escaped(found["escaped"][0]))
    if found["ended_by_itself"]:
        how = describe_status(found["status"])
        reason = f"the server ended {how} {_WHILE[load['during']]}"
        return Ending("failed", f"{reason}{_colon(last_line)}")
    if load["during"] == "start":
        patience = service.ready_timeout_seconds or timeout_seconds
        return Ending("timed_out", f"the server did not serve within {patience:g} s")
    return _judge_load(measured, load, timeout_seconds)


def _judge_load(measured: Measured, load: Mapping[str, Any], timeout_seconds: float) -> Ending:
    if load.get("ended_by_itself") and load["status"] != 0:
        where = " in the warm-up" if load["during"] == "warm_up" else ""
        lines = load["stderr_tail"]
        how = f"the load ended {describe_status(load['status'])}{where}"
        return Ending("failed", f"{how}{_colon(lines[-1] if lines else None)}")
    if measured.is_timed_out:
        return Ending("timed_out", f"the load did not finish within {timeout_seconds:g} s")
    if load.get("missing_metric"):
        return Ending("failed", f"the load's output has {load['missing_metric']}")
    return Ending("ok")


def _colon(last_line: str | None) -> str:
    return f": {last_line}" if last_line else ""
