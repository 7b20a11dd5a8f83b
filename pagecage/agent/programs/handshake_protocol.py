"""The messages of the handshake and their order, as docs/HANDSHAKE.md specifies them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from pagecage.agent.responses import is_finite

PROTOCOL_VERSION = 1
"""The version that this agent speaks. The libraries in workloads/ state the same."""
LONGEST_LINE_BYTES = 1 << 20
_TYPES = ("ready", "sample", "stopped", "end")
_SHOWN_CHARACTERS = 60
_AMOUNTS = ("seconds", "bytes", "blocks", "distinct_bytes", "covered_fraction")


class HandshakeBreach(Exception):
    """A line that breaks the protocol. The message is a sentence whose subject is the workload."""


def parse_message(line: bytes) -> dict[str, Any]:
    """Return the message of one line without its newline. Raises HandshakeBreach."""
    if len(line) >= LONGEST_LINE_BYTES:
        raise HandshakeBreach("it printed a line of more than 1 MiB")
    try:
        message = json.loads(line.decode(), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise HandshakeBreach(f"it printed a line that is not a JSON object: {_shown(line)}")
    kind = message.get("type")
    if kind not in _TYPES:
        raise HandshakeBreach(
            f"it printed a message of type {_cut(repr(kind))}, and the handshake has only"
            f" {', '.join(_TYPES)}"
        )
    return message


class Conversation:
    """The messages of one workload so far. `is_going` is set by the agent when it says `go`."""

    def __init__(self) -> None:
        self.ready: dict[str, Any] = {}
        self.samples: list[dict[str, Any]] = []
        self.end: dict[str, Any] = {}
        self.is_going = False
        self._seen: set[str] = set()

    def has(self, kinds: Iterable[str]) -> bool:
        """Return whether a message of one of these types has arrived."""
        return not self._seen.isdisjoint(kinds)

    def take(self, message: Mapping[str, Any]) -> None:
        """Add a message. Raises HandshakeBreach if its place or one of its keys is wrong."""
        kind = message["type"]
        self._check_place(kind)
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

    def _check_place(self, kind: str) -> None:
        if kind in self._seen - {"sample"}:
            raise HandshakeBreach(f"it printed `{kind}` twice")
        if "end" in self._seen:
            raise HandshakeBreach(f"it printed `{kind}` after `end`")
        if kind != "ready" and "ready" not in self._seen:
            raise HandshakeBreach(f"it printed `{kind}` before `ready`")
        if kind != "ready" and not self.is_going:
            raise HandshakeBreach(f"it printed `{kind}` without waiting for `go`")


def _check_ready(content: Mapping[str, Any]) -> None:
    version = content.get("protocol", PROTOCOL_VERSION)
    if isinstance(version, bool) or version != PROTOCOL_VERSION:
        raise HandshakeBreach(
            f"it speaks version {_cut(repr(version))} of the handshake, and this pagecage speaks"
            f" version {PROTOCOL_VERSION}: take the library from `pagecage init --template`"
        )
    evicted = content.get("evicted_bytes", 0)
    if isinstance(evicted, bool) or not isinstance(evicted, int) or evicted < 0:
        raise HandshakeBreach(f"its `ready` has evicted_bytes {_cut(repr(evicted))}, not a count")


def _check_end(content: Mapping[str, Any]) -> None:
    if content.get("seconds") is None:
        raise HandshakeBreach("its `end` has no seconds")
    for key in _AMOUNTS:
        if (value := content.get(key)) is not None and not _is_amount(value):
            raise HandshakeBreach(f"its `end` has {key} {_cut(repr(value))}, not an amount")
    verdict, threads = content.get("checksum_ok"), content.get("threads") or []
    if verdict is not None and not isinstance(verdict, bool):
        raise HandshakeBreach(f"its `end` has checksum_ok {_cut(repr(verdict))}, not true or false")
    if not isinstance(threads, list) or not all(map(_is_thread, threads)):
        raise HandshakeBreach("its `end` has threads that are not objects with counts")


def _is_thread(entry: Any) -> bool:
    faults = entry.get("major_faults") if isinstance(entry, dict) else ""
    return faults is None or _is_amount(faults)


def _is_amount(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and value >= 0 and is_finite(value)


def _refuse(constant: str) -> NoReturn:
    raise HandshakeBreach(f"it printed {constant}, which is not a number in JSON; null means none")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise HandshakeBreach(f"it printed {_cut(text)}, which is too large for a double")
    return value


def _shown(line: bytes) -> str:
    return _cut(repr(line.decode(errors="replace")))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
