"""The supervisor of trials without cgroups, run as its driver runs it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pagecage.agent.drivers import supervise
from pagecage.linux import processes
from pagecage.process import PIPE, Process, identify, is_alive, run, spawn
from tests.builders.known import known
from tests.builders.waiting import wait_until

SCRIPT = Path(supervise.__file__)


def argv(report: Path, *program: str, mode: tuple[str, ...] = (), agent: int = 0) -> list[str]:
    before = [sys.executable, "-I", "-S", str(SCRIPT), *mode, str(report)]
    return [*before, str(agent or os.getpid()), *program]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "report.json"


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[Path]:
    """A file for the process id of a daemon, which is killed if a test fails."""
    path = tmp_path / "daemon"
    yield path
    if path.exists():
        with suppress(ProcessLookupError):
            os.kill(int(path.read_text()), signal.SIGKILL)


def daemon(path: Path) -> str:
    """A shell command that leaves a process in a session of its own and waits until it runs."""
    inner = f"echo $$ >{path}.new; mv {path}.new {path}; exec sleep 600"
    return f"(setsid sh -c '{inner}' &); until [ -e {path} ]; do sleep 0.01; done"


def lives(path: Path) -> bool:
    return identify(int(path.read_text())) is not None


@pytest.mark.parametrize("status", [0, 3, 255])
def test_the_exit_status_is_the_programs(report: Path, status: int) -> None:
    assert run(argv(report, "sh", "-c", f"exit {status}"), check=False).status == status
    assert report.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_it_ends_by_the_signal_that_ended_the_program(report: Path, number: int) -> None:
    done = run(argv(report, "sh", "-c", f"kill -{number} $$"), check=False)
    assert done.status == -number


def test_a_missing_program_is_named(report: Path) -> None:
    done = run(argv(report, "no-such-program"), check=False)
    assert (done.status, done.stderr) == (127, "no-such-program: No such file or directory\n")


def test_nothing_outlives_the_program(report: Path, orphan: Path) -> None:
    done = run(argv(report, "sh", "-c", f"{daemon(orphan)}; exit 4"), check=False)
    assert done.status == 4
    assert not lives(orphan)


def test_what_stays_behind_is_seen_until_it_is_asked_to_end(report: Path, orphan: Path) -> None:
    command = argv(report, "sh", "-c", f"{daemon(orphan)}; exit 4", mode=("--wait-for-all",))
    process = spawn(command)
    wait_until(orphan.exists)
    time.sleep(0.2)  # the program itself has ended
    assert process.poll() is None
    assert int(orphan.read_text()) in list(processes.tree(process.pid))
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 4
    assert not lives(orphan)


def test_it_kills_everything_when_the_agent_dies(report: Path, orphan: Path) -> None:
    inner = f"{daemon(orphan)}; exec sleep 600"
    script = (
        "import os, subprocess, sys, time\n"
        "words = [str(os.getpid()) if word == 'AGENT' else word for word in sys.argv[1:]]\n"
        "subprocess.Popen(words)\n"
        "time.sleep(600)\n"
    )
    words = argv(report, "sh", "-c", inner)
    words[words.index(str(os.getpid()))] = "AGENT"
    agent: Process[bytes] = spawn([sys.executable, "-c", script, *words], stdout=PIPE)
    wait_until(orphan.exists)
    agent.kill()
    agent.wait()
    wait_until(lambda: not lives(orphan))


def test_it_does_not_start_after_the_agent_has_died(report: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    done = run(argv(report, "touch", str(ran), agent=1), check=False)
    assert done.status == 127
    assert not ran.exists()


def test_counters_of_reaped_processes_are_reported(report: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    count = "dd if=/dev/zero bs=65536 count=16 conv=fsync 2>/dev/null"
    run(argv(report, "sh", "-c", f"{count} of={data}; ({count} of={data}2)"), check=True)
    found = json.loads(report.read_text())
    assert found["io"]["write_bytes"] >= 2 * 16 * 65536
    assert found["minor_faults"] > 0
    total = known(processes.read_report(report))
    assert total.write_bytes == found["io"]["write_bytes"]


def test_a_report_that_cannot_be_written_does_not_change_the_status(tmp_path: Path) -> None:
    assert run(argv(tmp_path / "none/report", "sh", "-c", "exit 5"), check=False).status == 5


def test_the_program_is_killed_with_it(report: Path, tmp_path: Path) -> None:
    own = tmp_path / "pid"
    process = spawn(argv(report, "sh", "-c", f"echo $$ >{own}; exec sleep 600"))
    wait_until(lambda: own.exists() and own.read_text())
    program = known(identify(int(own.read_text())))
    process.kill()
    process.wait()
    wait_until(lambda: not is_alive(program))
    assert not report.exists()
