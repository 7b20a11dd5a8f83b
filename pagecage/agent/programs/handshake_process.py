"""Talks to a workload: ready, go, samples, perhaps stopped, end; closing its standard input then lets it exit.

workloads/README.md has the contract.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, Any

from pagecage.process import PIPE, Process, TimeoutExpired, spawn

_GRACE_SECONDS = 10.0
_KEEP_BYTES = 2000
_LONGEST_LINE_BYTES = 1 << 20
_POLL_SECONDS = 0.005


class HandshakeProcess:
    """One workload process. Lines arrive by a thread, so that every wait has a deadline.

    A `command` speaks no handshake: its input is closed at once and only the end of its output is kept.
    """

    def __init__(self, argv: Sequence[str], *, speaks: bool = True) -> None:
        self.process: Process[bytes] = spawn(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, new_session=True)
        self.samples: list[dict[str, Any]] = []
        self.ready: dict[str, Any] = {}
        self.end: dict[str, Any] = {}
        self.has_ended = False
        self._speaks = speaks
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._said = bytearray()
        self._saying = threading.Lock()
        readers = ((self._read_stdout, self.process.stdout), (self._read_stderr, self.process.stderr))
        self._threads = [threading.Thread(target=read, args=(pipe,), daemon=True) for read, pipe in readers]
        for thread in self._threads:
            thread.start()
        if not speaks:
            self._send(b"", close=True)

    def wait_for(self, *kinds: str, deadline: float) -> bool:
        """Take lines until one of these types came; False when the output ended or monotonic `deadline` passed."""
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
        """Wait for a program that knows no handshake; False when `deadline` passed first."""
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    @property
    def has_exited(self) -> bool:
        """True if the process is gone."""
        return self.process.poll() is not None

    @property
    def evicted_bytes(self) -> int:
        """Bytes of its files that the workload dropped from the page cache before `ready`, as it reports them."""
        told = self.ready.get("evicted_bytes")
        return told if isinstance(told, int) else 0

    def go(self) -> None:
        """Let the measured part begin."""
        self._send(b"go\n")

    def finish(self) -> int:
        """Close its input, wait for it, and return its exit status (negative: ended by that signal).

        One that does not exit in time is killed, and so is one whose wait is interrupted: none may stay.
        """
        self._send(b"", close=True)
        try:
            self.process.wait(_GRACE_SECONDS)
        except TimeoutExpired:
            self._note(b"it did not exit when its input was closed\n")
        finally:
            if self.process.poll() is None:
                self.process.kill()
            status = self.process.wait()
        for thread in self._threads:
            thread.join(1.0)
        return status

    def complaint(self) -> str | None:
        """The last line it printed on standard error, or on standard output where that is no JSON."""
        with self._saying:
            lines = self._said.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else None

    def _keep(self, line: dict[str, Any]) -> None:
        content = {key: value for key, value in line.items() if key != "type"}
        if line.get("type") == "sample":
            self.samples.append(content)
        elif line.get("type") == "ready":
            self.ready = content
        elif line.get("type") == "end":
            self.end, self.has_ended = content, True

    def _note(self, text: bytes) -> None:
        with self._saying:
            self._said = (self._said + text)[-_KEEP_BYTES:]

    def _read_stdout(self, pipe: IO[bytes]) -> None:
        for line in _lines_of(pipe):
            data = _parse(line) if self._speaks else None
            if data is not None:
                self._lines.put(data)
            elif self._speaks:
                self._note(b"it printed what is no JSON object: " + line)
        self._lines.put(None)

    def _read_stderr(self, pipe: IO[bytes]) -> None:
        for line in _lines_of(pipe):
            self._note(line)

    def _send(self, data: bytes, close: bool = False) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # it is dead already; its exit status tells
            self.process.stdin.write(data)
            if close:
                self.process.stdin.close()


def _lines_of(pipe: IO[bytes]) -> Iterator[bytes]:
    """Lines of a pipe, cut where one would grow without bound (a program that writes gigabytes and no newline)."""
    with open(pipe.fileno(), "rb", closefd=False) as buffered:
        while line := buffered.readline(_LONGEST_LINE_BYTES):
            yield line


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None
