"""The last bytes of a process's standard error."""

from __future__ import annotations

import threading

_KEEP_BYTES = 2000


class StderrTail:
    """The last 2000 bytes, written by a reading thread and read by others."""

    def __init__(self) -> None:
        self._bytes = b""
        self._lock = threading.Lock()

    def add(self, text: bytes) -> None:
        """Append bytes, and drop the oldest."""
        with self._lock:
            self._bytes = (self._bytes + text)[-_KEEP_BYTES:]

    def lines(self) -> list[str]:
        """Return the lines without surrounding white space; the first may be cut off."""
        with self._lock:
            return self._bytes.decode(errors="replace").strip().splitlines()

    def last_line(self) -> str | None:
        """Return the last line; None without one."""
        lines = self.lines()
        return lines[-1] if lines else None
