"""The measured part of a program that knows no handshake: to its exit, or until it serves; and what its end means."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pagecage.agent.cache_checks import hold_to_state, look_at_end, look_at_go, look_at_start
from pagecage.agent.caging import confirm_limits, place_of
from pagecage.agent.programs.gated_process import GatedProcess, gated
from pagecage.agent.programs.workload_run import oom_kills, read_counters, signal_slice, workload_argv
from pagecage.agent.responses import responses
from pagecage.agent.system.cgroupfs import ProcessInfo, members, outside
from pagecage.agent.system.procfs import listens
from pagecage.agent.trial_run import TrialRun
from pagecage.model.trial import CommandSpec

_LOOK_SECONDS = 0.02
_MEMBERS_SECONDS = 0.2
_EMPTY_SECONDS = 0.3
_SAID_LINES = 10


@dataclass
class CommandObservation:
    """What was seen of a program while it ran; times are monotonic."""

    began: float
    ready_at: float | None = None
    exited_at: float | None = None
    left_behind: list[ProcessInfo] = field(default_factory=list)
    outside: list[ProcessInfo] = field(default_factory=list)
    next_look: float = 0.0


def run_command(attempt: TrialRun) -> None:
    """Start, measure, end; fills in counters, measured, exit, response and outcome."""
    deadline = time.monotonic() + attempt.trial.timeout_seconds
    command, attempt.argv = _command(attempt), workload_argv(attempt)
    look_at_start(attempt)
    begin, place = time.monotonic(), place_of(attempt)
    started = attempt.driver.command(place, gated(attempt.argv))
    sink = attempt.bench.stream.output if command.streams_output else None
    directory = Path(command.directory) if command.directory else None
    program = attempt.conversation = GatedProcess(started, directory, command.ready_when, sink)
    watched: CommandObservation | None = None
    try:
        if program.wait_at_gate(deadline):
            attempt.start_seconds = time.monotonic() - begin
            confirm_limits(attempt)
            program.follow(attempt.driver.leader(place, program.process.pid))
            watched = _measure(attempt, program, deadline)
    finally:
        _end(attempt, program, watched)
    attempt.timed_out = watched is not None and not _is_done(watched, command)
    attempt.outcome, attempt.error = judge_command(attempt, watched)
    hold_to_state(attempt)
    attempt.failed_in = None if attempt.has_answer else "run"
    attempt.response = responses(attempt)
    if watched is not None and attempt.response:
        attempt.response |= _times(watched, command)


def _command(attempt: TrialRun) -> CommandSpec:
    return attempt.trial.workload.command or CommandSpec()


def _measure(attempt: TrialRun, program: GatedProcess, deadline: float) -> CommandObservation:
    """Counters, gate, watch, counters; the files are looked at before the first and after the last."""
    attempt.await_tracers()
    look_at_go(attempt)
    attempt.fill_buckets()
    attempt.counters["before"] = read_counters(attempt)
    attempt.bench.stream.event("go", trial_id=attempt.trial.trial_id)
    wall, begin = time.time(), time.monotonic()
    watched = CommandObservation(begin)
    program.go(_source(attempt, program) if _command(attempt).takes_input else None)
    _watch(attempt, program, watched, deadline)
    ended = watched.ready_at or watched.exited_at or time.monotonic()
    attempt.counters["after"] = read_counters(attempt)
    attempt.bench.stream.event("end", trial_id=attempt.trial.trial_id)
    attempt.measured = {"start_wall_seconds": wall, "start_monotonic_seconds": begin, "seconds": ended - begin}
    look_at_end(attempt)
    return watched


def _watch(attempt: TrialRun, program: GatedProcess, watched: CommandObservation, deadline: float) -> None:
    """Look until it serves, exits, leaves the cage, or monotonic `deadline` passes."""
    command = _command(attempt)
    pause_seconds = _LOOK_SECONDS if command.serves else _MEMBERS_SECONDS  # an exit wakes it at once
    while not watched.outside and time.monotonic() < deadline:
        if watched.exited_at is None and program.exits_within(pause_seconds):
            watched.exited_at = time.monotonic()
        if command.serves and _serves(attempt, program, watched):
            return
        if watched.exited_at is None:
            _look_outside(attempt, program, watched)
            continue
        watched.left_behind = _who_stays(attempt, 0 if command.serves else _EMPTY_SECONDS)
        if not (command.serves and watched.left_behind):
            program.hear_out()
            _serves(attempt, program, watched)
            return
        time.sleep(_LOOK_SECONDS)


def _serves(attempt: TrialRun, program: GatedProcess, watched: CommandObservation) -> bool:
    command = _command(attempt)
    if program.ready_at is not None:
        watched.ready_at = program.ready_at
    elif command.ready_port is not None and attempt.cgroup is not None:
        pids = [member.pid for member in members(attempt.cgroup)]
        watched.ready_at = time.monotonic() if listens(command.ready_port, pids) else None
    return watched.ready_at is not None


def _look_outside(attempt: TrialRun, program: GatedProcess, watched: CommandObservation) -> None:
    """Now and then, since a look costs a walk through its processes."""
    if time.monotonic() >= watched.next_look and attempt.cgroup is not None:
        watched.next_look = time.monotonic() + _MEMBERS_SECONDS
        watched.outside = outside(program.leader, attempt.cgroup)


def _who_stays(attempt: TrialRun, patience_seconds: float) -> list[ProcessInfo]:
    """Who is still in the cage after the program's own process has ended; its children may take a moment to go."""
    assert attempt.cgroup is not None
    until = time.monotonic() + patience_seconds
    while (left := members(attempt.cgroup)) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def _source(attempt: TrialRun, program: GatedProcess) -> Callable[[int], bytes | None]:
    """Asks the controller for the next piece of standard input; the question names the attempt and the place."""
    bench, who = attempt.bench, f"{attempt.trial.trial_id}.{attempt.number}"

    def next_piece(given: int) -> bytes | None:
        question = f"{who}@{given}"
        bench.stream.event("input_wanted", question=question, offset=given)
        return bench.inbox.take(question, lambda: program.is_over)

    return next_piece


