"""A shared ssh connection per machine state. A new one takes an emulated guest most of a second."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pagecage.errors import HostError
from pagecage.hosts.ssh import SshTarget, master_argv
from pagecage.hosts.vm.machine import SSH_SOCKET
from pagecage.process import Process, spawn

CONNECT_SECONDS = 60.0


class SharedConnection:
    """An ssh process that holds a connection open.

    It ends with close(), or with the process that started it.
    """

    def __init__(
        self,
        target: SshTarget,
        sockets: Path,
        check: Callable[[], None],
        limit_seconds: float = CONNECT_SECONDS,
    ) -> None:
        """Start connecting. wait() calls `check`, which raises an error if the target has ended."""
        self.target = replace(target, control_path=sockets / SSH_SOCKET)
        self._socket, self._check, self._limit_seconds = sockets / SSH_SOCKET, check, limit_seconds
        remove_stale_socket(self._socket)
        self._master = self._spawn()

    def wait(self) -> None:
        """Wait until commands can use the connection. Raises HostError after the time limit."""
        deadline = time.monotonic() + self._limit_seconds
        while not self._socket.exists():
            self._check()
            if time.monotonic() > deadline:
                self.close()
                limit = f"{self._limit_seconds:.0f} s"
                raise HostError(
                    f"the guest did not answer on ssh within {limit}", "pagecage host rebuild vm"
                )
            if self._master.poll() is not None:
                time.sleep(0.1)
                self._master = self._spawn()
            time.sleep(0.005)

    def _spawn(self) -> Process[bytes]:
        """Start ssh in its own session: Ctrl-C must not end it before the guest is cleaned up."""
        return spawn(master_argv(self.target), new_session=True)

    def close(self) -> None:
        """End the connection. Safe at any time."""
        self._master.kill()
        self._master.wait()


def remove_stale_socket(path: Path) -> None:
    """Remove a socket on which nobody listens: a killed ssh leaves it behind (unix(7))."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except FileNotFoundError:
            return
