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
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.errors import HostError
from pagecage.runner.frame_receiver import FrameReader

frames = st.lists(
    st.tuples(st.dictionaries(st.text(max_size=5), st.text(max_size=20)), st.binary(max_size=50))
)
cuts = st.lists(st.integers(1, 40), min_size=1)


@contextmanager
def pipe() -> Iterator[tuple[FrameReader, int]]:
    reading, writing = os.pipe()
    try:
        yield FrameReader(reading), writing
    finally:
        os.close(reading)


def wire(header: dict[str, Any], body: bytes = b"") -> bytes:
    length = {"length": len(body)} if body else {}
    return json.dumps({"frame": "x", **length, **header}).encode() + b"\n" + body


def read_all(reader: FrameReader) -> list[tuple[dict[str, Any], bytes]]:
    found = []
    while (frame := reader.next()) is not None:
        found.append(frame)
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
    sent: list[tuple[dict[str, str], bytes]], sizes: list[int]
) -> None:
    sent = [
        ({key: value for key, value in header.items() if key not in ("frame", "length")}, body)
        for header, body in sent
    ]
    with pipe() as (reader, writing):
        content = b"".join(wire(header, body) for header, body in sent)
        thread = threading.Thread(target=in_pieces, args=(content, sizes, writing))
        thread.start()
        found = read_all(reader)
        thread.join()
    assert [(header["frame"], body) for header, body in found] == [("x", body) for _, body in sent]
    assert all(
        header.items() >= wanted.items()
        for (header, _), (wanted, _) in zip(found, sent, strict=True)
    )


@given(st.integers(0, 200))
def test_a_frame_that_is_cut_off_is_dropped_and_those_before_it_kept(cut: int) -> None:
    first, second = wire({"n": "1"}, b"body\n{"), wire({"n": "2"}, b"x" * 80)
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
        os.write(writing, wire({}) + line)
        os.close(writing)
        assert reader.next() is not None
        with pytest.raises(HostError, match="instead of a frame") as caught:
            reader.next()
    assert line.strip().decode(errors="replace")[:5] in caught.value.message


@pytest.mark.parametrize("where", ["header", "body"])
def test_an_interruption_amid_a_frame_loses_nothing(where: str) -> None:
    """Ctrl-C arrives while the reader waits for the rest of a record that is larger than a pipe."""
    content = wire({"n": "y" * 150_000}) if where == "header" else wire({}, b"y" * 150_000)
    with pipe() as (reader, writing):
        writer = threading.Thread(target=write_with_a_signal, args=(content, writing))
        writer.start()
        with pytest.raises(KeyboardInterrupt):
            reader.next()
        header_and_body = reader.next()
        writer.join()
        assert reader.next() is None
    assert header_and_body is not None
    assert header_and_body[0].get("n", "") + header_and_body[1].decode() == "y" * 150_000


def write_with_a_signal(content: bytes, descriptor: int) -> None:
    """Write two thirds, send Ctrl-C to the main thread, write the rest."""
    part = 100_000
    os.write(descriptor, content[:part])
    time.sleep(0.2)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    time.sleep(0.2)
    os.write(descriptor, content[part:])
    os.close(descriptor)
