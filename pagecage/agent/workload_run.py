"""The measured part: the workload in its scope, counters before `go` and after `end`, and what its end means."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pagecage.agent import cgroupfs, procfs
from pagecage.agent.attempt import Attempt
from pagecage.agent.dataset import sidecar_of
from pagecage.agent.handshake import Conversation
from pagecage.agent.systemd import scope_command
from pagecage.process import run
from pagecage.requirements import Missed, Requirement

_CANNOT = 77  # workloads/README.md: cannot on this host


def workload_argv(attempt: Attempt) -> list[str]:
    """The program's own command line, with the trial's places filled in."""
    trial, request = attempt.trial, attempt.bench.request
    places = {
        "file": attempt.dataset, "sidecar": sidecar_of(attempt.dataset) if attempt.dataset else None,
        "data_dir": request.data_dir, "max_seconds": trial.max_seconds,
    }  # fmt: skip
    program = trial.workload.program
    path = f"{request.programs_dir}/{program}" if trial.workload.kind == "handshake" else program
    return [path, *(fill(argument, places) for argument in trial.workload.arguments)]


def fill(argument: str, places: Mapping[str, object]) -> str:
    """An argument with {file} and its like filled in; any other brace is the program's own."""
    for place, value in places.items():
        argument = argument.replace(f"{{{place}}}", str(value))
    return argument


def run_workload(attempt: Attempt) -> None:
    """Start, measure, end; fills in counters, measured, exit, response and outcome."""
    deadline = time.monotonic() + attempt.trial.timeout_seconds
    attempt.argv = workload_argv(attempt)
    speaks = attempt.trial.workload.kind == "handshake"
    if not speaks:  # its measured part is its whole life, so the counters come first
        attempt.counters["before"] = _read_counters(attempt)
    begin = time.monotonic()
    command = scope_command(attempt.bench.systemd, attempt.unit, attempt.argv)
    attempt.conversation = Conversation(command, speaks=speaks)
    try:
        finished = _measure(attempt, attempt.conversation, begin, deadline)
        attempt.timed_out = not finished and time.monotonic() >= deadline
    finally:
        if attempt.timed_out or attempt.measured is None:
            _end_scope_if_alive(attempt)
        status = attempt.conversation.finish()
        attempt.exit = {"status": status, "oom_kill": _oom_kills(attempt)}
    attempt.outcome, attempt.error = judge_end(attempt)
    if attempt.outcome == "requirement_missed":
        attempt.missed = [Missed(Requirement.WORKLOAD, attempt.error or "the workload cannot run on this host", "")]
    attempt.failed_in = None if attempt.has_answer else "run"
    attempt.response = responses(attempt)


def _measure(attempt: Attempt, conversation: Conversation, begin: float, deadline: float) -> bool:
    speaks = attempt.trial.workload.kind == "handshake"
    if speaks:
        if not conversation.wait_for("ready", deadline):
            return False
        attempt.counters["before"] = _read_counters(attempt)
        begin = time.monotonic()
    wall = time.time() - (time.monotonic() - begin)
    attempt.bench.stream.event("go", trial_id=attempt.trial.trial_id)
    conversation.go()
    finished = conversation.wait_for("end", deadline) if speaks else conversation.wait_for_exit(deadline)
    seconds = time.monotonic() - begin
    attempt.counters["after"] = _read_counters(attempt)
    attempt.bench.stream.event("end", trial_id=attempt.trial.trial_id)
    attempt.measured = {"start_wall_seconds": wall, "start_monotonic_seconds": begin, "seconds": seconds}
    return finished


def _read_counters(attempt: Attempt) -> dict[str, Any]:
    assert attempt.cgroup is not None
    return {
        "cgroup": cgroupfs.read_counters(attempt.cgroup),
        "device": procfs.read_device(attempt.bench.disk.maj_min),
        "host": procfs.read_host(),
    }


def _end_scope_if_alive(attempt: Attempt) -> None:
    assert attempt.conversation is not None
    if attempt.conversation.process.poll() is None:
        kill = attempt.bench.systemd.systemctl("kill", "--signal=KILL", attempt.unit)
        run(kill, check=False, timeout_seconds=30)


def _oom_kills(attempt: Attempt) -> int | None:
    """The truth about OOM: the slice's hierarchical memory.events; an exit status of 137 may be any SIGKILL."""
    assert attempt.cgroup is not None
    events = cgroupfs.read_counters(attempt.cgroup)["memory.events"]
    return None if events is None else events.get("oom_kill", 0)


def judge_end(attempt: Attempt) -> tuple[str, str | None]:
    """Outcome and error from the evidence, strongest first."""
    assert attempt.conversation is not None
    status, end = attempt.exit["status"], attempt.conversation.end
    complaint = attempt.conversation.complaint()
    if attempt.exit["oom_kill"]:
        return "oom_killed", None
    if attempt.timed_out:
        return "timed_out", f"not done after {attempt.trial.timeout_seconds:g} s"
    if status == _CANNOT:
        return "requirement_missed", complaint
    if end.get("checksum_ok") is False:
        return "wrong_answer", f"checksum {end.get('checksum')} is not the sidecar's"
    if status != 0:
        return "failed", complaint or f"exit status {status}"
    if attempt.trial.workload.kind == "handshake" and not end:
        return "failed", complaint or "it ended without an end line"
    return "ok", None


def responses(attempt: Attempt) -> dict[str, float | None]:
    """The measured quantities (docs/FORMAT.md), None where the evidence is missing; empty when the part did not end."""
    if attempt.measured is None or attempt.outcome not in ("ok", "timed_out", "wrong_answer"):
        return {}
    assert attempt.conversation is not None
    end = attempt.conversation.end
    seconds = end.get("seconds", attempt.measured["seconds"])
    covered = end.get("covered_fraction")
    bytes_read, reads = _device_delta(attempt, "rbytes"), _device_delta(attempt, "rios")
    return {
        "read_seconds": seconds, "covered_fraction": covered,
        "full_pass_seconds": _ratio(seconds, covered), "bytes_per_second": _ratio(end.get("bytes"), seconds),
        "device_read_bytes": bytes_read, "device_reads": reads,
        "device_read_bytes_per_second": _ratio(bytes_read, seconds), "device_reads_per_second": _ratio(reads, seconds),
        "amplification": _ratio(bytes_read, end.get("distinct_bytes")), "major_faults": _major_faults(end),
    }  # fmt: skip


def _major_faults(end: dict[str, Any]) -> float | None:
    threads = end.get("threads") or []
    faults = [thread.get("major_faults") for thread in threads]
    return sum(faults) if faults and None not in faults else None


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def _device_delta(attempt: Attempt, key: str) -> float | None:
    before, after = (attempt.counters[when]["cgroup"]["io.stat"] for when in ("before", "after"))
    if before is None or after is None:
        return None
    maj_min = attempt.bench.disk.maj_min
    # A disk that the slice has not touched has no line, or a bare one: that is a true zero.
    return float(after.get(maj_min, {}).get(key, 0) - before.get(maj_min, {}).get(key, 0))
