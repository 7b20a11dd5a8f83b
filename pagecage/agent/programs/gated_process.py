"""A process that waits in its cgroup for the start of the measured part."""

from __future__ import annotations

import hashlib
import os
import re
import select
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from pagecage.model.json_codec import Json
from pagecage.process import PIPE, Process, TimeoutExpired, spawn

_GRACE_SECONDS, _JOIN_SECONDS = 10.0, 1.0


class OutputTail:
    """The last bytes of an output, written by a reading thread and read by others."""

    def __init__(self, most_bytes: int = 2000) -> None:
        self._most_bytes, self._pieces, self._kept = most_bytes, list[bytes](), 0
        self._lock = threading.Lock()
        self.total_bytes = 0

    def add(self, piece: bytes) -> None:
        last = piece[-self._most_bytes :]
        with self._lock:
            self._pieces.append(last)
            self.total_bytes += len(piece)
            self._kept += len(last)
            while self._kept - len(self._pieces[0]) >= self._most_bytes:
                self._kept -= len(self._pieces.pop(0))

    def read(self) -> bytes:
        with self._lock:
            return b"".join(self._pieces)[-self._most_bytes :]

    def lines(self) -> list[str]:
        return self.read().decode(errors="replace").strip().splitlines()

    def last_line(self) -> str | None:
        return next(reversed(self.lines()), None)


