"""The driver for trials without limits on hosts without cgroups: a supervised child process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from pagecage.agent.drivers.driver import Driver, DriverServices, LaunchContext
from pagecage.linux.processes import MARKER, SupervisedProcesses, children
from pagecage.model.json_codec import Json

_SUPERVISOR = "supervise.py"


class ProcessDriver(Driver):
    """A supervisor that runs the workload and lets none of its descendants survive."""

    name = "process"
    has_slice = False

    def __init__(self, place: DriverServices | Path) -> None:
        self._spool = place if isinstance(place, Path) else place.spool

    def prepare(self) -> Json:
        """Write the supervisor to the spool, since the agent itself is inside an archive."""
        source = resources.files(__package__).joinpath(_SUPERVISOR).read_bytes()
        (self._spool / _SUPERVISOR).write_bytes(source)
        return {}

    def command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return the supervisor's command, whose exit status is the workload's.

        For a program that waits at a gate, processes that it leaves behind live on until the agent
        has seen them.
        """
        _supervised(context).report.unlink(missing_ok=True)  # of a setup step before
        return self._supervise(context, sys.executable, str(os.getpid()), argv)

    def preview_commands(self, context: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        return [self._supervise(context, "python3", "AGENT_PID", argv)]

    def _supervise(
        self, context: LaunchContext, python: str, agent: str, argv: Sequence[str]
    ) -> list[str]:
        processes, script = _supervised(context), str(self._spool / _SUPERVISOR)
        mode = ["--wait-for-all"] if context.is_gated else []
        supervisor = [python, "-I", "-S", script, *mode, str(processes.report), agent]
        return ["env", f"{MARKER}={processes.mark}", *supervisor, *argv]

    def main_pid(self, _context: LaunchContext, client: int, /) -> int | None:
        return next(iter(children(client)), None)

    def clear(self, context: LaunchContext, /) -> None:
        _supervised(context).end()


def _supervised(context: LaunchContext) -> SupervisedProcesses:
    assert isinstance(context.processes, SupervisedProcesses)
    return context.processes
