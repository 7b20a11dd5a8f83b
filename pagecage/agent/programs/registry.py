"""The program of each workload kind."""

from __future__ import annotations

from collections.abc import Mapping

from pagecage.agent.programs.command import CommandProgram
from pagecage.agent.programs.fio import FioProgram
from pagecage.agent.programs.program import Program
from pagecage.agent.programs.service import ServiceProgram
from pagecage.agent.programs.workload import HandshakeProgram
from pagecage.model.trial import Trial

_PROGRAMS: Mapping[str, Program] = {
    "command": CommandProgram(),
    "fio": FioProgram(),
    "handshake": HandshakeProgram(),
    "service": ServiceProgram(),
}


def program_of(trial: Trial) -> Program:
    """Return the program for the trial's workload kind."""
    return _PROGRAMS[trial.workload.kind]
