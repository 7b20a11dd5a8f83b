"""A workload process and its handshake: ready, go, samples, stopped (optional), end.

The workload exits when its standard input is closed. workloads/README.md defines the contract.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, Any

from pagecage.agent.programs.stderr_tail import StderrTail
from pagecage.process import PIPE, Process, TimeoutExpired, spawn

_GRACE_SECONDS = 10.0
_LONGEST_LINE_BYTES = 1 << 20
_POLL_SECONDS = 0.005


class HandshakeProcess:
    """One workload process. Threads read its output, so that every wait has a deadline.

    Without a handshake the input is closed at once, and only the end of the output is kept.
    """

    def __init__(self, argv: Sequence[str], *, has_handshake: bool = True) -> None:
        self.process: Process[bytes] = spawn(
            argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, new_session=True
        )
        self.samples: list[dict[str, Any]] = []
        self.ready: dict[str, Any] = {}
        self.end: dict[str, Any] = {}
        self.has_ended = False
        self._has_handshake = has_handshake
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
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

    def wait_for(self, *kinds: str, deadline: float) -> bool:
        """Read lines up to one of these types.

        Returns False at the end of output or at `deadline`.
        """
        while time.monotonic() < deadline:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return False
            if line is None:
                return False
            self._keep(line)
            if line.get("type") in kinds:
                return True
        return False

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
        count = self.ready.get("evicted_bytes")
        return count if isinstance(count, int) else 0

    def go(self) -> None:
        """Begin the measured part."""
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
        return status

    def last_line(self) -> str | None:
        """Return the last line of standard error, or of standard output that is not JSON.

        Returns None without one.
        """
        return self._tail.last_line()

    def _keep(self, line: dict[str, Any]) -> None:
        content = {key: value for key, value in line.items() if key != "type"}
        if line.get("type") == "sample":
            self.samples.append(content)
        elif line.get("type") == "ready":
            self.ready = content
        elif line.get("type") == "end":
            self.end, self.has_ended = content, True

    def _read_stdout(self, pipe: IO[bytes]) -> None:
        for line in _lines_of(pipe):
            data = _parse(line) if self._has_handshake else None
            if data is not None:
                self._lines.put(data)
            elif self._has_handshake:
                self._tail.add(b"it printed a line that is not a JSON object: " + line)
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
        while line := buffered.readline(_LONGEST_LINE_BYTES):
            yield line


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None
