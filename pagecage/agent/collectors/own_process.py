"""The process of an own collector: its start on one CPU, its CPU time, and its end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from pagecage.agent.collectors.own_output import OwnOutput
from pagecage.agent.system.child_processes import ToolProcesses, session_cpu_seconds
from pagecage.errors import PagecageError
from pagecage.process import PIPE, Process

_LOG_TAIL_BYTES = 10_000


class OwnProcess:
    """A collector's process, with its output and the last line of its standard error.

    `obstacle` is the reason why it was not started, or None.
    """

    def __init__(self, children: ToolProcesses, log: Path) -> None:
        self._children, self._log = children, log
        self._process: Process[bytes] | None = None
        self._cpu: tuple[int, ...] = ()
        self.output: OwnOutput | None = None
        self.obstacle: str | None = None
        self.started_at = 0.0
        self.stopped_at: float | None = None
        self.status: int | None = None
        self.cpu_seconds: float | None = None

    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPU that it was started on; empty if the host has only one."""
        return self._cpu

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], directory: Path | None = None
    ) -> None:
        """Start the program on the last CPU, in a session of its own."""
        self.started_at = time.monotonic()
        try:
            with self._log.open("wb") as log, _on_last_cpu() as self._cpu:
                self._process = self._children.start(
                    argv, stdout=PIPE, stderr=log, env=env, cwd=directory
                )
        except (PagecageError, OSError) as error:
            self.obstacle = getattr(error, "message", None) or str(error)
            return
        self.output = OwnOutput(_stdout(self._process), self._end_flood)

    def stop(self, signal_number: int, seconds: float) -> None:
        """End it by a signal, with all that it started, and kill it if that takes too long.

        Its status is that of before the signal, or None.
        """
        if self._process is None or self.output is None or self.stopped_at is not None:
            return
        self.cpu_seconds = session_cpu_seconds(self._process.pid)
        self.stopped_at = time.monotonic()
        self.status = self._children.end_session(self._process, signal_number, seconds)
        self.output.join(5.0)

    @property
    def was_running(self) -> bool:
        """True if it ran until it was stopped."""
        return self._process is not None and self.status is None

    @property
    def was_killed(self) -> bool:
        """True if it ran until it was stopped, and did not end by itself then."""
        process = self._process
        return self.was_running and process is not None and process.poll() == -signal.SIGKILL

    def last_error_line(self) -> str | None:
        """Return the last line of its standard error; None without one."""
        with suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
            return lines[-1].strip() if lines else None
        return None

    def _end_flood(self) -> None:
        """Kill it from the thread that reads its output."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _stdout(process: Process[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout


@contextmanager
def _on_last_cpu() -> Iterator[tuple[int, ...]]:
    """Yield the last CPU, on which this thread starts processes meanwhile; () if there is one."""
    allowed = os.sched_getaffinity(0)
    last = tuple(sorted(allowed)[-1:]) if len(allowed) > 1 else ()
    if last:
        os.sched_setaffinity(0, last)
    try:
        yield last
    finally:
        if last:
            os.sched_setaffinity(0, allowed)
