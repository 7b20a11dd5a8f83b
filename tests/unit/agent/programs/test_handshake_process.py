"""The handshake with a workload, line by line: a message or a breach, with a deadline."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.programs import gated_process
from pagecage.agent.programs.handshake_process import (
    LONGEST_LINE_BYTES,
    Conversation,
    HandshakeBreach,
    HandshakeProcess,
    parse_message,
)
from pagecage.agent.responses import wrong_response
from tests.fake_host.machine import WORKLOADS


@contextmanager
def running(program: str | list[str], *, has_handshake: bool = True) -> Iterator[HandshakeProcess]:
    argv = [str(WORKLOADS / program)] if isinstance(program, str) else program
    workload = HandshakeProcess(argv, has_handshake=has_handshake)
    try:
        yield workload
    finally:
        if workload.process.poll() is None:
            workload.process.kill()
        workload.finish()


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def soon(seconds: float = 10.0) -> float:
    return time.monotonic() + seconds


@contextmanager
def going(program: str) -> Iterator[HandshakeProcess]:
    with running(program) as workload:
        assert workload.wait_for("ready", deadline=soon())
        workload.go()
        yield workload


def test_ready_go_samples_end_exit() -> None:
    with going("good.py") as workload:
        assert workload.wait_for("end", deadline=soon())
        assert workload.conversation.samples == [{"seconds": 0.25, "bytes": 524288}]
        assert workload.conversation.end["checksum_ok"] is True
        assert workload.finish() == 0


def test_it_waits_for_go() -> None:
    with running("good.py") as workload:
        assert workload.wait_for("ready", deadline=soon())
        assert not workload.wait_for("end", deadline=soon(0.2))
        assert workload.conversation.samples == []


def test_it_waits_for_its_input_to_close() -> None:
    with going("good.py") as workload:
        workload.wait_for("end", deadline=soon())
        time.sleep(0.1)
        assert workload.process.poll() is None
        assert workload.finish() == 0


@pytest.mark.parametrize(
    ("program", "status", "last_line"),
    [
        ("dies_before_ready.py", 1, "cannot open it: No such file or directory"),
        ("cannot.py", 77, "io_uring is switched off here"),
    ],
)
def test_it_dies_before_it_is_ready(program: str, status: int, last_line: str) -> None:
    with running(program) as workload:
        assert not workload.wait_for("ready", deadline=soon())
        workload.go()
        assert workload.finish() == status
        assert workload.tail.last_line() == last_line


def test_it_dies_before_its_end() -> None:
    with going("dies_before_end.py") as workload:
        assert not workload.wait_for("end", deadline=soon())
        assert workload.finish() == -11
        assert len(workload.conversation.samples) == 1


def test_a_flood_of_samples_is_kept_whole_and_quickly() -> None:
    with going("floods_stdout.py") as workload:
        assert workload.wait_for("end", deadline=soon(60))
        assert [sample["number"] for sample in workload.conversation.samples] == list(range(20_000))


def test_a_flood_cannot_outlast_the_deadline() -> None:
    with going("floods_for_ever.py") as workload:
        begin = time.monotonic()
        assert not workload.wait_for("end", deadline=soon(0.3))
        assert time.monotonic() - begin < 5


def test_the_last_line_of_standard_error_is_kept() -> None:
    script = "yes 0123456789 | head -n 200000 >&2; echo the reason >&2; exit 3"
    with running(shell(script)) as workload:
        assert workload.finish() == 3
        assert workload.tail.last_line() == "the reason"
        assert len(workload.tail.read()) <= 2000


def test_without_output_there_is_no_last_line() -> None:
    with running(shell("exit 1")) as workload:
        assert workload.finish() == 1
        assert workload.tail.last_line() is None


def test_a_workload_that_does_not_exit_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gated_process, "_GRACE_SECONDS", 0.3)
    with going("never_exits.py") as workload:
        assert workload.wait_for("end", deadline=soon())
        assert workload.finish() == -9
        assert "did not exit" in (workload.tail.last_line() or "")


def test_an_interrupted_wait_kills_the_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    with running("never_exits.py") as workload:

        def interrupted(*_: object) -> int:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(workload.process, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            workload.finish()
        assert workload.process.poll() == -9


def test_writing_to_a_dead_process_is_no_error() -> None:
    with running(shell("exit 5")) as workload:
        workload.process.wait(10)
        workload.go()
        workload.go()
        assert workload.finish() == 5


def test_a_command_has_no_input_and_is_measured_to_its_exit() -> None:
    with running(shell('cat; echo \'{"type": "end"}\'; exit 4'), has_handshake=False) as workload:
        assert workload.wait_for_exit(soon())
        assert workload.finish() == 4
        assert workload.conversation.end == {}


def test_a_command_that_takes_too_long() -> None:
    with running(["sleep", "30"], has_handshake=False) as workload:
        assert not workload.wait_for_exit(soon(0.2))


@pytest.mark.parametrize("has_handshake", [True, False])
def test_gigabytes_without_a_newline_do_not_fill_the_agents_memory(has_handshake: bool) -> None:
    """The output of a command such as `cat file` is dropped."""
    before = resident_bytes()
    code = "import os\nfor _ in range(200): os.write(1, b'x' * 1048576)"
    with running([sys.executable, "-S", "-c", code], has_handshake=has_handshake) as workload:
        assert workload.wait_for_exit(soon(60))
        assert workload.finish() == 0
    assert resident_bytes() - before < 60 * 2**20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_its_processes_do_not_receive_the_terminals_interrupt() -> None:
    with running(["sleep", "30"], has_handshake=False) as workload:
        assert os.getsid(workload.process.pid) == workload.process.pid


def test_unread_output_does_not_extend_the_deadline() -> None:
    """Otherwise a workload that prints faster than it is read would never time out."""
    with running(["sleep", "30"]) as workload:
        workload._lines.put({"type": "ready"})
        assert not workload.wait_for("ready", deadline=time.monotonic() - 0.001)
        assert workload.wait_for("ready", deadline=soon())


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


@pytest.mark.parametrize(
    ("content", "says"),
    [
        *(
            ({"protocol": version}, "this pagecage speaks version 1")
            for version in (0, 2, "1", None, True, 1.5, 10**400)
        ),
        *(
            ({"evicted_bytes": evicted}, "evicted_bytes")
            for evicted in (-1, 0.5, "all", True, None)
        ),
    ],
)
def test_another_version_and_what_is_no_count_are_refused(
    content: dict[str, object], says: str
) -> None:
    with pytest.raises(HandshakeBreach, match=says) as refusal:
        Conversation().take({"type": "ready", **content})
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
        ({"seconds": 1, "check_seconds": -1}, "check_seconds -1"),
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


def test_a_figure_longer_than_a_double_is_refused() -> None:
    assert wrong_response({"speed": 10**400}) == "its response speed is too large for a double"
    assert wrong_response({"speed": 10**300}) is None
