"""Requests, frames and answers: written, read back, and each wait with an end."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.protocol import (
    AnswerQueue,
    FrameStream,
    RunRequest,
    request_from_json,
    request_to_json,
)
from pagecage.model.record import record_from_json
from tests.builders.strategies import trials
from tests.fake_host.machine import frames_of
from tests.fixtures.records import make_record

words = st.text(max_size=10)
requests = st.builds(
    RunRequest,
    *[words] * 7,
    st.booleans(),
    st.dictionaries(words, words),
    st.dictionaries(words, words),
    st.lists(trials, max_size=2).map(tuple),
    st.dictionaries(words, st.integers(1, 9)),
)


@given(requests)
def test_a_request_travels_unchanged_and_in_one_line(request: RunRequest) -> None:
    line = json.dumps(request_to_json(request))
    assert "\n" not in line
    assert request_from_json(json.loads(line)) == request


@given(st.binary(max_size=300), st.text(max_size=20))
def test_any_bytes_travel_as_a_trace(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "trace.bin"
    path.write_bytes(body)
    out = io.BytesIO()
    stream = FrameStream(out)
    stream.event("go", trial_id=name)
    stream.trace("r1", 1, name, path)
    stream.record(make_record(error="a\nb"))
    event, trace, record = frames_of(out.getvalue())
    assert (event["event"], event["trial_id"]) == ("go", name)
    assert (trace["body"], trace["name"], trace["length"]) == (body, name, len(body))
    assert record_from_json(record["record"]).error == "a\nb"


class SlowPipe(io.BytesIO):
    """A pipe that takes a write in pieces and lets other threads run between them."""

    def write(self, data: Any) -> int:
        for place in range(0, len(data), 100):
            super().write(data[place : place + 100])
            time.sleep(0)
        return len(data)


def test_frames_of_many_threads_do_not_mix(tmp_path: Path) -> None:
    out = SlowPipe()
    stream = FrameStream(out)
    path = tmp_path / "trace"
    path.write_bytes(b"\n{" * 500)

    def write(number: int) -> None:
        for _ in range(50):
            stream.event("phase", number=number)
            stream.trace("r1", number, "x", path)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    frames = frames_of(out.getvalue())
    assert len(frames) == 4 * 50 * 2
    assert all(frame["body"] == b"\n{" * 500 for frame in frames if frame["frame"] == "trace")


def line(question: str, piece: bytes) -> bytes:
    answer = {"answers": question, "piece": base64.b64encode(piece).decode()}
    return json.dumps(answer).encode() + b"\n"


@given(st.text(), st.binary(max_size=100))
def test_a_piece_arrives_unchanged(question: str, piece: bytes) -> None:
    inbox = AnswerQueue()
    inbox.put_line(line(question, piece))
    assert inbox.take(question, lambda: False) == piece


def test_a_late_answer_is_not_taken_for_another() -> None:
    inbox = AnswerQueue()
    inbox.put_line(line("r1.1@0", b"late"))
    inbox.put_line(line("r2.1@0", b"ours"))
    assert inbox.take("r2.1@0", lambda: False) == b"ours"


def test_waiting_ends_when_it_is_over() -> None:
    began = time.monotonic()
    answers = iter((False, True))
    assert AnswerQueue().take("r1.1@0", lambda: next(answers)) is None
    assert time.monotonic() - began < 5


@given(st.binary(max_size=60))
def test_invalid_pieces_are_dropped(rubbish: bytes) -> None:
    inbox = AnswerQueue()
    inbox.put_line(rubbish)
    inbox.put_line(line("q", b"x"))
    assert inbox.take("q", lambda: False) == b"x"
