"""The agent's parser of the handshake: any line is a message or a breach, in one order only."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.programs.handshake_process import (
    LONGEST_LINE_BYTES,
    Conversation,
    HandshakeBreach,
    parse_message,
)
from pagecage.agent.responses import wrong_response

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
MESSAGES = st.dictionaries(
    st.sampled_from(["type", "seconds", "protocol", "evicted_bytes", "threads", "response"])
    | st.text(),
    VALUES | st.sampled_from(["ready", "sample", "stopped", "end"]),
)
ORDER = re.compile(r"(ready( go(,sample)*(,stopped)?(,sample)*(,end)?)?)?")


def sentence(text: str) -> bool:
    return bool(text) and "\n" not in text and len(text) < 300 and text.startswith(("it ", "its "))


@given(st.binary() | MESSAGES.map(lambda message: json.dumps(message).encode()))
def test_any_line_is_a_message_or_a_breach(line: bytes) -> None:
    refusal = ""
    try:
        message = parse_message(line)
        json.dumps(message, allow_nan=False)  # a record can hold it
        Conversation().take(message)
    except HandshakeBreach as breach:
        refusal = str(breach)
    assert sentence(refusal) or message["type"] == "ready"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"[" * 100_000, "not a JSON object: '[[["),
        (b"x" * LONGEST_LINE_BYTES, "more than 1 MiB"),
        (b'{"type":"end","seconds":1e400}', "1e400, which is too large"),
        (b'{"type":"end","seconds":-Infinity}', "-Infinity, which is not a number"),
        (b'{"type":"end","seconds":' + b"9" * 5000 + b"}", "not a JSON object"),
        (b'{"type":["end"]}', "type ['end']"),
        (b'{"seconds":1}', "type None"),
        (b"\xff", "not a JSON object"),
        (b"", "not a JSON object: ''"),
    ],
)
def test_a_line_that_is_not_a_message(line: bytes, says: str) -> None:
    with pytest.raises(HandshakeBreach) as refusal:
        parse_message(line)
    assert says in str(refusal.value)
    assert sentence(str(refusal.value))


def taken(kinds: list[str], **content: Any) -> str:
    """Return the accepted messages of a workload, with `go` where the agent says it."""
    conversation, accepted = Conversation(), ""
    for kind in kinds:
        try:
            conversation.take({"type": kind, "seconds": 1, **content})
        except HandshakeBreach:
            break
        accepted += f",{kind}" if accepted else kind
        if kind == "ready":
            conversation.is_going = True
            accepted += " go"
    return accepted


@given(st.lists(st.sampled_from(["ready", "sample", "stopped", "end"])))
def test_messages_are_accepted_in_one_order_only(kinds: list[str]) -> None:
    accepted = taken(kinds)
    assert ORDER.fullmatch(accepted.replace("go,", "go ,").replace(" ,", ","))


def test_the_whole_order_is_accepted() -> None:
    kinds = ["ready", "sample", "sample", "stopped", "end"]
    assert taken(kinds) == "ready go,sample,sample,stopped,end"
    assert taken([*kinds, "sample"]) == taken(kinds)


def test_work_before_go_is_a_breach() -> None:
    conversation = Conversation()
    conversation.take({"type": "ready"})
    with pytest.raises(HandshakeBreach, match="`end` without waiting for `go`"):
        conversation.take({"type": "end", "seconds": 1})


@pytest.mark.parametrize("version", [0, 2, "1", None, True, 1.5, 10**400])
def test_another_version_is_refused(version: object) -> None:
    with pytest.raises(HandshakeBreach, match="this pagecage speaks version 1") as refusal:
        Conversation().take({"type": "ready", "protocol": version})
    assert sentence(str(refusal.value))


@pytest.mark.parametrize("content", [{}, {"protocol": 1}, {"protocol": 1, "pid": 7, "more": []}])
def test_version_1_is_accepted_and_the_default(content: dict[str, Any]) -> None:
    conversation = Conversation()
    conversation.take({"type": "ready", **content})
    assert conversation.ready == content


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({}, "no seconds"),
        ({"seconds": None}, "no seconds"),
        ({"seconds": -1}, "seconds -1"),
        ({"seconds": True}, "seconds True"),
        ({"seconds": 10**400}, "not an amount"),
        ({"seconds": 1, "bytes": "many"}, "bytes 'many'"),
        ({"seconds": 1, "checksum_ok": 1}, "checksum_ok 1, not true or false"),
        ({"seconds": 1, "threads": [1]}, "threads that are not objects"),
        ({"seconds": 1, "threads": {"major_faults": 1}}, "threads that are not objects"),
        ({"seconds": 1, "threads": [{"major_faults": "x"}]}, "threads that are not objects"),
    ],
)
def test_an_end_with_a_wrong_key_is_a_breach(content: dict[str, Any], says: str) -> None:
    conversation = Conversation()
    conversation.take({"type": "ready"})
    conversation.is_going = True
    with pytest.raises(HandshakeBreach) as refusal:
        conversation.take({"type": "end", **content})
    assert says in str(refusal.value)
    assert conversation.end == {}


@pytest.mark.parametrize("evicted", [-1, 0.5, "all", True, None])
def test_evicted_bytes_are_a_count(evicted: object) -> None:
    with pytest.raises(HandshakeBreach, match="evicted_bytes"):
        Conversation().take({"type": "ready", "evicted_bytes": evicted})


def test_a_figure_longer_than_a_double_is_refused() -> None:
    assert wrong_response({"speed": 10**400}) == "its response speed is too large for a double"
    assert wrong_response({"speed": 10**300}) is None
