"""Workloads that speak the handshake: ready, go, samples, end (workloads/README.md)."""

from __future__ import annotations

from pathlib import Path

from pagecage.agent.caged import Caged, ProgramFiles
from pagecage.agent.programs import workload
from pagecage.agent.programs.arguments import fill_all, places, program_path
from pagecage.agent.programs.handshake_process import HandshakeProcess
from pagecage.agent.programs.measured_part import MeasuredPart
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import Ending, Measured, TrialRun
from pagecage.model.cage import Cage


class HandshakeProgram:
    """A workload of pagecage's own, or of anybody who implements the handshake."""

    inherits_environment = False
    is_gated = False

    def find_files(self, run: TrialRun, storage: Storage, datasets: tuple[Path, ...]) -> ProgramFiles:  # noqa: ARG002
        """Return the datasets."""
        return ProgramFiles(datasets, storage.disk)

    def calibration_file(
        self,
        run: TrialRun,  # noqa: ARG002
        storage: Storage,  # noqa: ARG002
        files: ProgramFiles,
        slice_cage: Cage,  # noqa: ARG002
    ) -> Path | None:
        """Return the first dataset."""
        return files.paths[0] if files.paths else None

    def argv(self, run: TrialRun, caged: Caged) -> list[str]:
        """Return the workload's command line."""
        own = run.trial.workload
        values = places(caged.files, caged.data_dir, run.trial.max_seconds)
        return [program_path(run.session.request, own.program), *fill_all(own.arguments, values, caged.files)]

    def measure(self, run: TrialRun, caged: Caged) -> Measured:
        """Start the workload, let it go at its gate, and end it after its `end` line."""
        part, argv = MeasuredPart(run, caged), self.argv(run, caged)
        run.keep("workload", argv=argv)
        part.before_launch()
        process = HandshakeProcess(caged.driver.command(caged.context, argv))
        is_timed_out = False
        try:
            is_done = self._follow(part, process)
            is_timed_out = not is_done and workload.is_past(part.deadline)
        finally:
            workload.finish(run, caged, process, is_killed=is_timed_out or run.interval is None)
        return workload.measured_of(run, argv, process, part, is_timed_out=is_timed_out)

    def judge(self, run: TrialRun, measured: Measured) -> Ending:
        """Return the outcome from the evidence, strongest first."""
        return workload.judge(run, measured)

    def _follow(self, part: MeasuredPart, process: HandshakeProcess) -> bool:
        """Take the workload from `ready` to `end`. Returns False if the deadline passes before."""
        if not process.wait_for("ready", deadline=part.deadline):
            return False
        part.at_gate(lambda: process.has_exited, process.evicted_bytes)
        part.begin()
        process.go()
        is_stopped = process.wait_for("stopped", "end", deadline=part.deadline)
        part.end()
        return is_stopped and (process.has_ended or process.wait_for("end", deadline=part.deadline))