def _end(attempt: TrialRun, program: GatedProcess, watched: CommandObservation | None) -> None:
    """End what still runs: asked to where it served, killed otherwise; then note how it ended."""
    is_served = watched is not None and watched.ready_at is not None
    for member in watched.outside if watched else ():
        with suppress(OSError):  # the slice does not take it along
            os.kill(member.pid, signal.SIGKILL)
    if not program.exits_within(0) or (watched and watched.left_behind):
        signal_slice(attempt, "TERM" if is_served else "KILL")
    status = program.finish()
    attempt.exit = {
        "status": status, "oom_kill": oom_kills(attempt), "stderr_tail": program.said()[-_SAID_LINES:],
        "ended_by_itself": watched is not None and not is_served,
        "left_behind": [member.to_json() for member in (watched.left_behind if watched else [])],
        "escaped": [member.to_json() for member in (watched.outside if watched else [])],
    }  # fmt: skip


def _is_done(watched: CommandObservation, command: CommandSpec) -> bool:
    if watched.outside or watched.ready_at is not None:
        return True
    return watched.exited_at is not None and not (command.serves and watched.left_behind)


def judge_command(attempt: TrialRun, watched: CommandObservation | None) -> tuple[str, str | None]:
    """Outcome and error from the evidence, strongest first."""
    assert attempt.conversation is not None
    status, serves, complaint = attempt.exit["status"], _command(attempt).serves, attempt.conversation.complaint()
    if attempt.exit["oom_kill"]:
        return "oom_killed", None
    if watched is None:
        return "failed", f"its scope was not started: {complaint or f'status {status}'}"
    if watched.outside:
        return "failed", _told_outside(watched.outside[0])
    if serves and watched.ready_at is not None:
        return "ok", None
    if attempt.timed_out:
        return "timed_out", f"not {'serving' if serves else 'done'} after {attempt.trial.timeout_seconds:g} s"
    if status != 0:
        return "failed", f"it ended {told_status(status)}{': ' + complaint if complaint else ''}"
    if serves:
        return "failed", "it ended with status 0 before it served"
    return ("failed", _told_left(watched.left_behind)) if watched.left_behind else ("ok", None)


def told_status(status: int) -> str:
    """An exit status in words; negative: ended by that signal."""
    return f"by signal {-status}" if status < 0 else f"with status {status}"


def _told_outside(member: ProcessInfo) -> str:
    return f"{member.name} (process {member.pid}) left the cage for {member.cgroup}, where its limits do not hold"


def _told_left(left: list[ProcessInfo]) -> str:
    names = ", ".join(f"{member.name} (process {member.pid})" for member in left[:3])
    return f"it ended while {names} lived on in its cage, so its time to exit is not the time of its work"


def _times(watched: CommandObservation, command: CommandSpec) -> dict[str, float | None]:
    """`ready_seconds` where it was to serve, else `wall_seconds`; None where it did not come to that."""
    end = watched.ready_at if command.serves else watched.exited_at
    seconds = None if end is None else end - watched.began
    return {"ready_seconds": seconds} if command.serves else {"wall_seconds": seconds}
