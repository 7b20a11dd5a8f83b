"""Frames of an agent, read within bounds and checked.

Everything that an agent sends may be wrong: programs in a guest run as root there and can replace
the agent. So a frame is a value of the types below, about a trial that was asked for, or the
session ends with BadFrame.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagecage.errors import HostError, PagecageError
from pagecage.model.json_codec import (
    BOOT_ID,
    DISK,
    TRACE,
    TRIAL_ID,
    WORD,
    Json,
    JsonView,
    from_json,
    from_line,
    is_identifier,
)
from pagecage.model.record import MOST_RECORD_BYTES
from pagecage.model.run_files import MOST_TRACE_BYTES

MOST_EVENT_BYTES = 64 << 10
"""The longest event."""
MOST_PIECE_BYTES = 1 << 20
"""The longest piece of a program's output."""
_READ_BYTES = 1 << 16
_KINDS: Mapping[str, JsonView] = {
    "event": {},
    "facts": {"facts": JsonView},
    "trace": {"trial_id": TRIAL_ID, "attempt": int, "name": TRACE, "length": int},
    "output": {"stream": str, "length": int},
    "record": {"record": JsonView},
}
_EVENTS: Mapping[str, JsonView] = {
    "trial": {"trial_id": TRIAL_ID, "attempt": int},
    "phase": {"trial_id": TRIAL_ID, "phase": WORD},
    "go": {"trial_id": TRIAL_ID},
    "end": {"trial_id": TRIAL_ID},
    "step": {"text": str},
    "notice": {"text": str},
    "swept": {"unit": str},
    "error": {"message": str, "hint": str},
    "input_wanted": {"question": str, "offset": int},
    "throttle_wanted": {"question": str, "limits": Mapping[str, int]},
    "volume_wanted": {"question": str, "command": JsonView, "disk": DISK},
}
_LENGTHS = {"trace": MOST_TRACE_BYTES, "output": MOST_PIECE_BYTES}


class BadFrame(HostError):
    """The agent sent what no agent of this version sends, so it is not believed any further."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the host sent {what}",
            "make sure that its login shell prints nothing; if it does not, do not trust this host",
        )


@dataclass(frozen=True)
class Frame:
    """The header of a frame with a piece of its body, of which `left_bytes` follow."""

    header: JsonView
    piece: bytes = b""
    left_bytes: int = 0


class FrameReader:
    """Reads frames from a pipe or a file that grows, and goes on after an interruption."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._searched = 0
        self._header: Json | None = None
        self._left_bytes = 0
        self._patience_seconds: float | None = None

    def expect_end(self, patience_seconds: float) -> None:
        """From now on, take so long a silence for the end of the stream: the host hangs."""
        self._patience_seconds = patience_seconds

    def next(self) -> Frame | None:
        """Return the next frame or piece; None at the end. Raises BadFrame for anything else."""
        if self._header is None:
            line = self._line()
            if line is None:
                return None
            header = parsed_header(line)
            self._header, self._left_bytes = header, header.get("length", 0)
        wanted = min(self._left_bytes, MOST_PIECE_BYTES)
        while len(self._buffer) < wanted:
            if not self._read_on():
                return None
        header, piece = self._header, bytes(self._buffer[:wanted])
        del self._buffer[:wanted]
        self._left_bytes -= wanted
        self._header = header if self._left_bytes else None
        return Frame(header, piece, self._left_bytes)

    def _line(self) -> bytes | None:
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            if self._searched > MOST_RECORD_BYTES:
                raise BadFrame(f"a line of more than {MOST_RECORD_BYTES >> 20} MiB")
            if not self._read_on():
                return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line

    def _read_on(self) -> bool:
        if not select.select([self._descriptor], [], [], self._patience_seconds)[0]:
            return False
        piece = os.read(self._descriptor, _READ_BYTES)
        self._buffer += piece
        return bool(piece)


def parsed_header(line: bytes) -> Json:
    """Return the header in a line. Raises BadFrame for anything else."""
    text = line[:80].decode(errors="replace")
    try:
        header: Json = from_line(line)
        kind = header["frame"]
        keys = {"frame": str, **_KINDS[kind]}
        if kind == "event":
            keys |= {"event": str, **_EVENTS[header["event"]]}
    except (ValueError, TypeError, KeyError):
        raise BadFrame(f"{text!r} instead of a frame") from None
    if kind != "record" and len(line) > (
        MOST_RECORD_BYTES if kind == "facts" else MOST_EVENT_BYTES
    ):
        raise BadFrame(f"a frame `{kind}` of {len(line)} bytes")
    if header.keys() != keys.keys() or not all(_fits(header[key], keys[key]) for key in keys):
        raise BadFrame(f"{text!r}, which is not a frame `{kind}`")
    if not 0 <= header.get("length", 0) <= _LENGTHS.get(kind, 0):
        raise BadFrame(f"a frame `{kind}` of {header['length']} bytes")
    boot_id = header.get("facts", {}).get("boot_id")
    if boot_id is not None and not is_identifier(boot_id, BOOT_ID):
        raise BadFrame(f"facts with the boot_id {str(boot_id)[:80]!r}, which is not a UUID")
    return header


def _fits(value: Any, kind: Any) -> bool:
    if hasattr(kind, "fullmatch"):
        return is_identifier(value, kind)
    try:
        from_json(kind, value)
    except PagecageError:
        return False
    return True
