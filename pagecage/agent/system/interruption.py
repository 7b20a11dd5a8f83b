"""Termination on a signal, which ends a trial but not its cleanup or the writing of its record."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Interrupted(BaseException):
    """The controller is gone, or the agent received a signal to end."""


class Interruption:
    """Raises Interrupted on the first signal, after the block that holds it.

    Later signals have no effect.
    """

    def __init__(self) -> None:
        self._held = False
        self._pending = False
        self._raised = False

    def listen(self) -> None:
        """Handle the signals that ask a process to end. Main thread only (signal(7))."""
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
        """Defer an interruption to the end of the outermost block that holds it."""
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before
        if self._pending and not self._held:
            self._raise_once()
