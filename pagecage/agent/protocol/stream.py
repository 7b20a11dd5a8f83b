"""Framed lines on standard output: events for progress, traces with their bytes, records."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import IO, Any

from pagecage.model.record import Record, record_to_json


class FrameStream:
    """Writes whole frames; safe to use from the sampler's and the watcher's threads."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._lock = threading.Lock()

    def _write(self, header: dict[str, Any], body: bytes = b"") -> None:
        with self._lock:
            self._out.write(_frame(header, body))
            self._out.flush()

    def event(self, event: str, **details: Any) -> None:
        """Progress: nothing depends on it but what a person sees, and the outer host's sampling."""
        self._write({"frame": "event", "event": event, **details})

    def facts(self, facts: dict[str, Any]) -> None:
        """What the host is; once per connection."""
        self._write({"frame": "facts", "facts": facts})

    def trace(self, trial_id: str, attempt: int, name: str, path: Path) -> None:
        """One collector's file, whole."""
        body = path.read_bytes()
        header = {"frame": "trace", "trial_id": trial_id, "attempt": attempt, "name": name, "length": len(body)}
        self._write(header, body)

    def output(self, stream: str, piece: bytes) -> None:
        """What a program printed, as it came; `stream` is stdout or stderr."""
        self._write({"frame": "output", "stream": stream, "length": len(piece)}, piece)

    def record(self, record: Record) -> None:
        """A trial's record; always after its traces."""
        self._write({"frame": "record", "record": record_to_json(record)})


_WITHIN_A_TRIAL = ("phase", "go", "end")


class FileStream(FrameStream):
    """Writes into a file that somebody fetches while it grows.

    It grows between trials alone and is forced to the disk then, so that neither the fetching nor a late write-back
    falls into a measured part, and what was finished survives the host's crash.
    """

    def _write(self, header: dict[str, Any], body: bytes = b"") -> None:
        with self._lock:
            self._out.write(_frame(header, body))
            if header["frame"] != "trace" and header.get("event") not in _WITHIN_A_TRIAL:
                self._out.flush()
                os.fsync(self._out.fileno())


def _frame(header: dict[str, Any], body: bytes) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode() + b"\n" + body
