"""Programs that report by the handshake: the project's workloads and the user's own."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagecage.agent.caging import Caged, ProgramFiles
from pagecage.agent.data_files import find_files
from pagecage.agent.programs.command import CANNOT, fill_all, own_places, places, program_path
from pagecage.agent.programs.handshake_process import HandshakeProcess
from pagecage.agent.programs.measured_part import MeasuredPart, confirmed, describe_status
from pagecage.agent.responses import wrong_response
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import Ending, Measured, RequirementMissed, TrialRun
from pagecage.model.cage import Cage
from pagecage.model.requirements import MissedRequirement, Requirement
from pagecage.model.trial import Workload

FAULTS = ("lost_", "doubled_", "torn_", "disordered_", "failed_")
"""Prefixes of figures that count faults in an answer (workloads/README.md)."""


class ReportingProgram:
    """A workload that reads the trial's datasets and ends with a report: `end` line or file."""

    inherits_environment = False
    is_gated = False
    has_handshake = True

    def find_files(
        self,
        run: TrialRun,
        storage: Storage,
        datasets: tuple[Path, ...],
    ) -> ProgramFiles:
        """Return the datasets and the files of the prepared data. Raises RequirementMissed."""
        if run.data_directory is None:
            return ProgramFiles(datasets, storage.disk)
        found = find_files((run.data_directory,))
        if isinstance(found, MissedRequirement):
            raise RequirementMissed([found])
        return ProgramFiles((*datasets, *found), storage.disk)

    def calibration_file(
        self,
        run: TrialRun,  # noqa: ARG002
        storage: Storage,  # noqa: ARG002
        files: ProgramFiles,
        slice_cage: Cage,  # noqa: ARG002
    ) -> Path | None:
        """Return the largest file, the first of equal ones."""
        return max(files.paths, key=lambda path: path.stat().st_size, default=None)

    def argv(self, run: TrialRun, caged: Caged) -> list[str]:
        """Return the command line. Raises RequirementMissed."""
        raise NotImplementedError

    def follow(
        self, run: TrialRun, caged: Caged, part: MeasuredPart, process: HandshakeProcess
    ) -> bool:
        """Take the started workload through its measured part.

        Returns False if the deadline passes before its end.
        """
        raise NotImplementedError

    def take_report(self, run: TrialRun, process: HandshakeProcess) -> None:
        """Read the report of the ended workload, unless it was printed as an `end` line."""

    def measure(self, run: TrialRun, caged: Caged) -> Measured:
        """Start the workload, follow it through its measured part, and end it."""
        part, argv = (
            MeasuredPart(run, caged, is_whole_life=not self.has_handshake),
            self.argv(run, caged),
        )
        run.keep("workload", argv=argv)
        part.before_launch()
        process = self._launch(caged, argv)
        caged.context.processes.launched(process.process.pid)
        is_timed_out = False
        try:
            is_done = self.follow(run, caged, part, process)
            is_timed_out = not is_done and time.monotonic() >= part.deadline
        finally:
            _finish(run, caged, process, is_killed=is_timed_out or run.interval is None)
        self.take_report(run, process)
        return Measured(
            interval=run.interval,
            counters=run.sections["counters"],
            end=process.end,
            exit=run.sections["exit"],
            last_line=process.last_line(),
            start_seconds=part.start_seconds,
            is_timed_out=is_timed_out,
            breach=_breach(process),
        )

    def _launch(self, caged: Caged, argv: list[str]) -> HandshakeProcess:
        """Start the workload in its cage. Without a handshake, its input is closed at once."""
        driver, context = caged.driver, caged.context
        if not self.has_handshake:
            return HandshakeProcess(driver.command(context, argv), has_handshake=False)
        process = HandshakeProcess(driver.held_command(context, argv))
        driver.admit(context, process.process)
        return process

    def judge(self, run: TrialRun, measured: Measured) -> Ending:
        """Return the outcome, with the requirement that the workload reports as missing."""
        ending = judge_end(measured, run.trial.timeout_seconds, has_handshake=self.has_handshake)
        ending = confirmed(run, measured, ending)
        if ending.outcome != "requirement_missed":
            return ending
        reason = ending.error or "the workload cannot run on this host"
        return Ending(
            ending.outcome, ending.error, (MissedRequirement(Requirement.WORKLOAD, reason, ""),)
        )


