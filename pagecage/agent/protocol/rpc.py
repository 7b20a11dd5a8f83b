"""What the controller sends after its request: pieces of a program's standard input, each because it was asked for."""

from __future__ import annotations

import base64
import json
import queue
import time
from collections.abc import Callable, Mapping
from typing import Any

from pagecage.agent.protocol.stream import FrameStream
from pagecage.errors import HostError

_LOOK_SECONDS = 0.2


class AnswerQueue:
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


_ANSWER_SECONDS = 30.0


def ask(stream: FrameStream, inbox: AnswerQueue, event: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to one question, an event with details. Raises HostError with a refusal, or when none comes."""
    question = f"{event}@{time.monotonic_ns()}"
    deadline = time.monotonic() + _ANSWER_SECONDS
    stream.event(event, question=question, **details)
    piece = inbox.take(question, lambda: time.monotonic() > deadline)
    if piece is None:
        raise HostError("no controller answers, which sees the machine around this one", "run it on HOST=vm by itself")
    answer: dict[str, Any] = json.loads(piece)
    if "error" in answer:
        raise HostError(answer["error"], answer.get("hint", ""))
    return answer
