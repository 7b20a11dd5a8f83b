"""Ctrl-C at a terminal in each step of the set-up: everything ends, and the same command continues
to the end.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from pagecage.process import Process, spawn
from tests.newcomer.machine import CAN_PIVOT, Machine, machine, printed

pytestmark = [CAN_PIVOT, pytest.mark.long, pytest.mark.timeout(3600)]
COMMAND = "make setup NAME=smoke HOST=vm"
CTRL_C = b"\x03"
STEPS = {
    "python": 3.0,
    "python-plan": 2.0,
    "python-ansible": 2.0,
    "controller": 8.0,
    "python-run": 1.0,
    "workloads": 8.0,
    "guest": 12.0,
}
"""The log of each step, and the delay of Ctrl-C after its first byte."""


@dataclass
class Terminal:
    """A command at a terminal of its own."""

    process: Process[bytes]
    master: int
    shown: bytes = field(default=b"")

    def read(self, seconds: float) -> None:
        """Read the shown output for this long, or to the end."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and self.process.poll() is None:
            if select.select([self.master], [], [], min(left, 0.2))[0]:
                try:
                    self.shown += os.read(self.master, 65536)
                except OSError:  # the other end is closed
                    self.process.wait(10)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    @property
    def text(self) -> str:
        return self.shown.decode(errors="replace")


@contextmanager
def terminal(new: Machine, command: str) -> Iterator[Terminal]:
    """Start a command in the foreground, as a shell at a terminal does."""
    master, slave = os.openpty()
    argv = ["setsid", "--ctty", "--wait", *new.argv(command, new.user, TERM="xterm")]
    with os.fdopen(slave, "rb+", buffering=0) as end:
        process = spawn(argv, stdin=end, stdout=end, stderr=end, env=new.settings())
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def interrupt(new: Machine, step: str, seconds: float) -> str:
    """Type Ctrl-C in a step; return what was shown. The command and everything that it started must
    have ended.
    """
    log = new.folder / f"upper{new.checkout}/build/log/{step}.log"
    log.unlink(missing_ok=True)
    with terminal(new, COMMAND) as at:
        while not log.exists() and at.process.poll() is None:
            at.read(0.1)
        at.read(seconds)
        assert at.process.poll() is None, f"it ended before Ctrl-C: {at.text[-3000:]}"
        at.type(CTRL_C)
        at.read(120)
        assert at.process.poll() not in (None, 0), at.text[-3000:]
    return at.text


def test_ctrl_c_in_each_step_and_the_same_command_again() -> None:
    with machine("trixie") as new:
        for step, seconds in STEPS.items():
            reported = interrupt(new, step, seconds)
            assert "left behind" not in reported, f"{step}: {reported[-3000:]}"
            assert "Traceback" not in reported, f"{step}: {reported[-3000:]}"
        done = new.run(COMMAND, seconds=1500)
        assert done.ok, printed(done)
        done = new.run(COMMAND)
        assert done.ok, printed(done)
        assert not re.search(r"\d s$", done.stderr, re.MULTILINE), (
            f"something was made again: {printed(done)}"
        )


def test_the_terminal_shows_one_line_for_what_runs() -> None:
    """Seconds are counted on one line, which finished steps replace."""
    with machine("trixie") as new, terminal(new, "make list") as at:
        at.read(300)
        shown = [line.rsplit("\033[K")[-1] for line in at.text.splitlines()]
        assert any(
            re.fullmatch(r"installing Python packages \(plan\) \.\.\. \d+ s", line)
            for line in shown
        ), at.text
        assert "installing Python packages (plan) 2 s" in at.text
        assert at.process.poll() == 0, at.text