def _finish(run: TrialRun, caged: Caged, process: HandshakeProcess, *, is_killed: bool) -> None:
    """End the process, after killing the trial if `is_killed`; keep the record's `exit`."""
    if is_killed and not process.has_exited:
        caged.context.processes.signal("KILL")
    status = process.finish()
    run.keep("exit", status=status, oom_kill=caged.context.processes.oom_kills())
    run.keep("workload", end=process.end)
    run.samples = list(process.samples)


def judge_end(measured: Measured, timeout_seconds: float, *, has_handshake: bool = True) -> Ending:
    """Return the outcome from the evidence, strongest first."""
    status, end, last_line = measured.exit["status"], measured.end, measured.last_line
    awaited = _awaited(measured) if has_handshake else None
    ended = f"it ended {describe_status(status)}{f' before `{awaited}`' if awaited else ''}"
    if measured.exit["oom_kill"]:
        return Ending("oom_killed")
    if measured.breach:
        return measured.breach
    if measured.is_timed_out:
        return Ending("timed_out", f"{_undone(awaited)} after {timeout_seconds:g} s")
    if status == CANNOT or end.get("refused"):
        return Ending("requirement_missed", last_line or end.get("refused"))
    if end.get("checksum_ok") is False:
        return Ending("wrong_answer", describe_fault(end, last_line))
    if status != 0:
        return Ending("failed", last_line or ended)
    if not end:
        return Ending("failed", last_line or ended)
    if wrong := wrong_response(end.get("response", {})):
        return Ending("failed", wrong)
    return Ending("ok")


def _breach(process: HandshakeProcess) -> Ending | None:
    return Ending("failed", str(process.breach)) if process.breach else None


def _awaited(measured: Measured) -> str | None:
    """Return the message that the workload still owed; None after `end`."""
    if measured.end:
        return None
    return "end" if measured.start_seconds is not None else "ready"


def _undone(awaited: str | None) -> str:
    return "not ready" if awaited == "ready" else "not done"


def describe_fault(end: Mapping[str, Any], last_line: str | None) -> str:
    """Return the workload's sentence about its wrong answer, and the faults that it counted."""
    own = end.get("response", {})
    faults = own.items() if wrong_response(own) is None else ()
    counted = [
        f"{value:,.0f} {name.replace('_', ' ')}"
        for name, value in faults
        if name.startswith(FAULTS) and value
    ]
    sentence = last_line or f"checksum {end.get('checksum')} is not the sidecar's"
    return ": ".join(filter(None, (sentence, ", ".join(counted))))


class HandshakeProgram(ReportingProgram):
    """A workload of pagecage's own, or any other that implements the handshake."""

    def argv(self, run: TrialRun, caged: Caged) -> list[str]:
        """Return the workload's command line."""
        own = run.trial.workload
        _check_program(own)
        values = places(caged.files, caged.data_dir, run.trial.max_seconds, caged.folders)
        values |= own_places(run)
        return [
            program_path(run.session.request, own.program),
            *fill_all(own.arguments, values, caged.files),
        ]

    def follow(
        self,
        run: TrialRun,  # noqa: ARG002
        caged: Caged,  # noqa: ARG002
        part: MeasuredPart,
        process: HandshakeProcess,
    ) -> bool:
        """Take the workload from `ready` to `end`.

        Returns False if the deadline passes before, or if the workload breaks the protocol.
        """
        if not process.wait_for("ready", deadline=part.deadline):
            return False
        part.at_gate(lambda: process.has_exited, process.evicted_bytes)
        if not process.is_waiting():
            return False
        part.begin()
        process.go()
        is_stopped = process.wait_for("stopped", "end", deadline=part.deadline)
        part.end()
        part.require_member(lambda: process.has_exited)
        return is_stopped and (process.has_ended or process.wait_for("end", deadline=part.deadline))


def _check_program(own: Workload) -> None:
    """Raise RequirementMissed if a project's program cannot be started."""
    if not own.is_built_in and not os.access(own.program, os.X_OK):
        raise RequirementMissed.of(
            Requirement.WORKLOAD,
            f"there is no executable program {own.program!r}",
            "build it; a script needs chmod +x",
        )
