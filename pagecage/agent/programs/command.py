"""Programs that know no handshake: measured to their exit, or until they serve."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.agent.cache_checks import confirmed
from pagecage.agent.caged import Caged, ProgramFiles
from pagecage.agent.programs import command_files
from pagecage.agent.programs.arguments import disk_places, fill, fill_all, own_places, places
from pagecage.agent.programs.fresh_home import fresh_home
from pagecage.agent.programs.gated_process import GatedProcess, gated
from pagecage.agent.programs.image_files import evict_at_gate
from pagecage.agent.programs.measured_part import MeasuredPart
from pagecage.agent.programs.observation import (
    MEMBERS_SECONDS,
    ProgramObservation,
    describe_escaped,
    describe_status,
    exit_to_json,
    name_process,
    remaining_members,
)
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import Ending, Measured, TrialRun
from pagecage.model.cage import Cage
from pagecage.model.trial import CommandSpec

_POLL_SECONDS = 0.02
_EMPTY_SECONDS = 0.3


@dataclass
class CommandObservation(ProgramObservation):
    """Observation of a command, which is measured until it serves or exits."""

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
        return command_files.find_files(run, command_spec(run), storage, datasets)

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
        return self.filled(run, caged, (own.program, *own.arguments))

    def filled(self, run: TrialRun, caged: Caged, words: Iterable[str]) -> list[str]:
        """Return the words of a command with their places filled in.

        In words that were given literally, only disks have places.
        """
        if command_spec(run).is_literal:
            literal = disk_places(caged.folders)
            return [fill(word, literal) for word in words]
        values = places(caged.files, caged.data_dir, run.trial.max_seconds, caged.folders)
        return fill_all(words, values | own_places(run), caged.files)

    def measure(self, run: TrialRun, caged: Caged) -> Measured:
        """Start the program, open its gate, and watch it until it exits or serves."""
        part, argv, spec = MeasuredPart(run, caged), self.argv(run, caged), command_spec(run)
        run.keep("workload", argv=argv)
        part.before_launch()
        program = launch(run, caged, spec, argv)
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
            run, measured, judge_command(measured, command_spec(run), run.trial.timeout_seconds)
        )


def command_spec(run: TrialRun) -> CommandSpec:
    """Return the settings of the trial's command, or of the server of its service."""
    return run.trial.workload.command or CommandSpec()


def launch(run: TrialRun, caged: Caged, spec: CommandSpec, argv: list[str]) -> GatedProcess:
    """Start the program in its cage, where it waits at its gate."""
    home = fresh_home(run, spec)
    sink = run.session.stream.output if spec.streams_output else None
    directory = Path(spec.directory) if spec.directory else None
    command = caged.driver.held_command(
        caged.context, argv if spec.image else [*home, *gated(argv)]
    )
    program = GatedProcess(command, directory, spec.ready_when, sink)
    caged.driver.admit(caged.context, program.process)
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
    pause_seconds = _POLL_SECONDS if spec.serves else MEMBERS_SECONDS  # an exit wakes it at once
    processes = caged.context.processes
    while not seen.escaped and time.monotonic() < deadline:
        if seen.exited_at is None and program.exits_within(pause_seconds):
            seen.exited_at = time.monotonic()
        if spec.serves and seen.note_serving(processes, program, spec.ready_port):
            return
        if seen.exited_at is None:
            seen.note_escaped(processes, program)
            continue
        seen.left_behind = remaining_members(processes, 0 if spec.serves else _EMPTY_SECONDS)
        if not (spec.serves and seen.left_behind):
            program.drain_output()
            seen.note_serving(processes, program, spec.ready_port)
            return
        time.sleep(_POLL_SECONDS)


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
    if seen:
        seen.kill_escaped()
    if not program.exits_within(0) or (seen and seen.left_behind):
        caged.context.processes.signal("TERM" if is_serving else "KILL")
    status = program.finish()
    by_itself, processes = seen is not None and not is_serving, caged.context.processes
    run.keep("exit", **exit_to_json(program, processes, seen, status, ended_by_itself=by_itself))
    if seen is not None and seen.exited_at is not None and not command_spec(run).serves:
        run.keep("exit", stdout=program.stdout())


def judge_command(measured: Measured, command: CommandSpec, timeout_seconds: float) -> Ending:
    """Return the outcome from the evidence, strongest first."""
    status, last_line, found = measured.exit["status"], measured.last_line, measured.exit
    if found["oom_kill"]:
        return Ending("oom_killed")
    if not measured.response:
        what = "container" if command.image else "scope"
        return Ending("failed", f"its {what} was not started: {last_line or f'status {status}'}")
    if found["escaped"]:
        return Ending("failed", describe_escaped(found["escaped"][0]))
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


def _describe_left_behind(left: list[dict[str, Any]]) -> str:
    names = ", ".join(name_process(process) for process in left[:3])
    return (
        f"it ended while {names} lived on in its cage, so its time to exit is not the time of its"
        " work"
    )
