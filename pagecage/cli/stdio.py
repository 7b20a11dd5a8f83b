"""A replayed program's standard streams: what it prints comes out of ours, what it wants to read comes from ours."""

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
    """Whether standard input can be read again for every trial: a regular file, not a pipe or a terminal."""
    try:
        return stat.S_ISREG(os.fstat(_STDIN).st_mode)
    except OSError:
        return False


class StdioRelay:
    """A campaign's listener before another: it keeps output and input to itself and hands on every other event."""

    def __init__(self, listener: Listener, stdout: int) -> None:
        self._listener, self._outputs = listener, {"stdout": stdout, "stderr": _STDERR}

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take one event."""
        match event["event"]:
            case "output":
                self._write(event["stream"], event["piece"])
            case "input_wanted":  # in a thread, because who sits at a terminal may take his time
                threading.Thread(target=_give, args=(event["answer"], event["offset"]), daemon=True).start()
            case _:
                self._listener(event)

    def _write(self, stream: str, piece: bytes) -> None:
        descriptor = self._outputs[stream]
        with suppress(BrokenPipeError):  # `| head` has seen enough; the program is still measured to its end
            while piece:
                piece = piece[os.write(descriptor, piece) :]


def _give(answer: Callable[[bytes], None], offset: int) -> None:
    """The next piece; of a file the one at this place, so that each trial has all of it."""
    try:
        piece = os.pread(_STDIN, _PIECE_BYTES, offset) if input_is_file() else os.read(_STDIN, _PIECE_BYTES)
    except OSError:
        piece = b""
    answer(piece)
