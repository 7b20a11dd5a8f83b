"""Programs that report by the handshake: the project's workloads and the user's own."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from pagecage.agent.caging import Caged, ProgramFiles
from pagecage.agent.data_files import find_files
from pagecage.agent.programs.command import CANNOT, command_places, fill_all, places, program_path
from pagecage.agent.programs.handshake_process import HandshakeProcess
from pagecage.agent.programs.measured_part import MeasuredPart, confirmed, describe_status
from pagecage.agent.responses import wrong_response
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import Ending, Measured, TrialRun
from pagecage.model.cage import Cage
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.requirements import MissedRequirement, Requirement, RequirementMissed

FAULTS = ("lost_", "doubled_", "torn_", "disordered_", "failed_")
"""Prefixes of figures that count faults in an answer (workloads/README.md)."""


class ReportingProgram:
    """A workload that reads the trial's datasets and ends with a report: `end` line or file."""

    inherits_environment = False
    is_gated = False
    has_handshake = True

    def __init__(self, run: TrialRun) -> None:
        self.run, self.trial = run, run.trial

    def find_files(self, storage: Storage, datasets: tuple[Path, ...]) -> ProgramFiles:
        """Return the datasets and the files of the prepared data. Raises RequirementMissed."""
        if storage.data_directory is None:
            return ProgramFiles(datasets, storage.data.disk)
        found = find_files((storage.data_directory,))
        return ProgramFiles((*datasets, *found), storage.data.disk)

    def calibration_file(
        self, _storage: Storage, files: ProgramFiles, _slice_cage: Cage, /
    ) -> Path | None:
        return max(files.paths, key=lambda path: path.stat().st_size, default=None)

    def places(self, caged: Caged) -> dict[str, object]:
        storage = caged.storage
        return places(caged.files, storage.data_dir, self.trial.max_seconds, storage.folders)

    def argv(self, caged: Caged) -> list[str]:
        raise NotImplementedError

    def follow(self, caged: Caged, part: MeasuredPart, process: HandshakeProcess, /) -> bool:
        """Take the workload through its measured part; False if it does not get to its end."""
        raise NotImplementedError

    def take_report(self, process: HandshakeProcess) -> None:
        """Read the report of the ended workload, unless it was printed as an `end` line."""

    def measure(self, caged: Caged) -> Measured:
        part = MeasuredPart(caged, is_whole_life=not self.has_handshake)
        argv = self.argv(caged)
        driver, context, processes = caged.driver, caged.context, caged.context.processes
        self.run.keep("workload", argv=argv)
        part.before_launch()
        if self.has_handshake:
            process = HandshakeProcess(driver.held_command(context, argv))
            driver.admit(context, process.process)
        else:  # its input is closed at once
            process = HandshakeProcess(driver.command(context, argv), has_handshake=False)
        processes.launched(process.process.pid)
        is_timed_out, found = False, Json()
        try:
            is_done = self.follow(caged, part, process)
            is_timed_out = not is_done and time.monotonic() >= part.deadline
        finally:
            if (is_timed_out or part.interval is None) and not process.has_exited:
                processes.signal("KILL")
            found |= {"status": process.finish(), "oom_kill": processes.oom_kills()}
            self.run.keep("exit", **found)
            self.run.keep("workload", end=process.conversation.end)
            self.run.samples = list(process.conversation.samples)
        self.take_report(process)
        breach = Ending("failed", str(process.breach)) if process.breach else None
        measured = part.measured(process, found, is_timed_out=is_timed_out)
        return replace(measured, end=process.conversation.end, breach=breach)

    def judge(self, measured: Measured) -> Ending:
        """Return the outcome, with the requirement that the workload reports as missing."""
        seconds, has_handshake = self.trial.timeout_seconds, self.has_handshake
        ending = judge_end(measured, seconds, has_handshake=has_handshake)
        ending = confirmed(self.trial.workload.program, measured, ending)
        if ending.outcome != "requirement_missed":
            return ending
        reason = ending.error or "the workload cannot run on this host"
        missed = MissedRequirement(Requirement.WORKLOAD, reason, "")
        return Ending(ending.outcome, ending.error, (missed,))


def judge_end(measured: Measured, timeout_seconds: float, *, has_handshake: bool = True) -> Ending:
    status, end, last_line = measured.exit["status"], measured.end, measured.last_line
    awaited = None  # the message that the workload still owed
    if has_handshake and not end:
        awaited = "end" if measured.start_seconds is not None else "ready"
    if measured.exit["oom_kill"]:
        return Ending("oom_killed")
    if measured.breach:
        return measured.breach
    if measured.is_timed_out:
        undone = "not ready" if awaited == "ready" else "not done"
        return Ending("timed_out", f"{undone} after {timeout_seconds:g} s")
    if status == CANNOT or end.get("refused"):
        return Ending("requirement_missed", last_line or end.get("refused"))
    if end.get("checksum_ok") is False:
        return Ending("wrong_answer", _describe_fault(end, last_line))
    if status != 0 or not end:
        before = f" before `{awaited}`" if awaited else ""
        return Ending("failed", last_line or f"it ended {describe_status(status)}{before}")
    if wrong := wrong_response(end.get("response", {})):
        return Ending("failed", wrong)
    return Ending("ok")


def _describe_fault(end: JsonView, last_line: str | None) -> str:
    own = end.get("response", {})
    counted = [
        f"{value:,.0f} {name.replace('_', ' ')}"
        for name, value in (own.items() if wrong_response(own) is None else ())
        if name.startswith(FAULTS) and value
    ]
    sentence = last_line or f"checksum {end.get('checksum')} is not the sidecar's"
    return ": ".join(filter(None, (sentence, ", ".join(counted))))


class HandshakeProgram(ReportingProgram):
    """A workload of pagecage's own, or any other that implements the handshake."""

    def argv(self, caged: Caged) -> list[str]:
        own, request = self.trial.workload, self.run.request
        if not own.is_built_in and not os.access(own.program, os.X_OK):
            reason = f"there is no executable program {own.program!r}"
            hint = "build it; a script needs chmod +x"
            raise RequirementMissed.of(Requirement.WORKLOAD, reason, hint)
        values = self.places(caged) | command_places(request, caged.storage.data_directory)
        arguments = fill_all(own.arguments, values, caged.files)
        return [program_path(request, own.program), *arguments]

    def follow(self, _caged: Caged, part: MeasuredPart, process: HandshakeProcess, /) -> bool:
        if not process.wait_for("ready", deadline=part.deadline):
            return False
        talk = process.conversation
        part.at_gate(lambda: process.has_exited, int(talk.ready.get("evicted_bytes", 0)))
        if not process.is_waiting():
            return False
        part.begin()
        process.go()
        is_stopped = process.wait_for("stopped", "end", deadline=part.deadline)
        part.end()
        part.require_member(lambda: process.has_exited)
        return is_stopped and (talk.has_ended or process.wait_for("end", deadline=part.deadline))
