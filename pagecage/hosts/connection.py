"""One ssh connection per machine state, shared by every command: a new one costs an emulated guest most of a second."""

from __future__ import annotations

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
    """An ssh that holds the connection open until close(), or until the process that started it ends."""

    def __init__(
        self, target: SshTarget, sockets: Path, alive: Callable[[], None], limit_seconds: float = CONNECT_SECONDS
    ) -> None:
        """Begin to connect; wait() waits for it, calling `alive`, which raises when there is no use in waiting."""
        self.target = replace(target, control_path=sockets / SSH_SOCKET)
        self._socket, self._alive, self._limit_seconds = sockets / SSH_SOCKET, alive, limit_seconds
        self._master = self._spawn()

    def wait(self) -> None:
        """Wait until commands can use the connection. Raises HostError after the limit."""
        deadline = time.monotonic() + self._limit_seconds
        while not self._socket.exists():
            self._alive()
            if time.monotonic() > deadline:
                self.close()
                limit = f"{self._limit_seconds:.0f} s"
                raise HostError(f"it does not answer on ssh within {limit}", "pagecage host rebuild vm")
            if self._master.poll() is not None:
                time.sleep(0.1)
                self._master = self._spawn()
            time.sleep(0.005)

    def _spawn(self) -> Process[bytes]:
        """In a session of its own, so that a Ctrl-C at the terminal does not cut the guest off before it is tidied."""
        return spawn(master_argv(self.target), new_session=True)

    def close(self) -> None:
        """End the connection; safe at any time."""
        self._master.kill()
        self._master.wait()
