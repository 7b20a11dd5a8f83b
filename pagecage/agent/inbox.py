"""What the controller sends after its request: pieces of a program's standard input, each because it was asked for."""

from __future__ import annotations

import base64
import json
import queue
from collections.abc import Callable

_LOOK_SECONDS = 0.2


class Inbox:
    """Pieces by the question that they answer, so that one that came too late is not taken for another's.

    Where nobody `is_heard`, as by an agent that works with nobody at the other end, no question has an answer.
    """

    def __init__(self, *, is_heard: bool = True) -> None:
        self._is_heard = is_heard
        self._pieces: queue.Queue[tuple[str, bytes]] = queue.Queue()

    def put_line(self, line: bytes) -> None:
        """Keep the piece of one line, `{"answers": question, "piece": base64}`; what is none is dropped."""
        try:
            told = json.loads(line)
            piece = str(told["answers"]), base64.b64decode(told["piece"], validate=True)
        except (ValueError, LookupError, TypeError):
            return
        self._pieces.put(piece)

    def take(self, question: str, is_over: Callable[[], bool]) -> bytes | None:
        """Wait for the answer to a question; None when there is none, or `is_over` says that nobody waits any more."""
        while self._is_heard and not is_over():
            try:
                answers, piece = self._pieces.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            if answers == question:
                return piece
        return None
