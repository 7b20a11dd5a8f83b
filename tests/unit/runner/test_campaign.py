"""An agent that answers no more, or has ended before it was asked."""

from __future__ import annotations

import os
import sys
import time

import pytest

from pagecage.process import PIPE, spawn
from pagecage.runner.campaign import send_request
from pagecage.runner.frame_receiver import Frame, FrameReader
from tests.builders.known import known


def test_a_long_silence_is_the_end_of_a_stream_that_should_end() -> None:
    reading, writing = os.pipe()
    os.write(writing, b'{"frame": "event", "event": "step", "text": "."}\n{"frame": "re')
    frames = FrameReader(reading)
    frames.expect_end(0.1)
    began = time.monotonic()
    assert frames.next() == Frame({"frame": "event", "event": "step", "text": "."})
    assert frames.next() is None
    assert 0.1 <= time.monotonic() - began < 5
    os.close(reading)
    os.close(writing)


def test_an_agent_that_could_not_be_asked_is_told_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = "import os, sys; os.close(0) if sys.argv[1:] else sys.stdin.read()"
    process = spawn([sys.executable, "-c", program, "closes"], stdin=PIPE)
    process.wait()
    monkeypatch.setattr("pagecage.runner.campaign.request_to_json", lambda _: {})
    send_request(process, None)  # type: ignore[arg-type]
    assert known(process.stdin).closed
