"""Framed lines on standard output: events for progress, traces with their bytes, records."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import IO, Any

from pagecage.record import Record, record_to_json


class Stream:
    """Writes whole frames; safe to use from the sampler's and the watcher's threads."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._lock = threading.Lock()

    def _write(self, header: dict[str, Any], body: bytes = b"") -> None:
        with self._lock:
            self._out.write(json.dumps(header, separators=(",", ":")).encode() + b"\n" + body)
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
