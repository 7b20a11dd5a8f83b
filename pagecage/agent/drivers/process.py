"""The driver for trials without limits on hosts without cgroups: a supervised child process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pagecage.agent.drivers.driver import LaunchContext, SliceDriver
from pagecage.linux.processes import MARKER, SupervisedProcesses, children

_SUPERVISOR = "supervise.py"


class ProcessDriver(SliceDriver):
    """A supervisor that runs the workload and lets none of its descendants survive."""

    name = "process"
    has_slice = False

    def __init__(self, spool: Path) -> None:
        self._script = spool / _SUPERVISOR

    def prepare(self) -> dict[str, Any]:
        """Write the supervisor to the spool, since the agent itself is inside an archive."""
        source = resources.files(__package__).joinpath(_SUPERVISOR).read_bytes()
        self._script.write_bytes(source)
        return {}

    def command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return the supervisor's command, whose exit status is the workload's.

        For a program that waits at a gate, processes that it leaves behind live on until the agent
        has seen them.
        """
        processes = _supervised(context)
        processes.report.unlink(missing_ok=True)  # of a setup step before
        return self._supervise(context, sys.executable, str(os.getpid()), argv)

    def preview_commands(self, context: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        """Return the supervisor's command, with a place for the agent's process id."""
        return [self._supervise(context, "python3", "AGENT_PID", argv)]

    def _supervise(
        self, context: LaunchContext, python: str, agent: str, argv: Sequence[str]
    ) -> list[str]:
        processes = _supervised(context)
        mode = ["--wait-for-all"] if context.is_gated else []
        script = [python, "-I", "-S", str(self._script), *mode, str(processes.report), agent]
        return ["env", f"{MARKER}={processes.mark}", *script, *argv]

    def main_pid(self, _context: LaunchContext, client: int, /) -> int | None:
        """Return the supervisor's first child, which is the workload."""
        return next(iter(children(client)), None)

    def clear(self, context: LaunchContext, /) -> None:
        """Kill whatever is left of the trial."""
        _supervised(context).end()


def _supervised(context: LaunchContext) -> SupervisedProcesses:
    assert isinstance(context.processes, SupervisedProcesses)
    return context.processes
