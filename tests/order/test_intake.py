"""Frames from a pipe: complete or not at all, however they arrive and whatever interrupts the
reading.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.errors import HostError
from pagecage.runner.frames import FrameReader

frames = st.lists(
    st.tuples(st.text(max_size=20), st.just(b""))
    | st.tuples(st.just("own.jsonl"), st.binary(min_size=1, max_size=50))
)
cuts = st.lists(st.integers(1, 40), min_size=1)


@contextmanager
def pipe() -> Iterator[tuple[FrameReader, int]]:
    reading, writing = os.pipe()
    try:
        yield FrameReader(reading), writing
    finally:
        os.close(reading)


def wire(text: str, body: bytes = b"") -> bytes:
    """Return an event with a text, or with a body a trace of that name."""
    event = {"frame": "event", "event": "step", "text": text}
    trace = {"frame": "trace", "trial_id": "r1", "attempt": 1, "name": text, "length": len(body)}
    return json.dumps(trace if body else event).encode() + b"\n" + body


def read_all(reader: FrameReader) -> list[tuple[str, bytes]]:
    """Return text and body of all frames that arrived whole."""
    found, body = [], b""
    while (frame := reader.next()) is not None:
        body += frame.piece
        if not frame.left_bytes:
            found.append((frame.header.get("text", frame.header.get("name", "")), body))
            body = b""
    return found


def in_pieces(content: bytes, sizes: list[int], descriptor: int) -> None:
    """Write in pieces of these sizes, repeatedly, and close."""
    place = number = 0
    while place < len(content):
        size = sizes[number % len(sizes)]
        os.write(descriptor, content[place : place + size])
        place, number = place + size, number + 1
    os.close(descriptor)


@given(frames, cuts)
def test_frames_come_whole_however_they_are_cut(
    sent: list[tuple[str, bytes]], sizes: list[int]
) -> None:
    with pipe() as (reader, writing):
        content = b"".join(wire(text, body) for text, body in sent)
        thread = threading.Thread(target=in_pieces, args=(content, sizes, writing))
        thread.start()
        found = read_all(reader)
        thread.join()
    assert found == sent


@given(st.integers(0, 200))
def test_a_frame_that_is_cut_off_is_dropped_and_those_before_it_kept(cut: int) -> None:
    first, second = wire("a.jsonl", b"body\n{"), wire("b.jsonl", b"x" * 80)
    with pipe() as (reader, writing):
        os.write(writing, first + second[: min(cut, len(second) - 1)])
        os.close(writing)
        found = read_all(reader)
    assert [body for _, body in found] == [b"body\n{"]


@pytest.mark.parametrize(
    "line",
    [b"Welcome!\n", b"12\n", b"[]\n", b"null\n", b"{}\n", b'{"frame": ""}\n', b"\n", b"\xff\xfe\n"],
)
def test_what_is_no_frame_is_named(line: bytes) -> None:
    with pipe() as (reader, writing):
        os.write(writing, wire("before") + line)
        os.close(writing)
        assert reader.next() is not None
        with pytest.raises(HostError, match="instead of a frame") as caught:
            reader.next()
    assert line.strip().decode(errors="replace")[:5] in caught.value.message


@pytest.mark.parametrize("where", ["header", "body"])
def test_an_interruption_amid_a_frame_loses_nothing(where: str) -> None:
    """Ctrl-C arrives while the reader waits for the rest of a record that is larger than a pipe."""
    facts = json.dumps({"frame": "facts", "facts": {"n": "y" * 150_000}}).encode() + b"\n"
    content = facts if where == "header" else wire("a.jsonl", b"y" * 150_000)
    with pipe() as (reader, writing):
        writer = threading.Thread(target=write_with_a_signal, args=(content, writing))
        writer.start()
        with pytest.raises(KeyboardInterrupt):
            reader.next()
        frame = reader.next()
        writer.join()
        assert reader.next() is None
    assert frame is not None
    assert frame.header.get("facts", {}).get("n", "") + frame.piece.decode() == "y" * 150_000


def write_with_a_signal(content: bytes, descriptor: int) -> None:
    """Write two thirds, send Ctrl-C to the main thread, write the rest."""
    part = 100_000
    os.write(descriptor, content[:part])
    time.sleep(0.2)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    time.sleep(0.2)
    os.write(descriptor, content[part:])
    os.close(descriptor)
