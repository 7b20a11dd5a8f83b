"""A workload process and its handshake: ready, go, samples, stopped (optional), end.

The workload exits when its standard input is closed. docs/HANDSHAKE.md specifies the protocol.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, Any

from pagecage.agent.programs.handshake_protocol import (
    LONGEST_LINE_BYTES,
    Conversation,
    HandshakeBreach,
    parse_message,
)
from pagecage.agent.programs.stderr_tail import StderrTail
from pagecage.process import PIPE, Process, TimeoutExpired, spawn

_GRACE_SECONDS = 10.0
_POLL_SECONDS = 0.005


class HandshakeProcess:
    """One workload process. Threads read its output, so that every wait has a deadline.

    Without a handshake the input is closed at once, and only the end of the output is kept.
    `breach` is the first line that broke the protocol; nothing that follows it is kept.
    """

    def __init__(self, argv: Sequence[str], *, has_handshake: bool = True) -> None:
        self.process: Process[bytes] = spawn(
            argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, new_session=True
        )
        self.breach: HandshakeBreach | None = None
        self._conversation = Conversation()
        self._has_handshake = has_handshake
        self._lines: queue.Queue[dict[str, Any] | HandshakeBreach | None] = queue.Queue()
        self._tail = StderrTail()
        readers = (
            (self._read_stdout, self.process.stdout),
            (self._read_stderr, self.process.stderr),
        )
        self._threads = [
            threading.Thread(target=read, args=(pipe,), daemon=True) for read, pipe in readers
        ]
        for thread in self._threads:
            thread.start()
        if not has_handshake:
            self._send(b"", close=True)

    @property
    def samples(self) -> list[dict[str, Any]]:
        """The content of each `sample` so far."""
        return self._conversation.samples

    @property
    def end(self) -> dict[str, Any]:
        """The content of `end`, or of a report read elsewhere; empty without it."""
        return self._conversation.end

    @end.setter
    def end(self, report: dict[str, Any]) -> None:
        self._conversation.end = report

    @property
    def has_ended(self) -> bool:
        """True if `end` has arrived."""
        return self._conversation.has(("end",))

    def wait_for(self, *kinds: str, deadline: float) -> bool:
        """Read messages up to one of these types.

        Returns False at the end of output, at a breach, or at `deadline` (CLOCK_MONOTONIC).
        """
        while time.monotonic() < deadline:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return False
            if line is None or not self._take(line):
                return False
            if isinstance(line, dict) and line["type"] in kinds:
                return True
        return False

    def is_waiting(self) -> bool:
        """Return whether the workload kept silent since `ready`, as it must until `go`."""
        self._take_rest()
        return self.breach is None

    def wait_for_exit(self, deadline: float) -> bool:
        """Wait for the exit; False if CLOCK_MONOTONIC passes `deadline` first."""
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    @property
    def has_exited(self) -> bool:
        """True if the process has exited."""
        return self.process.poll() is not None

    @property
    def evicted_bytes(self) -> int:
        """Bytes that the workload reports to have dropped from the page cache before `ready`."""
        return int(self._conversation.ready.get("evicted_bytes", 0))

    def go(self) -> None:
        """Begin the measured part."""
        self._conversation.is_going = True
        self._send(b"go\n")

    def finish(self) -> int:
        """Close the input, wait for the exit, and return the status (negative: a signal).

        The process is killed after 10 s, or if the wait is interrupted.
        """
        self._send(b"", close=True)
        try:
            self.process.wait(_GRACE_SECONDS)
        except TimeoutExpired:
            self._tail.add(b"it did not exit when its input was closed\n")
        finally:
            if self.process.poll() is None:
                self.process.kill()
            status = self.process.wait()
        for thread in self._threads:
            thread.join(1.0)
        self._take_rest()
        return status

    def last_line(self) -> str | None:
        """Return the last line of standard error; None if it is empty."""
        return self._tail.last_line()

    def _take(self, line: dict[str, Any] | HandshakeBreach) -> bool:
        """Keep a message; return False if it, or one before it, breaks the protocol."""
        try:
            if isinstance(line, HandshakeBreach):
                raise line
            if self.breach is None:
                self._conversation.take(line)
        except HandshakeBreach as breach:
            self.breach = self.breach or breach
        return self.breach is None

    def _take_rest(self) -> None:
        """Take what was printed and not yet waited for."""
        with suppress(queue.Empty):
            while True:
                line = self._lines.get_nowait()
                if line is None:
                    self._lines.put(None)  # a later wait must find the end of output too
                    return
                self._take(line)

    def _read_stdout(self, pipe: IO[bytes]) -> None:
        """Read to the end of output, so that the workload never blocks; keep it up to a breach.

        A last line without newline is dropped: a process that is killed may leave a part of one.
        """
        is_kept = self._has_handshake
        for line in _lines_of(pipe):
            is_whole = line.endswith(b"\n") or len(line) == LONGEST_LINE_BYTES
            if is_kept and is_whole:
                message = _parse(line.removesuffix(b"\n"))
                self._lines.put(message)
                is_kept = not isinstance(message, HandshakeBreach)
        self._lines.put(None)

    def _read_stderr(self, pipe: IO[bytes]) -> None:
        for line in _lines_of(pipe):
            self._tail.add(line)

    def _send(self, data: bytes, close: bool = False) -> None:
        assert self.process.stdin is not None
        with suppress(
            BrokenPipeError, ValueError
        ):  # the process has exited; its exit status has the reason
            self.process.stdin.write(data)
            if close:
                self.process.stdin.close()


def _lines_of(pipe: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a pipe.

    Lines are cut at 1 MiB, as a program may write gigabytes without a newline.
    """
    with open(pipe.fileno(), "rb", closefd=False) as buffered:
        while line := buffered.readline(LONGEST_LINE_BYTES):
            yield line


def _parse(line: bytes) -> dict[str, Any] | HandshakeBreach:
    try:
        return parse_message(line)
    except HandshakeBreach as breach:
        return breach
