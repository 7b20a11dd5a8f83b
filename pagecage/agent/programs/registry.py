"""The program of each workload kind."""

from __future__ import annotations

from collections.abc import Mapping

from pagecage.agent.programs.command import CommandProgram
from pagecage.agent.programs.fio import FioProgram
from pagecage.agent.programs.service import ServiceProgram
from pagecage.agent.programs.workload import HandshakeProgram, ReportingProgram

Program = CommandProgram | ReportingProgram
"""The workload of one trial."""
PROGRAMS: Mapping[str, type[Program]] = {
    "command": CommandProgram,
    "fio": FioProgram,
    "handshake": HandshakeProgram,
    "service": ServiceProgram,
}
"""The class of each workload kind."""
