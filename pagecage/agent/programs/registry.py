"""The program of each workload kind."""

from __future__ import annotations

from collections.abc import Mapping

from pagecage.agent.programs.command import CommandProgram
from pagecage.agent.programs.fio import FioProgram
from pagecage.agent.programs.program import Program
from pagecage.agent.programs.service import ServiceProgram
from pagecage.agent.programs.workload import HandshakeProgram, ReportingProgram
from pagecage.agent.trial_run import TrialRun

PROGRAMS: Mapping[str, type[CommandProgram | ReportingProgram]] = {
    "command": CommandProgram,
    "fio": FioProgram,
    "handshake": HandshakeProgram,
    "service": ServiceProgram,
}
"""The class of each workload kind."""


def program_of(run: TrialRun) -> Program:
    """Return the program of a trial."""
    return PROGRAMS[run.trial.workload.kind](run)
