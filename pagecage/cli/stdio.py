"""Relay between a replayed program's standard streams and those of pagecage."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

Listener = Callable[[Mapping[str, Any]], None]
_PIECE_BYTES = 1 << 16
_STDIN, _STDERR = 0, 2


def input_is_file() -> bool:
    """Return whether standard input is a file, which every trial can read from its beginning."""
    try:
        return stat.S_ISREG(os.fstat(_STDIN).st_mode)
    except OSError:
        return False


class StdioRelay:
    """A campaign's listener that handles output and input, and passes other events on."""

    def __init__(self, listener: Listener, stdout: int) -> None:
        self._listener, self._outputs = listener, {"stdout": stdout, "stderr": _STDERR}

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Handle one event."""
        match event["event"]:
            case "output":
                self._write(event["stream"], event["piece"])
            case "input_wanted":  # in a thread, because reading from a terminal may block
                threading.Thread(
                    target=_answer, args=(event["answer"], event["offset"]), daemon=True
                ).start()
            case _:
                self._listener(event)

    def _write(self, stream: str, piece: bytes) -> None:
        descriptor = self._outputs[stream]
        with suppress(
            BrokenPipeError
        ):  # the reader, such as `| head`, has ended; the trial goes on
            while piece:
                piece = piece[os.write(descriptor, piece) :]


def _answer(answer: Callable[[bytes], None], offset: int) -> None:
    """Answer with the next piece of standard input; of a file, with the piece at `offset`."""
    try:
        piece = (
            os.pread(_STDIN, _PIECE_BYTES, offset)
            if input_is_file()
            else os.read(_STDIN, _PIECE_BYTES)
        )
    except OSError:
        piece = b""
    answer(piece)
