"""Workloads that speak the handshake: ready, go, samples, end (docs/HANDSHAKE.md)."""

from __future__ import annotations

import os

from pagecage.agent.caged import Caged
from pagecage.agent.programs.arguments import fill_all, own_places, places, program_path
from pagecage.agent.programs.handshake_process import HandshakeProcess
from pagecage.agent.programs.measured_part import MeasuredPart
from pagecage.agent.programs.workload import ReportingProgram
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.model.requirements import Requirement
from pagecage.model.trial import Workload


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
