"""A shell in a cage at a real terminal (a pty), by the packaged agent."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
import time
from dataclasses import replace

from pagecage.agent.protocol import ShellRequest
from pagecage.hosts.agent_package import agent_bytes
from pagecage.model.cage import BurstCredits, Cage, CreditBucket
from pagecage.model.json_codec import to_json
from pagecage.model.requirements import may_rewrite_io_max
from pagecage.process import Process, spawn
from tests.builders.waiting import wait_until
from tests.fake_host.machine import CAGE, HERE, Machine


class Terminal:
    """The agent's shell at the other end of a pty."""

    def __init__(self, machine: Machine, cage: Cage = CAGE) -> None:
        agent = machine.root / "agent.pyz"
        agent.write_bytes(agent_bytes())
        request = ShellRequest(cage, str(machine.data), str(machine.spool), False)
        order = json.dumps(to_json(request))
        self._master, slave = pty.openpty()
        # setsid -c makes the pty the controlling terminal.
        words = (HERE / "agent_on_fakes.py", agent, machine.root, "shell", order)
        argv = ["setsid", "-cw", sys.executable, "-S", *map(str, words)]
        env = {"SHELL": "/bin/bash", "HOME": str(machine.root), "PS1": "$ ", "TERM": "dumb"}
        self.process: Process[bytes] = spawn(argv, stdin=slave, stdout=slave, stderr=slave, env=env)
        os.close(slave)
        self.output = b""

    def wait_for(self, text: str, seconds: float = 20.0) -> None:
        """Read until `text` has been printed."""
        deadline = time.monotonic() + seconds
        while text.encode() not in self.output:
            assert time.monotonic() < deadline, self.output.decode()
            self.output += os.read(self._master, 4096)

    def type(self, line: str) -> None:
        os.write(self._master, line.encode())

    def end(self) -> int:
        """Return the exit status after reading the remaining output."""
        try:
            while piece := os.read(self._master, 4096):
                self.output += piece
        except OSError:  # EIO: the other end is closed (pty(7))
            pass
        os.close(self._master)
        return self.process.wait(20)


def test_limits_are_shown_and_leaving_removes_them(machine: Machine) -> None:
    terminal = Terminal(machine)
    terminal.wait_for("it is removed when you leave")
    terminal.type('test -t 0 && test -t 1 && echo "in $PAGECAGE_CAGE at $PWD"\n')
    terminal.wait_for(f"in tight at {machine.data}")
    assert any("pagecage-shell.1" in path for path in machine.left())
    terminal.type("exit 7\n")
    assert terminal.end() == 7
    output = terminal.output.decode()
    assert "cage tight on /dev/fakedisk" in output
    assert "io.max.rbps      20000000" in output
    assert "memory.max       8388608" in output
    assert machine.left() == []


def test_credits_are_enforced_while_the_shell_is_open(machine: Machine) -> None:
    base = {**CAGE.properties, "IOReadIOPSMax": 500}
    burst = BurstCredits("full", iops=CreditBucket(2000, 100_000))
    terminal = Terminal(machine, replace(CAGE, properties=base, burst=burst))
    terminal.wait_for("removed when you leave")
    limits = machine.cgroups / "pagecage.slice/pagecage-shell.1.slice/io.max"
    terminal.type(f"cat {limits}; echo seen-$((40 + 2))\n")
    terminal.wait_for("seen-42")
    terminal.type("exit\n")
    assert terminal.end() == 0
    output = terminal.output.decode()
    if may_rewrite_io_max({"kernel": os.uname().release}):
        told = "2000 while credits last (100000 of 100000 credits), then the base of 500"
        assert f"io.max.riops {told}" in output
        assert "riops=2000" in output
    else:
        assert "io.max.riops: no credits, since rewriting io.max may hang this kernel" in output
        assert "riops=500" in output
    assert machine.left() == []


def test_ctrl_c_is_for_programs_in_the_shell(machine: Machine) -> None:
    terminal = Terminal(machine)
    terminal.wait_for("removed when you leave")
    terminal.type("echo begun; sleep 60\n")
    terminal.wait_for("begun\r\n")
    time.sleep(0.3)
    terminal.type("\x03")
    terminal.type("echo still-$((40 + 2))\n")
    terminal.wait_for("still-42")
    terminal.type("exit\n")
    terminal.end()
    assert machine.left() == []


def test_a_terminal_that_is_closed_leaves_nothing(machine: Machine) -> None:
    terminal = Terminal(machine)
    terminal.wait_for("removed when you leave")
    terminal.process.send_signal(signal.SIGHUP)
    assert terminal.end() != 0
    wait_until(lambda: machine.left() == [])


def test_a_limit_that_is_not_in_force_gives_no_shell(machine: Machine) -> None:
    machine.misbehave(FORGETS="memory.max")
    terminal = Terminal(machine)
    assert terminal.end() == 3
    assert "the limits are not in force" in terminal.output.decode()
    assert "fix: pagecage doctor" in terminal.output.decode()
    assert machine.left() == []
    assert not any(line.startswith("scope") for line in machine.log_lines())
