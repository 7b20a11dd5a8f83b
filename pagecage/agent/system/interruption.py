"""Being asked to end: it cuts a trial short, but never its cleanup, and never a record half-way."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Interrupted(BaseException):
    """The controller went away, or somebody asked the agent to end."""


class Interruption:
    """Turns the first signal into Interrupted, while held only afterwards. Later signals change nothing."""

    def __init__(self) -> None:
        self._held = False
        self._pending = False
        self._raised = False

    def listen(self) -> None:
        """Take over the signals that ask a process to end. Main thread only (signal(7))."""
        for number in _SIGNALS:
            signal.signal(number, self._take)

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        if self._held:
            self._pending = True
        else:
            self._raise_once()

    def _raise_once(self) -> None:
        if not self._raised:
            self._raised = True
            raise Interrupted

    @contextmanager
    def held(self) -> Iterator[None]:
        """Put off an interruption until the block is through, and with it every block around it that holds too."""
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before
        if self._pending and not self._held:
            self._raise_once()
