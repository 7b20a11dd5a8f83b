"""The measured part: the workload in its scope, counters before `go` and after `end`, and what its end means."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pagecage.agent.cache_checks import go_at_start, hold_to_state, look_at_end, look_at_go, look_at_start
from pagecage.agent.caging import confirm_limits, place_of
from pagecage.agent.collectors.collector import CollectorResult
from pagecage.agent.data_files import sidecar_of
from pagecage.agent.programs.fio import end_of, fio_command, job_text, missing_engine, read_report
from pagecage.agent.programs.handshake import HandshakeProcess
from pagecage.agent.responses import responses, wrong_response
from pagecage.agent.system import cgroupfs, procfs
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.model.requirements import MissedRequirement, Requirement
from pagecage.process import run

FAULTS = ("lost_", "doubled_", "torn_", "disordered_", "failed_")
"""Figures whose names begin so count what is wrong with an answer (workloads/README.md)."""
CANNOT = 77  # workloads/README.md: cannot on this host
_RUNTIME_SECONDS = 10.0
"""How long a container's runtime may take to set its limits on an emulated machine, while fio is not there yet."""


def workload_argv(attempt: TrialRun) -> list[str]:
    """The program's own command line, with the trial's places filled in."""
    workload = attempt.trial.workload
    if workload.kind == "fio":
        return fio_argv(attempt)
    path = program_path(attempt, workload.program) if workload.kind == "handshake" else workload.program
    if workload.command and workload.command.is_literal:
        return [path, *workload.arguments]
    return [path, *fill_all(workload.arguments, places_of(attempt), attempt.datasets)]


def fio_argv(attempt: TrialRun) -> list[str]:
    """Write the job file beside the traces; the command that runs it. Raises RequirementMissed without its engine."""
    options = fill_all(attempt.trial.workload.arguments, places_of(attempt), attempt.datasets)
    if why := missing_engine(options):
        raise RequirementMissed([MissedRequirement(Requirement.WORKLOAD, why, "ansible/site.yml installs fio")])
    job = job_text(attempt.datasets, options, attempt.directory, attempt.trial.max_seconds)
    return fio_command(job, attempt.directory)


def program_path(attempt: TrialRun, program: str) -> str:
    """Where a program of workloads/ lies on this host."""
    return f"{attempt.bench.request.programs_dir}/{program}"


def places_of(attempt: TrialRun) -> dict[str, object]:
    """What stands for each {place} in an argument; {file} is the first file."""
    first = attempt.dataset
    return {
        "file": first, "sidecar": sidecar_of(first) if first else None, "data_dir": attempt.data_dir,
        "max_seconds": attempt.trial.max_seconds,
    }  # fmt: skip


def fill_all(arguments: Iterable[str], places: Mapping[str, object], files: Iterable[Path]) -> list[str]:
    """Arguments with every place filled in; one that is {files} becomes one a file."""
    paths = [str(path) for path in files]
    return [full for a in arguments for full in (paths if a == "{files}" else [fill(a, places)])]


def fill(argument: str, places: Mapping[str, object]) -> str:
    """An argument with {file} and its like filled in; any other brace is the program's own."""
    for place, value in places.items():
        argument = argument.replace(f"{{{place}}}", str(value))
    return argument


def run_workload(attempt: TrialRun) -> None:
    """Start, measure, end; fills in counters, measured, exit, response and outcome."""
    deadline = time.monotonic() + attempt.trial.timeout_seconds
    attempt.argv = workload_argv(attempt)
    speaks = attempt.trial.workload.kind == "handshake"
    if not speaks:  # fio's measured part is its whole life, so tracers and counters come first
        attempt.await_tracers()
    look_at_start(attempt)
    if not speaks:
        go_at_start(attempt)
        attempt.counters["before"] = read_counters(attempt)
    begin = time.monotonic()
    command = attempt.driver.command(place_of(attempt), attempt.argv)
    attempt.conversation = HandshakeProcess(command, speaks=speaks)
    try:
        finished = _measure(attempt, attempt.conversation, begin, deadline)
        attempt.timed_out = not finished and time.monotonic() >= deadline
    finally:
        if attempt.timed_out or attempt.measured is None:
            _end_scope_if_alive(attempt)
        status = attempt.conversation.finish()
        attempt.exit = {"status": status, "oom_kill": oom_kills(attempt)}
    if attempt.trial.workload.kind == "fio":
        _take_fio(attempt)
    attempt.outcome, attempt.error = judge_end(attempt)
    hold_to_state(attempt)
    if attempt.outcome == "requirement_missed":
        attempt.missed = [
            MissedRequirement(Requirement.WORKLOAD, attempt.error or "the workload cannot run on this host", "")
        ]
    attempt.failed_in = None if attempt.has_answer else "run"
    attempt.response = responses(attempt)


