"""A running program that knows no handshake: let go at a moment of ours, listened to, fed, watched to its exit."""

from __future__ import annotations

import os
import re
import select
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from pagecage.process import PIPE, Process, TimeoutExpired, spawn

Sink = Callable[[str, bytes], None]
"""Takes what it prints, as it comes: the stream's name and a piece."""
Source = Callable[[int], bytes | None]
"""Gives the next piece of its standard input after so many bytes; empty at the end, None when nobody waits any more."""

# A shell in the scope that says it is there, waits for `go`, and becomes the program: what it takes to make the scope
# is not the program's time. `read` takes no byte beyond its line (POSIX), so what follows is the program's input.
GATE = 'echo; read -r go && exec "$@"'
_STREAMS = ("stdout", "stderr")
_PIECE_BYTES = 1 << 16
_LONGEST_LINE_BYTES = 1 << 16
_KEEP_BYTES = 2000
_GRACE_SECONDS = 10.0
_JOIN_SECONDS = 1.0


def gated(argv: Sequence[str]) -> list[str]:
    """The command that waits at the gate and then becomes `argv`."""
    return ["sh", "-c", GATE, "sh", *argv]


class LineSplitter:
    """Cuts pieces into lines; one that would grow without bound is cut."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, piece: bytes) -> list[bytes]:
        """The lines that this piece ends, without their newline."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _LONGEST_LINE_BYTES:
            whole, self._rest = [*whole, self._rest], b""
        return whole

    def end(self) -> list[bytes]:
        """What was left without a newline when the output ended."""
        return [self._rest] if self._rest else []


class GatedProcess:
    """One program in its scope, from the gate to its end. `ready_at` is when a line of its output matched."""

    def __init__(self, argv: Sequence[str], directory: Path | None, ready_when: str | None, sink: Sink | None) -> None:
        self.process: Process[bytes] = spawn(
            argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=directory, new_session=True
        )
        self.samples: list[dict[str, Any]] = []
        self.end: dict[str, Any] = {}
        self.ready_at: float | None = None
        self._pattern = re.compile(ready_when) if ready_when is not None else None
        self._sink = sink
        self._said = bytearray()
        self._saying = threading.Lock()
        self._gate = threading.Event()
        self._over = False
        self._exit = os.pidfd_open(self.process.pid)
        self.leader = self.process.pid
        pipes = zip(_STREAMS, (self.process.stdout, self.process.stderr), strict=True)
        self._threads = [threading.Thread(target=self._listen, args=pipe, daemon=True) for pipe in pipes]
        for thread in self._threads:
            thread.start()

    def wait_at_gate(self, deadline: float) -> bool:
        """Wait until it stands at the gate; False when it ended before, or monotonic `deadline` passed."""
        while time.monotonic() < deadline and not self._gate.is_set() and not self.exits_within(0):
            self._gate.wait(0.01)
        return self._gate.wait(0)

    def follow(self, leader: int | None) -> None:
        """Watch the process that stands at the gate for its exit: the program's own, where ours is its client."""
        if leader is None or leader == self.leader:
            return
        with suppress(ProcessLookupError):
            exit_of = os.pidfd_open(leader)
            os.close(self._exit)
            self._exit, self.leader = exit_of, leader

    def go(self, source: Source | None) -> None:
        """Open the gate, and feed it; without a source its input is at an end."""
        self._write(b"go\n")
        if source is None:
            self._close()
            return
        self._threads.append(threading.Thread(target=self._feed, args=(source,), daemon=True))
        self._threads[-1].start()

    def exits_within(self, seconds: float) -> bool:
        """Wait for its exit, so long at most; it is not reaped, so that its id stays its own."""
        poll = select.poll()
        poll.register(self._exit, select.POLLIN)
        return bool(poll.poll(round(seconds * 1000)))

    @property
    def is_over(self) -> bool:
        """Whether nobody need feed it any more."""
        return self._over or self.exits_within(0)

    def hear_out(self) -> None:
        """Take in what it said last, after its exit; a process that it left behind may keep its streams open."""
        for thread in self._threads[: len(_STREAMS)]:
            thread.join(_JOIN_SECONDS)

    def finish(self) -> int:
        """Wait for it a little, kill it if it stays, and return its exit status (negative: ended by that signal)."""
        self._over = True
        try:
            self.process.wait(_GRACE_SECONDS)
        except TimeoutExpired:
            self._note(b"it did not end when it was asked to\n")
        finally:
            if self.process.poll() is None:
                self.process.kill()
            status = self.process.wait()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
        self._close()
        if self._exit >= 0:
            os.close(self._exit)
            self._exit = -1
        return status

    def complaint(self) -> str | None:
        """The last line that it printed on standard error."""
        said = self.said()
        return said[-1] if said else None

    def said(self) -> list[str]:
        """The last lines that it printed on standard error."""
        with self._saying:
            return self._said.decode(errors="replace").strip().splitlines()

    def _listen(self, name: str, pipe: IO[bytes]) -> None:
        lines = LineSplitter()
        while piece := os.read(pipe.fileno(), _PIECE_BYTES):
            now = time.monotonic()
            if name == "stdout" and not self._gate.is_set():
                _, newline, piece = piece.partition(b"\n")
                if newline:
                    self._gate.set()
            self._take(name, piece, lines.take(piece) if self._pattern else [], now)
        self._take(name, b"", lines.end(), time.monotonic())

    def _take(self, name: str, piece: bytes, lines: list[bytes], now: float) -> None:
        if self.ready_at is None and self._pattern:
            texts = (line.decode(errors="replace") for line in lines)
            if any(self._pattern.search(text) for text in texts):
                self.ready_at = now
        if name == "stderr":
            self._note(piece)
        if self._sink and piece:
            with suppress(OSError):  # the controller has gone; the program must still be read
                self._sink(name, piece)

    def _note(self, text: bytes) -> None:
        with self._saying:
            self._said = (self._said + text)[-_KEEP_BYTES:]

    def _feed(self, source: Source) -> None:
        given = 0
        while piece := source(given):
            if not self._write(piece):
                return
            given += len(piece)
        self._close()

    def _write(self, data: bytes) -> bool:
        assert self.process.stdin is not None
        try:
            while data:
                data = data[self.process.stdin.write(data) or 0 :]
        except (BrokenPipeError, ValueError):  # it reads no more
            return False
        return True

    def _close(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
