"""The handshake with a workload: its messages and its process."""

from __future__ import annotations

import json
import math
import queue
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, Any, NoReturn

from pagecage.agent.programs.gated_process import TailedProcess
from pagecage.agent.responses import is_finite
from pagecage.model.json_codec import Json, JsonView
from pagecage.process import wait_until

PROTOCOL_VERSION = 1
"""The version that this agent speaks. The libraries in workloads/ state the same."""
LONGEST_LINE_BYTES = 1 << 20
_TYPES = ("ready", "sample", "stopped", "end")
_SHOWN_CHARACTERS = 60
_POLL_SECONDS = 0.005
_AMOUNTS = ("seconds", "check_seconds", "bytes", "blocks", "distinct_bytes", "covered_fraction")


class HandshakeBreach(Exception):
    """A line that breaks the protocol. The message is a sentence whose subject is the workload."""


def parse_message(line: bytes) -> Json:
    """Return the message of one line without its newline. Raises HandshakeBreach."""
    if len(line) >= LONGEST_LINE_BYTES:
        raise HandshakeBreach("it printed a line of more than 1 MiB")
    try:
        message = json.loads(line.decode(), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        shown = _cut(repr(line.decode(errors="replace")))
        raise HandshakeBreach(f"it printed a line that is not a JSON object: {shown}")
    kind = message.get("type")
    if kind not in _TYPES:
        reason = f"it printed a message of type {_cut(repr(kind))}, and the handshake has only"
        raise HandshakeBreach(f"{reason} {', '.join(_TYPES)}")
    return message


class Conversation:
    """The messages of one workload so far. `is_going` is set by the agent when it says `go`."""

    def __init__(self) -> None:
        self.ready: Json = {}
        self.samples: list[Json] = []
        self.end: Json = {}
        self.is_going = False
        self._seen: set[str] = set()

    @property
    def has_ended(self) -> bool:
        return "end" in self._seen

    def take(self, message: JsonView) -> None:
        """Add a message. Raises HandshakeBreach if its place or one of its keys is wrong."""
        kind = message["type"]
        faults = {
            "twice": kind in self._seen - {"sample"},
            "after `end`": "end" in self._seen,
            "before `ready`": kind != "ready" and "ready" not in self._seen,
            "without waiting for `go`": kind != "ready" and not self.is_going,
        }
        if fault := next((fault for fault, is_so in faults.items() if is_so), None):
            raise HandshakeBreach(f"it printed `{kind}` {fault}")
        content = {key: value for key, value in message.items() if key != "type"}
        if kind == "ready":
            _check_ready(content)
            self.ready = content
        elif kind == "sample":
            self.samples.append(content)
        elif kind == "end":
            _check_end(content)
            self.end = content
        self._seen.add(kind)


def _check_ready(content: JsonView) -> None:
    version = content.get("protocol", PROTOCOL_VERSION)
    if isinstance(version, bool) or version != PROTOCOL_VERSION:
        raise HandshakeBreach(
            f"it speaks version {_cut(repr(version))} of the handshake, and this pagecage speaks"
            f" version {PROTOCOL_VERSION}: take the library from `pagecage init --template`"
        )
    evicted = content.get("evicted_bytes", 0)
    if isinstance(evicted, bool) or not isinstance(evicted, int) or evicted < 0:
        raise HandshakeBreach(f"its `ready` has evicted_bytes {_cut(repr(evicted))}, not a count")


def _check_end(content: JsonView) -> None:
    if content.get("seconds") is None:
        raise HandshakeBreach("its `end` has no seconds")
    for key in _AMOUNTS:
        if (value := content.get(key)) is not None and not _is_amount(value):
            raise HandshakeBreach(f"its `end` has {key} {_cut(repr(value))}, not an amount")
    verdict, threads = content.get("checksum_ok"), content.get("threads") or []
    if verdict is not None and not isinstance(verdict, bool):
        raise HandshakeBreach(f"its `end` has checksum_ok {_cut(repr(verdict))}, not true or false")
    known = isinstance(threads, list) and all(isinstance(entry, dict) for entry in threads)
    faults = [entry.get("major_faults") for entry in threads] if known else []
    if not known or not all(count is None or _is_amount(count) for count in faults):
        raise HandshakeBreach("its `end` has threads that are not objects with counts")


def _is_amount(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and value >= 0 and is_finite(value)


def _refuse(constant: str) -> NoReturn:
    raise HandshakeBreach(f"it printed {constant}, which is not a number in JSON; null means none")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise HandshakeBreach(f"it printed {_cut(text)}, which is too large for a double")
    return value


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


class HandshakeProcess(TailedProcess):
    """One workload process. Threads read its output, so that every wait has a deadline.

    Without a handshake the input is closed at once, and only the end of the output is kept; the
    `end` of the conversation is then a report that was read elsewhere.
    `breach` is the first line that broke the protocol; nothing that follows it is kept.
    """

    def __init__(self, argv: Sequence[str], *, has_handshake: bool = True) -> None:
        super().__init__(argv)
        self.breach: HandshakeBreach | None = None
        self.conversation = Conversation()
        self._has_handshake = has_handshake
        self._lines: queue.Queue[Json | HandshakeBreach | None] = queue.Queue()
        self.start_thread(self._read_stdout, self.process.stdout)
        self.start_thread(self._read_stderr, self.process.stderr)
        if not has_handshake:
            self.close_input()

    def wait_for(self, *kinds: str, deadline: float) -> bool:
        """Read messages up to one of these types; False at the end, a breach, or `deadline`."""
        while time.monotonic() < deadline:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return False
            if line is None or not self._take(line):
                return False
            if isinstance(line, dict) and line["type"] in kinds:
                return True
        return False

    def is_waiting(self) -> bool:
        self._take_rest()
        return self.breach is None

    def wait_for_exit(self, deadline: float) -> bool:
        """Wait for the exit; False if CLOCK_MONOTONIC passes `deadline` first."""
        return wait_until(lambda: self.has_exited, deadline - time.monotonic(), _POLL_SECONDS)

    def go(self) -> None:
        self.conversation.is_going = True
        self.write(b"go\n")

    def finish(self) -> int:
        """Close the input, wait up to 10 s for the exit, then kill; return the status."""
        self.close_input()
        status = self.end_process(b"it did not exit when its input was closed\n")
        self._take_rest()
        return status

    def _take(self, line: Json | HandshakeBreach) -> bool:
        try:
            if isinstance(line, HandshakeBreach):
                raise line
            if self.breach is None:
                self.conversation.take(line)
        except HandshakeBreach as breach:
            self.breach = self.breach or breach
        return self.breach is None

    def _take_rest(self) -> None:
        with suppress(queue.Empty):
            while True:
                line = self._lines.get_nowait()
                if line is None:
                    self._lines.put(None)  # a later wait must find the end of output too
                    return
                self._take(line)

    def _read_stdout(self, pipe: IO[bytes]) -> None:
        """Read to the end, so that the workload never blocks; drop a last line without newline."""
        is_kept = self._has_handshake
        for line in _lines_of(pipe):
            is_whole = line.endswith(b"\n") or len(line) == LONGEST_LINE_BYTES
            if is_kept and is_whole:
                try:
                    self._lines.put(parse_message(line.removesuffix(b"\n")))
                except HandshakeBreach as breach:
                    self._lines.put(breach)
                    is_kept = False
        self._lines.put(None)

    def _read_stderr(self, pipe: IO[bytes]) -> None:
        for line in _lines_of(pipe):
            self.tail.add(line)


def _lines_of(pipe: IO[bytes]) -> Iterator[bytes]:
    """Yield lines, cut at 1 MiB, as a program may write gigabytes without a newline."""
    with open(pipe.fileno(), "rb", closefd=False) as buffered:
        while line := buffered.readline(LONGEST_LINE_BYTES):
            yield line
