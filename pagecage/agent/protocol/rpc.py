"""Questions of the agent to the controller, and the controller's answers."""

from __future__ import annotations

import base64
import json
import queue
import time
from collections.abc import Callable, Mapping
from typing import Any

from pagecage.agent.protocol.stream import FrameStream
from pagecage.errors import HostError

_POLL_SECONDS = 0.2


class AnswerQueue:
    """Answers of the controller, each with its question, so that late answers are recognised.

    Without a controller (`has_controller` is False) no question has an answer.
    """

    def __init__(self, *, has_controller: bool = True) -> None:
        self._has_controller = has_controller
        self._pieces: queue.Queue[tuple[str, bytes]] = queue.Queue()

    def put_line(self, line: bytes) -> None:
        """Add the answer in one line, `{"answers": question, "piece": base64}`.

        Ignore other lines.
        """
        try:
            answer = json.loads(line)
            piece = str(answer["answers"]), base64.b64decode(answer["piece"], validate=True)
        except (ValueError, LookupError, TypeError):
            return
        self._pieces.put(piece)

    def take(self, question: str, is_over: Callable[[], bool]) -> bytes | None:
        """Wait for the answer to a question.

        Return None without a controller, or when `is_over` is true.
        """
        while self._has_controller and not is_over():
            try:
                answers, piece = self._pieces.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if answers == question:
                return piece
        return None


_ANSWER_SECONDS = 30.0


def ask(
    stream: FrameStream, inbox: AnswerQueue, event: str, details: Mapping[str, Any]
) -> dict[str, Any]:
    """Send a question as an event and return the answer.

    Raises HostError if refused or not answered.
    """
    question = f"{event}@{time.monotonic_ns()}"
    deadline = time.monotonic() + _ANSWER_SECONDS
    stream.event(event, question=question, **details)
    piece = inbox.take(question, lambda: time.monotonic() > deadline)
    if piece is None:
        raise HostError(
            "no controller answers that can reach the machine around this guest",
            "use HOST=vm outside a fleet",
        )
    answer: dict[str, Any] = json.loads(piece)
    if "error" in answer:
        raise HostError(answer["error"], answer.get("hint", ""))
    return answer
