"""Talks to a workload: ready, go, samples, end; then closing its standard input lets it exit (workloads/README.md)."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Sequence
from typing import IO, Any

from pagecage.process import PIPE, Process, spawn

_GRACE_SECONDS = 10.0
_KEEP_STDERR_BYTES = 2000


class Conversation:
    """One workload process. Lines arrive by a thread, so that every wait has a deadline."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.process: Process[bytes] = spawn(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, new_session=True)
        self.samples: list[dict[str, Any]] = []
        self.end: dict[str, Any] = {}
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._stderr = bytearray()
        self._threads = [
            threading.Thread(target=self._read_stdout, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self._read_stderr, args=(self.process.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read_stdout(self, pipe: IO[bytes]) -> None:
        for line in iter(pipe.readline, b""):
            try:
                self._lines.put(json.loads(line))
            except ValueError:
                self._stderr += b"not JSON: " + line
        self._lines.put(None)

    def _read_stderr(self, pipe: IO[bytes]) -> None:
        for line in iter(pipe.readline, b""):
            self._stderr = (self._stderr + line)[-_KEEP_STDERR_BYTES:]

    def wait_for(self, kind: str, deadline: float) -> bool:
        """Take lines until one of this type came; False when the output ended or monotonic `deadline` passed."""
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return False
            if line is None:
                return False
            if line.get("type") == "sample":
                self.samples.append({k: v for k, v in line.items() if k != "type"})
            elif line.get("type") == "end":
                self.end = {k: v for k, v in line.items() if k != "type"}
            if line.get("type") == kind:
                return True

    def go(self) -> None:
        """Let the measured part begin."""
        self._send(b"go\n")

    def finish(self) -> int:
        """Close its input, wait for it, and return its exit status (negative: ended by that signal)."""
        self._send(b"", close=True)
        try:
            status = self.process.wait(_GRACE_SECONDS)
        except Exception:  # noqa: BLE001 - whatever interrupts the wait, the process must not stay
            self.process.kill()
            status = self.process.wait()
        for thread in self._threads:
            thread.join(1.0)
        return status

    def complaint(self) -> str | None:
        """The last line it printed on standard error."""
        lines = self._stderr.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else None

    def _send(self, data: bytes, close: bool = False) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            if close:
                self.process.stdin.close()
        except (BrokenPipeError, ValueError):
            pass  # it is dead already; its exit status tells


def run_command(conversation: Conversation, deadline: float) -> bool:
    """Wait for a program that knows no handshake; False when `deadline` passed first."""
    while conversation.process.poll() is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
