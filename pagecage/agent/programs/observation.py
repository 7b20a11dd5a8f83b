"""A program without a handshake while it runs: whether it serves, has exited or left its cage."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pagecage.agent.programs.gated_process import GatedProcess
from pagecage.agent.system.process_tree import ProcessInfo
from pagecage.agent.system.procfs import listens
from pagecage.agent.system.trial_processes import TrialProcesses

MEMBERS_SECONDS = 0.2
"""Interval of the scans for processes that have left the cage."""
STDERR_LINES = 10
"""Lines of standard error that a record keeps."""


@dataclass
class ProgramObservation:
    """Times of a program (CLOCK_MONOTONIC), and processes that survived it or left the cage."""

    began_at: float
    ready_at: float | None = None
    exited_at: float | None = None
    left_behind: list[ProcessInfo] = field(default_factory=list)
    escaped: list[ProcessInfo] = field(default_factory=list)
    next_scan_at: float = 0.0

    def note_serving(
        self, processes: TrialProcesses, program: GatedProcess, port: int | None
    ) -> bool:
        """Return whether it serves: it printed the line, or listens on the port."""
        if program.ready_at is not None:
            self.ready_at = program.ready_at
        elif port is not None:
            pids = [member.pid for member in processes.members()]
            self.ready_at = time.monotonic() if listens(port, pids) else None
        return self.ready_at is not None

    def note_escaped(self, processes: TrialProcesses, program: GatedProcess) -> None:
        """Scan at intervals, since each scan walks through all of the program's processes."""
        if time.monotonic() >= self.next_scan_at:
            self.next_scan_at = time.monotonic() + MEMBERS_SECONDS
            self.escaped = processes.outside(program.main_pid)

    def kill_escaped(self) -> None:
        """Kill the processes that left the cage: stopping the slice does not end them."""
        for member in self.escaped:
            with suppress(OSError):
                os.kill(member.pid, signal.SIGKILL)


def remaining_members(processes: TrialProcesses, patience_seconds: float) -> list[ProcessInfo]:
    """Return the processes still in the cage after the program's exit.

    Its children may take a moment to go.
    """
    until = time.monotonic() + patience_seconds
    while (left := processes.members()) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def exit_to_json(
    program: GatedProcess,
    processes: TrialProcesses,
    seen: ProgramObservation | None,
    status: int,
    *,
    ended_by_itself: bool,
) -> dict[str, Any]:
    """Return the `exit` of a record; `seen` is None for a program that was never let go."""
    left_behind, escaped = (seen.left_behind, seen.escaped) if seen else ([], [])
    return {
        "status": status,
        "oom_kill": processes.oom_kills(),
        "stderr_tail": program.stderr_lines()[-STDERR_LINES:],
        "ended_by_itself": ended_by_itself,
        "left_behind": [process.to_json() for process in left_behind],
        "escaped": [process.to_json() for process in escaped],
    }


def describe_status(status: int) -> str:
    """Return an exit status in words; a negative one is the signal that ended the program."""
    return f"by signal {-status}" if status < 0 else f"with status {status}"


def describe_escaped(process: dict[str, Any]) -> str:
    """Return a sentence about a process that left the cage."""
    return (
        f"{name_process(process)} left the cage for {process['cgroup']}, where its limits do not"
        " hold"
    )


def name_process(process: dict[str, Any]) -> str:
    """Return the name and the id of a process of a record."""
    return f"{process['name']} (process {process['pid']})"