def _take_fio(attempt: TrialRun) -> None:
    """fio's own figures take the place of an end line; its files are traces."""
    assert attempt.conversation is not None
    report = read_report(attempt.directory)
    attempt.conversation.end = end_of(report, attempt.trial.workload.arguments, attempt.trial.dataset_bytes)
    files = tuple(sorted(attempt.directory.glob("fio*")))
    attempt.collected["fio"] = CollectorResult(
        "ok" if report else "failed", None if report else "it left no JSON", files=files
    )


def _measure(attempt: TrialRun, conversation: HandshakeProcess, begin: float, deadline: float) -> bool:
    speaks = attempt.trial.workload.kind == "handshake"
    if speaks:
        if not conversation.wait_for("ready", deadline=deadline):
            return False
        attempt.start_seconds = time.monotonic() - begin
        confirm_limits(attempt)
        attempt.await_tracers()
        look_at_go(attempt, conversation.evicted_bytes)
        attempt.fill_buckets()
        attempt.counters["before"] = read_counters(attempt)
        begin = time.monotonic()
    else:
        confirm_limits(attempt, _RUNTIME_SECONDS)
    wall = time.time() - (time.monotonic() - begin)
    attempt.bench.stream.event("go", trial_id=attempt.trial.trial_id)
    conversation.go()
    if speaks:
        finished = conversation.wait_for("stopped", "end", deadline=deadline)
    else:
        finished = conversation.wait_for_exit(deadline)
    seconds = time.monotonic() - begin
    attempt.counters["after"] = read_counters(attempt)
    attempt.bench.stream.event("end", trial_id=attempt.trial.trial_id)
    attempt.measured = {"start_wall_seconds": wall, "start_monotonic_seconds": begin, "seconds": seconds}
    look_at_end(attempt)
    return finished and (not speaks or conversation.has_ended or conversation.wait_for("end", deadline=deadline))


def read_counters(attempt: TrialRun) -> dict[str, Any]:
    """Every counter that is kept, of the slice, the disk and the host."""
    assert attempt.cgroup is not None
    return {
        "cgroup": cgroupfs.read_counters(attempt.cgroup),
        "device": procfs.read_device(attempt.disk.maj_min),
        "host": procfs.read_host(),
    }


def _end_scope_if_alive(attempt: TrialRun) -> None:
    assert attempt.conversation is not None
    if attempt.conversation.process.poll() is None:
        signal_slice(attempt, "KILL")


def signal_slice(attempt: TrialRun, signal: str) -> None:
    """Send a signal to everything in the trial's slice."""
    run(attempt.bench.systemd.systemctl("kill", f"--signal={signal}", attempt.unit), check=False, timeout_seconds=30)


def oom_kills(attempt: TrialRun) -> int | None:
    """The truth about OOM: the slice's hierarchical memory.events; an exit status of 137 may be any SIGKILL."""
    assert attempt.cgroup is not None
    events = cgroupfs.read_counters(attempt.cgroup)["memory.events"]
    return None if events is None else events.get("oom_kill", 0)


def what_was_wrong(end: Mapping[str, Any], complaint: str | None) -> str:
    """The workload's own sentence about its wrong answer, and what of it is counted among its figures."""
    own = end.get("response", {})
    faults = own.items() if wrong_response(own) is None else ()
    counted = [f"{value:,.0f} {name.replace('_', ' ')}" for name, value in faults if name.startswith(FAULTS) and value]
    sentence = complaint or f"checksum {end.get('checksum')} is not the sidecar's"
    return ": ".join(filter(None, (sentence, ", ".join(counted))))


def judge_end(attempt: TrialRun) -> tuple[str, str | None]:
    """Outcome and error from the evidence, strongest first."""
    assert attempt.conversation is not None
    status, end = attempt.exit["status"], attempt.conversation.end
    complaint = attempt.conversation.complaint()
    if attempt.exit["oom_kill"]:
        return "oom_killed", None
    if attempt.timed_out:
        return "timed_out", f"not done after {attempt.trial.timeout_seconds:g} s"
    if status == CANNOT or end.get("refused"):
        return "requirement_missed", complaint or end.get("refused")
    if end.get("checksum_ok") is False:
        return "wrong_answer", what_was_wrong(end, complaint)
    if status != 0:
        return "failed", complaint or f"exit status {status}"
    if not end:
        return "failed", complaint or "it ended without an end line"
    if wrong := wrong_response(end.get("response", {})):
        return "failed", wrong
    return "ok", None
