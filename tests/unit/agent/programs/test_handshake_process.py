"""The handshake with a workload, line by line, with a deadline on every wait."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pagecage.agent.programs import gated_process
from pagecage.agent.programs.handshake_process import HandshakeProcess
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


def test_ready_go_samples_end_exit() -> None:
    with running("good.py") as workload:
        assert workload.wait_for("ready", deadline=soon())
        workload.go()
        assert workload.wait_for("end", deadline=soon())
        assert workload.samples == [{"seconds": 0.25, "bytes": 524288}]
        assert workload.end["checksum_ok"] is True
        assert workload.finish() == 0


def test_it_waits_for_go() -> None:
    with running("good.py") as workload:
        assert workload.wait_for("ready", deadline=soon())
        assert not workload.wait_for("end", deadline=soon(0.2))
        assert workload.samples == []


def test_it_waits_for_its_input_to_close() -> None:
    with running("good.py") as workload:
        workload.wait_for("ready", deadline=soon())
        workload.go()
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
        assert workload.last_line() == last_line


def test_it_dies_before_its_end() -> None:
    with running("dies_before_end.py") as workload:
        assert workload.wait_for("ready", deadline=soon())
        workload.go()
        assert not workload.wait_for("end", deadline=soon())
        assert workload.finish() == -11
        assert len(workload.samples) == 1


def test_a_flood_of_samples_is_kept_whole_and_quickly() -> None:
    with running("floods_stdout.py") as workload:
        workload.wait_for("ready", deadline=soon())
        workload.go()
        assert workload.wait_for("end", deadline=soon(60))
        assert [sample["number"] for sample in workload.samples] == list(range(20_000))


def test_a_flood_cannot_outlast_the_deadline() -> None:
    with running("floods_for_ever.py") as workload:
        workload.wait_for("ready", deadline=soon())
        workload.go()
        begin = time.monotonic()
        assert not workload.wait_for("end", deadline=soon(0.3))
        assert time.monotonic() - begin < 5


def test_the_last_line_of_standard_error_is_kept() -> None:
    with running(
        shell("yes 0123456789 | head -n 200000 >&2; echo the reason >&2; exit 3")
    ) as workload:
        assert workload.finish() == 3
        assert workload.last_line() == "the reason"
        assert len(workload.tail._bytes) <= 2000


def test_without_output_there_is_no_last_line() -> None:
    with running(shell("exit 1")) as workload:
        assert workload.finish() == 1
        assert workload.last_line() is None


def test_a_workload_that_does_not_exit_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gated_process, "_GRACE_SECONDS", 0.3)
    with running("never_exits.py") as workload:
        workload.wait_for("ready", deadline=soon())
        workload.go()
        assert workload.wait_for("end", deadline=soon())
        assert workload.finish() == -9
        assert "did not exit" in (workload.last_line() or "")


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
        assert workload.end == {}


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
