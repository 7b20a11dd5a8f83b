"""Streams of a hostile agent: correct ones that were mutated, and ones made by a grammar."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from pagecage.errors import PagecageError
from pagecage.hosts.host import MachineState
from pagecage.model.json_codec import Json
from pagecage.model.plan import Plan
from pagecage.runner.frame_receiver import FrameReader, FrameReceiver
from pagecage.runner.run_folder import RunFolder
from tests.fake_host import scripted_agent
from tests.fake_host.hosts import TestHost

OUT = "/../../../../outside"
BOOT_ID = "00000000-0000-4000-8000-000000000001"
STATE = MachineState(None, None, False, {})
Piece = tuple[Json, bytes]


def correct_stream(plan: Plan) -> list[Piece]:
    """Return the frames of an agent that runs all trials of a plan."""
    request = {"run_id": plan.run_id, "plan_sha256": plan.sha256, "host": "vm"}
    frames: list[Piece] = [({"frame": "facts", "facts": {"boot_id": BOOT_ID}}, b"")]
    for trial in plan.trials:
        about = {"trial_id": trial.trial_id}
        events = ({"event": "trial", "attempt": 1}, {"event": "phase", "phase": "run"})
        ends = ({"event": "go"}, {"event": "end"})
        frames += [({"frame": "event", **event, **about}, b"") for event in (*events, *ends)]
        trace = b'{"t": 1.0}\n'
        named = {"attempt": 1, "name": "sampler.jsonl", "length": len(trace)}
        frames.append(({"frame": "trace", **about, **named}, trace))
        record = scripted_agent.record(request, {**vars(trial)}, 1, "ok")
        frames.append(({"frame": "record", "record": record}, b""))
    return frames


def wire(frames: list[Piece]) -> bytes:
    return b"".join(json.dumps(header).encode() + b"\n" + body for header, body in frames)


values = st.one_of(
    st.sampled_from(
        [
            *(OUT, f"r1{OUT}", "..", ".", "", "/etc/passwd", "a/b", "x\n", "\0", "\x1b[2J", "é"),
            *(-1, 0, 2**63, 10**400, 1e308, True, None, [], {}, [[[]]], {"a": {"a": {}}}),
            *("sampler.jsonl", "iostat.json", "records.jsonl", "plan.json", "record", "event"),
        ]
    ),
    st.text(max_size=12),
    st.integers(),
    st.recursive(st.none() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)),
)
"""Values that are in the wrong place wherever they are."""
KEYS: Mapping[str, str] = {
    "facts": "facts",
    "trace": "trial_id attempt name length",
    "output": "stream length",
    "record": "record",
    "trial": "trial_id attempt",
    "phase": "trial_id phase",
    "go": "trial_id",
    "end": "trial_id",
    "step": "text",
    "notice": "text",
    "swept": "unit",
    "error": "message hint",
    "input_wanted": "question offset",
    "throttle_wanted": "question limits",
    "volume_wanted": "question command disk",
}
"""The keys of each kind of frame, and of each event."""
names = ["frame", "event", *sorted({key for keys in KEYS.values() for key in keys.split()})]


@st.composite
def mutations(draw: st.DrawFn, frames: list[Piece]) -> bytes:
    """Return a correct stream with some frames changed, moved, cut, doubled or left out."""
    changed = [(json.loads(json.dumps(header)), body) for header, body in frames]
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(changed) - 1))
        header, body = changed[place]
        match draw(st.sampled_from(("value", "value", "inner", "key", "move", "twice", "drop"))):
            case "value":
                header[draw(st.sampled_from(sorted(header)))] = draw(values)
            case "inner" if isinstance(header.get("record"), dict):
                header["record"][draw(st.sampled_from(sorted(header["record"])))] = draw(values)
            case "key":
                header[draw(st.sampled_from(names))] = draw(values)
            case "move":
                changed.append(changed.pop(place))
            case "twice":
                changed.insert(place, (header, body))
            case "drop" if len(changed) > 1:
                changed.pop(place)
    raw = bytearray(wire(changed))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(raw) - 1))
        raw[at] = draw(st.integers(0, 255))
    return bytes(raw[: draw(st.integers(0, len(raw)) | st.just(len(raw)))])


@st.composite
def grammatical(draw: st.DrawFn, plan: Plan) -> bytes:
    """Return frames of all kinds, whose values are mostly those that a correct agent could send."""
    right: Mapping[str, st.SearchStrategy[Any]] = {
        "trial_id": st.sampled_from([trial.trial_id for trial in plan.trials]),
        "attempt": st.sampled_from((1, 1, 1, 0, 2)),
        "name": st.sampled_from(("sampler.jsonl", "iostat.json", "sar.bin", f"a{OUT}.json")),
        "length": st.integers(0, 40),
        "facts": st.fixed_dictionaries({"boot_id": st.just(BOOT_ID) | values}),
        "record": st.dictionaries(st.text(max_size=4), values, max_size=2),
        "limits": st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
        "command": st.dictionaries(st.text(max_size=4), values, max_size=2),
        "disk": st.sampled_from(("data", "wal", "x/y")),
        "offset": st.integers(),
    }
    raw = b""
    for kind in ["trial", *draw(st.lists(st.sampled_from(sorted(KEYS)), max_size=8))]:
        is_frame = kind in ("facts", "trace", "output", "record")
        header: Json = {"frame": kind} if is_frame else {"frame": "event", "event": kind}
        for key in KEYS[kind].split():
            usual = right.get(key, st.text(max_size=12))
            header[key] = draw(usual if draw(st.integers(0, 9)) else values)
        if not draw(st.integers(0, 9)):
            header[draw(st.sampled_from(names))] = draw(values)
        raw += json.dumps(header).encode() + b"\n"
        length = header.get("length")
        if isinstance(length, int) and 0 <= length <= 40 and draw(st.integers(0, 9)):
            raw += b"t" * length
        else:
            raw += b"t" * draw(st.integers(0, 40))
    return raw


@contextmanager
def agent_that_sends(pieces: Iterator[bytes]) -> Iterator[int]:
    """Yield the end of a pipe into which a thread writes, until the other end is closed."""
    reading, writing = os.pipe()

    def write() -> None:
        try:
            for piece in pieces:
                os.write(writing, piece)
        except OSError:
            pass
        os.close(writing)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield reading
    finally:
        os.close(reading)
        thread.join()


def receive(
    pieces: Iterator[bytes], folder: RunFolder, plan: Plan, heard: list[Any] | None = None
) -> str:
    """Receive a stream as a campaign does, and return the error, or "" if there was none."""
    heard = [] if heard is None else heard
    host = TestHost((), "/nowhere")
    with agent_that_sends(pieces) as descriptor:
        frames = FrameReader(descriptor)
        receiver = FrameReceiver(frames, None, folder, host, STATE, plan, heard.append)
        try:
            receiver.receive_all()
            receiver.record_interrupted("it ended")
        except PagecageError as error:
            return error.message
        finally:
            receiver.close()
    return ""


def tree(top: Path) -> dict[str, bytes | str]:
    """Return all paths below a folder, with the contents of files and the targets of links."""
    return {
        str(path.relative_to(top)): path.readlink().as_posix()
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else "folder"
        for path in sorted(top.rglob("*"))
    }


def endless(kind: str, plan: Plan, seed: int = 1) -> Iterator[bytes]:
    """Yield a stream without an end."""
    trial_id = plan.trials[0].trial_id
    begin = {"frame": "event", "event": "trial", "trial_id": trial_id, "attempt": 1}
    yield wire([(begin, b"")])
    chance = random.Random(seed)
    step = {"frame": "event", "event": "step", "text": "still here"}
    phase = {"frame": "event", "event": "phase", "trial_id": trial_id, "phase": "run"}
    trace = {"frame": "trace", "trial_id": trial_id, "attempt": 1, "name": "sampler.jsonl"}
    makers: Mapping[str, Callable[[], bytes]] = {
        "line": lambda: b"x" * 65536,
        "nested": lambda: b"[" * 65536,
        "events": lambda: wire([(step, b"")] * 500),
        "phases": lambda: wire([(phase, b"")] * 500),
        "noise": lambda: chance.randbytes(65536).replace(b"\n", b"x"),
        "longer": lambda: wire([({**trace, "length": 4}, b"t" * 65536)]),
        "traces": lambda: wire([({**trace, "length": 65536}, b"t" * 65536)]),
    }
    while True:
        yield makers[kind]()
