"""Questions of the agent's to the controller, which sees the machine around this one."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from pagecage.agent.inbox import Inbox
from pagecage.agent.stream import Stream
from pagecage.errors import HostError

_ANSWER_SECONDS = 30.0


def ask(stream: Stream, inbox: Inbox, event: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to one question, an event with details. Raises HostError with a refusal, or when none comes."""
    question = f"{event}@{time.monotonic_ns()}"
    deadline = time.monotonic() + _ANSWER_SECONDS
    stream.event(event, question=question, **details)
    piece = inbox.take(question, lambda: time.monotonic() > deadline)
    if piece is None:
        raise HostError("no controller answers, which sees the machine around this one", "run it on HOST=vm by itself")
    answer: dict[str, Any] = json.loads(piece)
    if "error" in answer:
        raise HostError(answer["error"], answer.get("mend", ""))
    return answer
