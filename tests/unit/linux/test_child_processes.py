"""Holding an interruption, also in nested blocks."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from pagecage.linux.child_processes import Interrupted, Interruption


@pytest.fixture
def interruption() -> Iterator[Interruption]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    made = Interruption()
    made.listen()
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


def test_it_is_raised_after_the_outermost_block(interruption: Interruption) -> None:
    reached = []

    def nested() -> None:
        with interruption.held():
            with interruption.held():
                os.kill(os.getpid(), signal.SIGTERM)
                reached.append("inner")
            reached.append("outer")

    with pytest.raises(Interrupted):
        nested()
    assert reached == ["inner", "outer"]


def test_it_is_raised_at_once_outside_a_block(interruption: Interruption) -> None:
    with interruption.held():
        pass
    with pytest.raises(Interrupted):
        os.kill(os.getpid(), signal.SIGTERM)