class TailedProcess:
    """A process with pipes, the end of whose standard error is kept. Threads read its output."""

    def __init__(self, argv: Sequence[str], directory: Path | None = None) -> None:
        self.process: Process[bytes] = spawn(
            argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=directory, new_session=True
        )
        self.tail = OutputTail()
        self.threads: list[threading.Thread] = []

    def start_thread(self, target: Callable[..., None], *arguments: object) -> None:
        """Run a function in a thread that `end_process` joins."""
        self.threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self.threads[-1].start()

    @property
    def has_exited(self) -> bool:
        return self.process.poll() is not None

    def write(self, data: bytes) -> bool:
        """Write to standard input; return False if the process has closed it."""
        assert self.process.stdin is not None
        try:
            while data:
                data = data[self.process.stdin.write(data) or 0 :]
        except (BrokenPipeError, ValueError):
            return False
        return True

    def close_input(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def end_process(self, complaint: bytes) -> int:
        """Wait up to 10 s for the exit, then kill, also if the wait is interrupted.

        Return the exit status (negative: ended by that signal). A process that had to be killed
        gets the complaint as its last line.
        """
        try:
            self.process.wait(_GRACE_SECONDS)
        except TimeoutExpired:
            self.tail.add(complaint)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            status = self.process.wait()
        for thread in self.threads:
            thread.join(_JOIN_SECONDS)
        return status


Sink = Callable[[str, bytes], None]
"""Receives each piece of output: the stream's name and the bytes."""
Source = Callable[[int], bytes | None]
"""Returns the next piece of standard input after an offset: empty at its end, None if cancelled."""

# A shell in the scope prints a line, waits for `go`, and execs the program, so that the time to
# make the scope does not count. `read` consumes no byte after its line (POSIX); the rest is the
# program's input.
GATE = 'echo; read -r go && exec "$@"'
_STREAMS = ("stdout", "stderr")
_PIECE_BYTES = 1 << 16
_MOST_HASHED_BYTES = 64 << 20
_LONGEST_LINE_BYTES = 1 << 16


def gated(argv: Sequence[str]) -> list[str]:
    return ["sh", "-c", GATE, "sh", *argv]


class GatedProcess(TailedProcess):
    """One program in its scope, from the gate to its end.

    `ready_at` is the time (CLOCK_MONOTONIC) at which a line of output matched `ready_when`, else
    None. `main_pid` is the process whose exit ends the program.
    """

    def __init__(
        self, argv: Sequence[str], directory: Path | None, ready_when: str | None, sink: Sink | None
    ) -> None:
        super().__init__(argv, directory)
        self.ready_at: float | None = None
        self._pattern = re.compile(ready_when) if ready_when is not None else None
        self._sink = sink
        self._digest, self._hashed_bytes, self._output_bytes = hashlib.sha256(), 0, 0
        self._gate = threading.Event()
        self._is_finishing = False
        self._pidfd = os.pidfd_open(self.process.pid)
        self.main_pid = self.process.pid
        for name, pipe in zip(_STREAMS, (self.process.stdout, self.process.stderr), strict=True):
            self.start_thread(self._read_output, name, pipe)

    def wait_at_gate(self, deadline: float) -> bool:
        """Wait for the gate. Returns False if the program exits first, or at `deadline`."""
        while time.monotonic() < deadline and not self._gate.is_set() and not self.exits_within(0):
            self._gate.wait(0.01)
        return self._gate.wait(0)

    def follow(self, main_pid: int | None) -> None:
        """Watch this process for exit, if the started process is only a client of the program."""
        if main_pid is None or main_pid == self.main_pid:
            return
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(main_pid)
            os.close(self._pidfd)
            self._pidfd, self.main_pid = pidfd, main_pid

    def go(self, source: Source | None) -> None:
        """Open the gate. Standard input comes from `source`; without one it is closed."""
        self.write(b"go\n")
        if source is None:
            self.close_input()
            return
        self.start_thread(self._feed, source)

    def exits_within(self, seconds: float) -> bool:
        """Wait up to `seconds` for the exit. The process is not reaped, so its id is not reused."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(round(seconds * 1000)))

    @property
    def is_over(self) -> bool:
        return self._is_finishing or self.exits_within(0)

    def drain_output(self) -> None:
        """Read the rest of the output, up to 1 s per stream: a child may keep it open."""
        for thread in self.threads[: len(_STREAMS)]:
            thread.join(_JOIN_SECONDS)

    def finish(self) -> int:
        """Wait up to 10 s for the exit, then kill; return the exit status."""
        self._is_finishing = True
        status = self.end_process(b"it did not end when it was asked to\n")
        self.close_input()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        return status

    def stdout(self) -> Json | None:
        """Return size and hash of standard output; None while another process holds it open."""
        if self.threads[0].is_alive():
            return None
        hashed = {"hashed_bytes": self._hashed_bytes, "sha256": self._digest.hexdigest()}
        return {"bytes": self._output_bytes, **hashed}

    def _read_output(self, name: str, pipe: IO[bytes]) -> None:
        rest, whole = b"", list[bytes]()
        while piece := os.read(pipe.fileno(), _PIECE_BYTES):
            now = time.monotonic()
            if name == "stdout" and not self._gate.is_set():
                _, newline, piece = piece.partition(b"\n")
                if newline:
                    self._gate.set()
            if self._pattern:
                *whole, rest = (rest + piece).split(b"\n")
                if len(rest) > _LONGEST_LINE_BYTES:
                    whole, rest = [*whole, rest], b""
            self._take(name, piece, whole, now)
        self._take(name, b"", [rest] if rest else [], time.monotonic())

    def _take(self, name: str, piece: bytes, lines: list[bytes], now: float) -> None:
        if self.ready_at is None and self._pattern:
            texts = (line.decode(errors="replace") for line in lines)
            if any(self._pattern.search(text) for text in texts):
                self.ready_at = now
        if name == "stderr":
            self.tail.add(piece)
        else:
            self._output_bytes += len(piece)
            hashed = piece[: _MOST_HASHED_BYTES - self._hashed_bytes]
            self._hashed_bytes += len(hashed)
            self._digest.update(hashed)
        if self._sink and piece:
            # Without its controller, the program must not block on its output.
            with suppress(OSError):
                self._sink(name, piece)

    def _feed(self, source: Source) -> None:
        given = 0
        while piece := source(given):
            if not self.write(piece):
                return
            given += len(piece)
        self.close_input()
