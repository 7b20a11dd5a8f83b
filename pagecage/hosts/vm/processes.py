"""Telling whether a process that a file names is still that process: a pid alone may have been given out again."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class ProcessId:
    """A pid and the moment it was started, in clock ticks since boot (proc_pid_stat(5), field 22)."""

    pid: int
    start_ticks: int


def stat_fields(pid: int, proc: Path = PROC) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on (the second, the name, may hold anything); None when gone."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 1 :].split()


def identify(pid: int, proc: Path = PROC) -> ProcessId | None:
    """The process that has this pid now; None when there is none, or only its unreaped remains.

    State Z alone does not tell: it is also that of a first thread that has ended before the others, which still hold
    files and locks (num_threads, field 20).
    """
    fields = stat_fields(pid, proc)
    if fields is None or (fields[0] in "ZX" and int(fields[17]) <= 1):
        return None
    return ProcessId(pid, int(fields[19]))


def is_alive(process: ProcessId, proc: Path = PROC) -> bool:
    """Whether this very process still runs."""
    return identify(process.pid, proc) == process


def end(process: ProcessId, timeout_seconds: float = 5.0) -> None:
    """Kill this very process, if it still runs, and wait until it is gone."""
    deadline = time.monotonic() + timeout_seconds
    while is_alive(process) and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.02)
