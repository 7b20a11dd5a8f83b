"""Frames that the agent sends: a line of JSON each, followed by bytes of a trace or of output."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import IO, Any

from pagecage.model.record import Record, record_to_json


class FrameStream:
    """A thread-safe writer of whole frames."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._lock = threading.Lock()

    def _write(self, header: dict[str, Any], body: bytes = b"") -> None:
        with self._lock:
            self._out.write(_frame(header, body))
            self._out.flush()

    def event(self, event: str, **details: Any) -> None:
        """Send a progress event, for display and for the sampling of the outer host."""
        self._write({"frame": "event", "event": event, **details})

    def facts(self, facts: dict[str, Any]) -> None:
        """Send the host's facts, once per connection."""
        self._write({"frame": "facts", "facts": facts})

    def trace(self, trial_id: str, attempt: int, name: str, path: Path) -> None:
        """Send one file of a collector."""
        body = path.read_bytes()
        header = {
            "frame": "trace",
            "trial_id": trial_id,
            "attempt": attempt,
            "name": name,
            "length": len(body),
        }
        self._write(header, body)

    def output(self, stream: str, piece: bytes) -> None:
        """Send a piece of a program's output; `stream` is stdout or stderr."""
        self._write({"frame": "output", "stream": stream, "length": len(piece)}, piece)

    def record(self, record: Record) -> None:
        """Send a trial's record. It always follows the trial's traces."""
        self._write({"frame": "record", "record": record_to_json(record)})


_WITHIN_A_TRIAL = ("phase", "go", "end")


class FileStream(FrameStream):
    """A writer of frames to a file that the controller fetches while it grows.

    The file grows only between trials and is then synced. So neither fetching nor write-back
    disturbs a measured part, and finished trials survive a crash of the host.
    """

    def _write(self, header: dict[str, Any], body: bytes = b"") -> None:
        with self._lock:
            self._out.write(_frame(header, body))
            if header["frame"] != "trace" and header.get("event") not in _WITHIN_A_TRIAL:
                self._out.flush()
                os.fsync(self._out.fileno())


def _frame(header: dict[str, Any], body: bytes) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode() + b"\n" + body
