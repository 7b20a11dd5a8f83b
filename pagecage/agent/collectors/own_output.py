"""The output of an own collector: its lines with their times of arrival, up to a bound."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pagecage.model.collectors.lines import LineError, parse_line
from pagecage.units import MIB

MOST_BYTES = 16 * MIB
"""Output after which a collector is ended, since reading more would disturb the trial."""
MOST_LINES = 100_000
"""Lines after which it is ended likewise. They are parsed when the trial is over."""
MOST_LINE_BYTES = 64 * 1024
"""A longer line is cut into pieces, none of which is a JSON object."""


@dataclass(frozen=True)
class ArrivedLine:
    """A line and its arrival (CLOCK_MONOTONIC); `data` is None if it is not a JSON object."""

    arrived: float
    text: str
    data: dict[str, Any] | None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the line as the trace has it."""
        kept = {"text": self.text} if self.data is None else {"line": self.data}
        return {"arrived": self.arrived, **kept}


def arrived_line(raw: bytes, arrived: float) -> ArrivedLine | None:
    """Return a line of the output; None for a blank one."""
    text = raw.decode(errors="replace").strip()
    if not text:
        return None
    try:
        return ArrivedLine(arrived, text, parse_line(text))
    except LineError as error:
        return ArrivedLine(arrived, text, None, str(error))


def write_trace(lines: Iterable[ArrivedLine], path: Path) -> None:
    """Write lines as a trace."""
    path.write_text(
        "".join(json.dumps(line.to_json(), separators=(",", ":")) + "\n" for line in lines)
    )


class OwnOutput:
    """A thread that reads the output to its end or to the bound.

    `on_flood` is called once, by the thread, when the bound is exceeded. What follows is dropped.
    """

    def __init__(self, stream: IO[bytes], on_flood: Callable[[], None]) -> None:
        self._stream, self._on_flood = stream, on_flood
        self._lines: list[tuple[float, bytes]] = []
        self._changed = threading.Condition()
        self.is_flood = False
        self.ended_at: float | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def lines(self) -> tuple[ArrivedLine, ...]:
        """Return the lines so far."""
        with self._changed:
            raw = list(self._lines)
        found = (arrived_line(line, arrived) for arrived, line in raw)
        return tuple(line for line in found if line is not None)

    def wait_for(self, mark: bytes, seconds: float) -> None:
        """Wait for a line that contains `mark`, or for the end of the output or of the time."""
        seen = 0

        def is_seen() -> bool:
            nonlocal seen
            new, seen = self._lines[seen:], len(self._lines)
            return self.ended_at is not None or any(mark in line for _, line in new)

        with self._changed:
            self._changed.wait_for(is_seen, seconds)

    def join(self, seconds: float) -> None:
        """Wait for the end of the output."""
        self._thread.join(seconds)

    def _read(self) -> None:
        left, number = MOST_BYTES, 0
        with open(self._stream.fileno(), "rb", closefd=False) as buffered:
            while raw := buffered.readline(MOST_LINE_BYTES):
                left, number = left - len(raw), number + 1
                if left < 0 or number > MOST_LINES:
                    self._flooded()
                    break
                with self._changed:
                    self._lines.append((time.monotonic(), raw))
                    self._changed.notify_all()
        with self._changed:
            self.ended_at = time.monotonic()
            self._changed.notify_all()

    def _flooded(self) -> None:
        self.is_flood = True
        self._on_flood()
