"""The conversation with a workload, word by word, with a deadline on every wait."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pagecage.agent.programs import handshake_process
from pagecage.agent.programs.handshake_process import HandshakeProcess
from tests.fake_host.machine import WORKLOADS


@contextmanager
def talk(program: str | list[str], *, has_handshake: bool = True) -> Iterator[HandshakeProcess]:
    argv = [str(WORKLOADS / program)] if isinstance(program, str) else program
    conversation = HandshakeProcess(argv, has_handshake=has_handshake)
    try:
        yield conversation
    finally:
        if conversation.process.poll() is None:
            conversation.process.kill()
        conversation.finish()


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def soon(seconds: float = 10.0) -> float:
    return time.monotonic() + seconds


def test_ready_go_samples_end_exit() -> None:
    with talk("good.py") as conversation:
        assert conversation.wait_for("ready", deadline=soon())
        conversation.go()
        assert conversation.wait_for("end", deadline=soon())
        assert conversation.samples == [{"seconds": 0.25, "bytes": 524288}]
        assert conversation.end["checksum_ok"] is True
        assert conversation.finish() == 0


def test_it_waits_for_go() -> None:
    with talk("good.py") as conversation:
        assert conversation.wait_for("ready", deadline=soon())
        assert not conversation.wait_for("end", deadline=soon(0.2))
        assert conversation.samples == []


def test_it_waits_for_its_input_to_close() -> None:
    with talk("good.py") as conversation:
        conversation.wait_for("ready", deadline=soon())
        conversation.go()
        conversation.wait_for("end", deadline=soon())
        time.sleep(0.1)
        assert conversation.process.poll() is None
        assert conversation.finish() == 0


@pytest.mark.parametrize(
    ("program", "status", "last_line"),
    [
        ("dies_before_ready.py", 1, "cannot open it: No such file or directory"),
        ("cannot.py", 77, "io_uring is switched off here"),
    ],
)
def test_it_dies_before_it_is_ready(program: str, status: int, last_line: str) -> None:
    with talk(program) as conversation:
        assert not conversation.wait_for("ready", deadline=soon())
        conversation.go()
        assert conversation.finish() == status
        assert conversation.last_line() == last_line


def test_it_dies_before_its_end() -> None:
    with talk("dies_before_end.py") as conversation:
        assert conversation.wait_for("ready", deadline=soon())
        conversation.go()
        assert not conversation.wait_for("end", deadline=soon())
        assert conversation.finish() == -11
        assert len(conversation.samples) == 1


def test_garbage_is_no_line_and_stops_nothing() -> None:
    with talk("prints_garbage.py") as conversation:
        assert conversation.wait_for("ready", deadline=soon())
        conversation.go()
        assert conversation.wait_for("end", deadline=soon())
        assert conversation.finish() == 0
        assert "not a JSON object" in (conversation.last_line() or "")


def test_a_flood_of_samples_is_kept_whole_and_quickly() -> None:
    with talk("floods_stdout.py") as conversation:
        conversation.wait_for("ready", deadline=soon())
        conversation.go()
        assert conversation.wait_for("end", deadline=soon(60))
        assert [sample["number"] for sample in conversation.samples] == list(range(20_000))


def test_a_flood_cannot_outlast_the_deadline() -> None:
    with talk("floods_for_ever.py") as conversation:
        conversation.wait_for("ready", deadline=soon())
        conversation.go()
        begin = time.monotonic()
        assert not conversation.wait_for("end", deadline=soon(0.3))
        assert time.monotonic() - begin < 5


def test_what_it_says_on_standard_error_is_kept_to_its_end() -> None:
    with talk(shell("yes 0123456789 | head -n 200000 >&2; echo the reason >&2; exit 3")) as conversation:
        assert conversation.finish() == 3
        assert conversation.last_line() == "the reason"
        assert len(conversation._stderr) <= 2000


def test_a_silent_one_has_no_complaint() -> None:
    with talk(shell("exit 1")) as conversation:
        assert conversation.finish() == 1
        assert conversation.last_line() is None


def test_one_that_does_not_exit_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_process, "_GRACE_SECONDS", 0.3)
    with talk("never_exits.py") as conversation:
        conversation.wait_for("ready", deadline=soon())
        conversation.go()
        assert conversation.wait_for("end", deadline=soon())
        assert conversation.finish() == -9
        assert "did not exit" in (conversation.last_line() or "")


def test_one_that_is_interrupted_in_its_farewell_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    with talk("never_exits.py") as conversation:

        def interrupted(*_: object) -> int:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(conversation.process, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            conversation.finish()
        assert conversation.process.poll() == -9


def test_talking_to_the_dead_is_no_error() -> None:
    with talk(shell("exit 5")) as conversation:
        conversation.process.wait(10)
        conversation.go()
        conversation.go()
        assert conversation.finish() == 5


def test_a_command_has_no_input_and_is_measured_to_its_exit() -> None:
    with talk(shell('cat; echo \'{"type": "end"}\'; exit 4'), has_handshake=False) as conversation:
        assert conversation.wait_for_exit(soon())
        assert conversation.finish() == 4
        assert conversation.end == {}


def test_a_command_that_takes_too_long() -> None:
    with talk(["sleep", "30"], has_handshake=False) as conversation:
        assert not conversation.wait_for_exit(soon(0.2))


@pytest.mark.parametrize("has_handshake", [True, False])
def test_gigabytes_without_a_newline_do_not_fill_the_agents_memory(has_handshake: bool) -> None:
    """`cat file` as a command: what it writes is dropped, not kept."""
    before = resident_bytes()
    code = "import os\nfor _ in range(200): os.write(1, b'x' * 1048576)"
    with talk([sys.executable, "-S", "-c", code], has_handshake=has_handshake) as conversation:
        assert conversation.wait_for_exit(soon(60))
        assert conversation.finish() == 0
    assert resident_bytes() - before < 60 * 2**20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_its_processes_are_out_of_reach_of_the_terminals_interrupt() -> None:
    with talk(["sleep", "30"], has_handshake=False) as conversation:
        assert os.getsid(conversation.process.pid) == conversation.process.pid


def test_what_is_waiting_to_be_read_does_not_move_the_deadline() -> None:
    """A workload that prints faster than it is read would otherwise never be out of time."""
    with talk(["sleep", "30"]) as conversation:
        for kind in ("sample", "sample", "ready"):
            conversation._lines.put({"type": kind})
        assert not conversation.wait_for("ready", deadline=time.monotonic() - 0.001)
        assert conversation.wait_for("ready", deadline=soon())
