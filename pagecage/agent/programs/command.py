"""Programs that know no handshake: measured to their exit, or until they serve."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagecage.agent.cache_checks import confirmed
from pagecage.agent.caged import Caged, ProgramFiles
from pagecage.agent.programs import command_files
from pagecage.agent.programs.arguments import fill, fill_all, own_places, places
from pagecage.agent.programs.gated_process import GatedProcess, gated
from pagecage.agent.programs.image_files import evict_at_gate
from pagecage.agent.programs.measured_part import MeasuredPart
from pagecage.agent.storage import Storage
from pagecage.agent.system.process_tree import ProcessInfo
from pagecage.agent.system.procfs import listens
from pagecage.agent.system.trial_processes import TrialProcesses
from pagecage.agent.trial_run import Ending, Measured, TrialRun
from pagecage.model.cage import Cage
from pagecage.model.trial import CommandSpec

_POLL_SECONDS = 0.02
_MEMBERS_SECONDS = 0.2
_EMPTY_SECONDS = 0.3
_STDERR_LINES = 10


@dataclass
class CommandObservation:
    """Times of a program (CLOCK_MONOTONIC), and processes that survived it or left the cage."""

    began_at: float
    ready_at: float | None = None
    exited_at: float | None = None
    left_behind: list[ProcessInfo] = field(default_factory=list)
    escaped: list[ProcessInfo] = field(default_factory=list)
    next_scan_at: float = 0.0

    def is_done(self, command: CommandSpec) -> bool:
        """True if there is nothing to wait for."""
        if self.escaped or self.ready_at is not None:
            return True
        return self.exited_at is not None and not (command.serves and self.left_behind)

    def times(self, command: CommandSpec) -> dict[str, float | None]:
        """Return `ready_seconds` for a program that serves, else `wall_seconds`.

        Returns None if it did not get there.
        """
        end = self.ready_at if command.serves else self.exited_at
        return {
            "ready_seconds" if command.serves else "wall_seconds": (
                None if end is None else end - self.began_at
            )
        }


class CommandProgram:
    """A user's own program.

    It waits at a gate in its cage, so that making the cage is not part of its time.
    """

    inherits_environment = True
    is_gated = True

    def find_files(
        self, run: TrialRun, storage: Storage, datasets: tuple[Path, ...]
    ) -> ProgramFiles:
        """Check the program, its port and its files. Raises RequirementMissed."""
        return command_files.find_files(run, _spec(run), storage, datasets)

    def calibration_file(
        self, run: TrialRun, storage: Storage, files: ProgramFiles, slice_cage: Cage
    ) -> Path | None:
        """Return a file of pagecage's, or the command's largest on another disk.

        Returns None if that is not fit.
        """
        return command_files.calibration_file(run, storage, files, slice_cage)

    def argv(self, run: TrialRun, caged: Caged) -> list[str]:
        """Return the command as it was given, or with its places filled in."""
        own = run.trial.workload
        if own.command and own.command.is_literal:
            return [own.program, *own.arguments]
        values = places(caged.files, caged.data_dir, run.trial.max_seconds) | own_places(run)
        return [fill(own.program, values), *fill_all(own.arguments, values, caged.files)]

    def measure(self, run: TrialRun, caged: Caged) -> Measured:
        """Start the program, open its gate, and watch it until it exits or serves."""
        part, argv, spec = MeasuredPart(run, caged), self.argv(run, caged), _spec(run)
        run.keep("workload", argv=argv)
        part.before_launch()
        program = _launch(run, caged, spec, argv)
        seen: CommandObservation | None = None
        try:
            if program.wait_at_gate(part.deadline):
                program.follow(caged.driver.main_pid(caged.context, program.process.pid))
                evicted = evict_at_gate(run, caged, spec.image)
                part.at_gate(lambda: program.process.poll() is not None, evicted)
                seen = _watch_measured(run, caged, program, part, spec)
        finally:
            _end(run, caged, program, seen)
        return Measured(
            interval=run.interval,
            counters=run.sections["counters"],
            end={},
            exit=run.sections["exit"],
            last_line=program.last_line(),
            start_seconds=part.start_seconds,
            is_timed_out=seen is not None and not seen.is_done(spec),
            response=seen.times(spec) if seen else {},
        )

    def judge(self, run: TrialRun, measured: Measured) -> Ending:
        """Return the outcome from the evidence, strongest first."""
        return confirmed(
            run, measured, judge_command(measured, _spec(run), run.trial.timeout_seconds)
        )


def _spec(run: TrialRun) -> CommandSpec:
    return run.trial.workload.command or CommandSpec()


def _launch(run: TrialRun, caged: Caged, spec: CommandSpec, argv: list[str]) -> GatedProcess:
    sink = run.session.stream.output if spec.streams_output else None
    directory = Path(spec.directory) if spec.directory else None
    command = caged.driver.command(caged.context, argv if spec.image else gated(argv))
    program = GatedProcess(command, directory, spec.ready_when, sink)
    caged.context.processes.launched(program.process.pid)
    return program


def _watch_measured(
    run: TrialRun, caged: Caged, program: GatedProcess, part: MeasuredPart, spec: CommandSpec
) -> CommandObservation:
    part.begin()
    seen = CommandObservation(part.began_at)
    program.go(_input_of(run, program) if spec.takes_input else None)
    _watch(caged, program, spec, seen, part.deadline)
    part.end(seen.ready_at or seen.exited_at)
    return seen


def _watch(
    caged: Caged,
    program: GatedProcess,
    spec: CommandSpec,
    seen: CommandObservation,
    deadline: float,
) -> None:
    """Poll until the program serves, exits or leaves the cage, or until `deadline`."""
    pause_seconds = _POLL_SECONDS if spec.serves else _MEMBERS_SECONDS  # an exit wakes it at once
    processes = caged.context.processes
    while not seen.escaped and time.monotonic() < deadline:
        if seen.exited_at is None and program.exits_within(pause_seconds):
            seen.exited_at = time.monotonic()
        if spec.serves and _is_serving(processes, program, spec, seen):
            return
        if seen.exited_at is None:
            _scan_for_escaped(processes, program, seen)
            continue
        seen.left_behind = _remaining_members(processes, 0 if spec.serves else _EMPTY_SECONDS)
        if not (spec.serves and seen.left_behind):
            program.drain_output()
            _is_serving(processes, program, spec, seen)
            return
        time.sleep(_POLL_SECONDS)


def _is_serving(
    processes: TrialProcesses,
    program: GatedProcess,
    spec: CommandSpec,
    seen: CommandObservation,
) -> bool:
    if program.ready_at is not None:
        seen.ready_at = program.ready_at
    elif spec.ready_port is not None:
        pids = [member.pid for member in processes.members()]
        seen.ready_at = time.monotonic() if listens(spec.ready_port, pids) else None
    return seen.ready_at is not None


def _scan_for_escaped(
    processes: TrialProcesses, program: GatedProcess, seen: CommandObservation
) -> None:
    """Scan at intervals, since each scan walks through all of the program's processes."""
    if time.monotonic() >= seen.next_scan_at:
        seen.next_scan_at = time.monotonic() + _MEMBERS_SECONDS
        seen.escaped = processes.outside(program.main_pid)


