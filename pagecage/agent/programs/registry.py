"""The protocol of a workload kind, and the program of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pagecage.agent.caging import Caged, ProgramFiles
from pagecage.agent.programs.command import CommandProgram
from pagecage.agent.programs.fio import FioProgram
from pagecage.agent.programs.service import ServiceProgram
from pagecage.agent.programs.workload import HandshakeProgram, ReportingProgram
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import Ending, Measured
from pagecage.model.cage import Cage


class Program(Protocol):
    """The workload of one trial."""

    inherits_environment: bool
    """True if the workload gets all variables of the agent's environment."""
    is_gated: bool
    """True if a shell in the cage waits for `go` and then becomes the program."""

    def find_files(self, storage: Storage, datasets: tuple[Path, ...]) -> ProgramFiles:
        """Check that the program can run here and find its files. Raises RequirementMissed."""

    def calibration_file(
        self, storage: Storage, files: ProgramFiles, slice_cage: Cage, /
    ) -> Path | None:
        """Return the file that calibration reads, or None if no file is fit for it."""

    def measure(self, caged: Caged) -> Measured:
        """Start, measure and end the workload. Raises RequirementMissed or NotPrepared."""

    def judge(self, measured: Measured) -> Ending: ...


PROGRAMS: Mapping[str, type[CommandProgram | ReportingProgram]] = {
    "command": CommandProgram,
    "fio": FioProgram,
    "handshake": HandshakeProgram,
    "service": ServiceProgram,
}
"""The class of each workload kind."""
