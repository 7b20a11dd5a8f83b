"""Programs that the agent starts, and the signal that ends a trial but not its cleanup."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from pagecage.linux.processes import MARKER, kill_marked
from pagecage.linux.procfs import read_text
from pagecage.process import DEVNULL, PROC, Process, TimeoutExpired, spawn, stat_fields

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Interrupted(BaseException):
    """The controller is gone, or the agent received a signal to end."""


class Interruption:
    """Raises Interrupted on the first signal, after the block that holds it."""

    def __init__(self) -> None:
        self._held = False
        self._pending = False
        self._raised = False

    def listen(self) -> None:
        """Handle the signals that ask a process to end. Main thread only (signal(7))."""
        for number in _SIGNALS:
            signal.signal(number, self._take)

    def _take(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        if self._held:
            self._pending = True
        elif not self._raised:
            self._raised = True
            raise Interrupted

    @contextmanager
    def held(self) -> Iterator[None]:
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before
        if self._pending:
            self._take()


_STOP_SECONDS = 5.0
# Fields of proc_pid_stat(5), counted from the one after the command's parenthesis: session is 6,
# starttime 22, utime 14, followed by stime, cutime and cstime.
_STATE, _SESSION, _UTIME, _START_TICKS = 3 - 3, 6 - 3, 14 - 3, 22 - 3


class ToolProcesses:
    """The tools of one agent. Each has a file in the spool with the time of its start."""

    def __init__(self, spool: Path) -> None:
        self._notes = spool / "children"
        self._notes.mkdir(parents=True, exist_ok=True)
        self._mark = f"{spool}/tools:"
        self._own_mark = f"{self._mark}{os.getpid()}"
        self._started: set[int] = set()

    def start(
        self,
        argv: Sequence[str | Path],
        *,
        stdout: int | IO[bytes] = DEVNULL,
        stderr: int | IO[bytes] = DEVNULL,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Process[bytes]:
        """Start a tool in a new session, out of reach of the terminal's Ctrl-C."""
        marked = {MARKER: self._own_mark, **(env or {})}
        process = spawn(argv, stdout=stdout, stderr=stderr, env=marked, cwd=cwd, new_session=True)
        try:
            (self._notes / str(process.pid)).write_text(str(_start_ticks(process.pid) or 0))
        except OSError:
            process.kill()
            process.wait()
            raise
        self._started.add(process.pid)
        return process

    def interrupt(self, process: Process[bytes]) -> int | None:
        """End a tool by SIGINT; return its exit status, or None if it had died before."""
        dead_before = process.poll() is not None
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        self._wait_and_kill(process, _STOP_SECONDS)
        return None if dead_before else process.returncode

    def end_session(
        self, process: Process[bytes], signal_number: int, seconds: float = 5.0
    ) -> int | None:
        """End its process group, kill what remains; return the status that it had before."""
        status_before = process.poll()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)
        self._wait_and_kill(process, seconds)
        return status_before

    def _wait_and_kill(self, process: Process[bytes], seconds: float) -> None:
        note = self._notes / str(process.pid)
        try:
            with suppress(TimeoutExpired):
                process.wait(seconds)
        finally:
            _kill_session(process.pid, int(read_text(note) or 0))
            process.wait()
        note.unlink(missing_ok=True)
        self._started.discard(process.pid)

    def sweep(self) -> list[int]:
        """End the tools that a killed agent left, none of this object's; return the sessions."""
        ended = []
        for note in self._notes.iterdir():
            if note.name.isdigit() and int(note.name) in self._started:
                continue
            if note.name.isdigit() and _kill_session(int(note.name), int(read_text(note) or 0)):
                ended.append(int(note.name))
            note.unlink(missing_ok=True)
        kill_marked(self._mark, but_not=self._own_mark)
        return ended


def _start_ticks(pid: int) -> int | None:
    fields = stat_fields(pid)
    return int(fields[_START_TICKS]) if fields else None


def _processes(session: int) -> Iterator[tuple[int, list[str]]]:
    for pid in (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()):
        fields = stat_fields(pid)
        if fields and int(fields[_SESSION]) == session:
            yield pid, fields


def session_cpu_seconds(session: int) -> float | None:
    """Return the CPU time of a session's processes and of those they waited for; None if gone."""
    living = [fields for _, fields in _processes(session) if fields[_STATE] not in "ZX"]
    ticks = sum(int(ticks) for fields in living for ticks in fields[_UTIME : _UTIME + 4])
    return ticks / os.sysconf("SC_CLK_TCK") if living else None


def _kill_session(session: int, since_ticks: int) -> int:
    """Kill what started after the session's leader, who may be gone; return the number."""
    if _start_ticks(session) not in (None, since_ticks):
        return 0
    killed = 0
    for pid, fields in _processes(session):
        if int(fields[_START_TICKS]) >= since_ticks:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    return killed