def _remaining_members(processes: TrialProcesses, patience_seconds: float) -> list[ProcessInfo]:
    """Return the processes still in the cage after the program's exit.

    Its children may take a moment to go.
    """
    until = time.monotonic() + patience_seconds
    while (left := processes.members()) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def _input_of(run: TrialRun, program: GatedProcess) -> Callable[[int], bytes | None]:
    """Return a function that asks the controller for standard input from an offset."""
    session, attempt_id = run.session, f"{run.trial.trial_id}.{run.attempt}"

    def next_piece(offset: int) -> bytes | None:
        question = f"{attempt_id}@{offset}"
        session.stream.event("input_wanted", question=question, offset=offset)
        return session.inbox.take(question, lambda: program.is_over)

    return next_piece


def _end(
    run: TrialRun, caged: Caged, program: GatedProcess, seen: CommandObservation | None
) -> None:
    """End remaining processes, by SIGTERM if it served, else by SIGKILL.

    Keep the record's `exit`.
    """
    is_serving = seen is not None and seen.ready_at is not None
    for member in seen.escaped if seen else ():
        with suppress(OSError):  # stopping the slice does not end it
            os.kill(member.pid, signal.SIGKILL)
    if not program.exits_within(0) or (seen and seen.left_behind):
        caged.context.processes.signal("TERM" if is_serving else "KILL")
    status = program.finish()
    run.keep(
        "exit",
        status=status,
        oom_kill=caged.context.processes.oom_kills(),
        stderr_tail=program.stderr_lines()[-_STDERR_LINES:],
        ended_by_itself=seen is not None and not is_serving,
        left_behind=_to_json(seen.left_behind if seen else []),
        escaped=_to_json(seen.escaped if seen else []),
    )


def _to_json(processes: list[ProcessInfo]) -> list[dict[str, Any]]:
    return [process.to_json() for process in processes]


def judge_command(measured: Measured, command: CommandSpec, timeout_seconds: float) -> Ending:
    """Return the outcome from the evidence, strongest first."""
    status, last_line, found = measured.exit["status"], measured.last_line, measured.exit
    if found["oom_kill"]:
        return Ending("oom_killed")
    if not measured.response:
        what = "container" if command.image else "scope"
        return Ending("failed", f"its {what} was not started: {last_line or f'status {status}'}")
    if found["escaped"]:
        return Ending("failed", _describe_escaped(found["escaped"][0]))
    if command.serves and measured.response.get("ready_seconds") is not None:
        return Ending("ok")
    if measured.is_timed_out:
        return Ending(
            "timed_out",
            f"not {'serving' if command.serves else 'done'} after {timeout_seconds:g} s",
        )
    if status != 0:
        return Ending(
            "failed", f"it ended {describe_status(status)}{': ' + last_line if last_line else ''}"
        )
    if command.serves:
        return Ending("failed", "it ended with status 0 before it served")
    left = found["left_behind"]
    return Ending("failed", _describe_left_behind(left)) if left else Ending("ok")


def describe_status(status: int) -> str:
    """Return an exit status in words; a negative one is the signal that ended the program."""
    return f"by signal {-status}" if status < 0 else f"with status {status}"


def _describe_escaped(process: dict[str, Any]) -> str:
    return f"{_name(process)} left the cage for {process['cgroup']}, where its limits do not hold"


def _describe_left_behind(left: list[dict[str, Any]]) -> str:
    names = ", ".join(_name(process) for process in left[:3])
    return (
        f"it ended while {names} lived on in its cage, so its time to exit is not the time of its"
        " work"
    )


def _name(process: dict[str, Any]) -> str:
    return f"{process['name']} (process {process['pid']})"
