"""Workloads that speak the handshake: ready, go, samples, end (workloads/README.md)."""

from __future__ import annotations

from pagecage.agent.caged import Caged
from pagecage.agent.programs.arguments import fill_all, own_places, places, program_path
from pagecage.agent.programs.handshake_process import HandshakeProcess
from pagecage.agent.programs.measured_part import MeasuredPart
from pagecage.agent.programs.workload import ReportingProgram
from pagecage.agent.trial_run import TrialRun


class HandshakeProgram(ReportingProgram):
    """A workload of pagecage's own, or any other that implements the handshake."""

    def argv(self, run: TrialRun, caged: Caged) -> list[str]:
        """Return the workload's command line."""
        own = run.trial.workload
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
        """Take the workload from `ready` to `end`. Returns False if the deadline passes before."""
        if not process.wait_for("ready", deadline=part.deadline):
            return False
        part.at_gate(lambda: process.has_exited, process.evicted_bytes)
        part.begin()
        process.go()
        is_stopped = process.wait_for("stopped", "end", deadline=part.deadline)
        part.end()
        part.require_member(lambda: process.has_exited)
        return is_stopped and (process.has_ended or process.wait_for("end", deadline=part.deadline))
