"""Pieces of standard input: each answers its question, and no wait is endless."""

from __future__ import annotations

import base64
import json
import time

from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.protocol import AnswerQueue


def line(question: str, piece: bytes) -> bytes:
    return (
        json.dumps({"answers": question, "piece": base64.b64encode(piece).decode()}).encode()
        + b"\n"
    )


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
