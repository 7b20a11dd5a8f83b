"""One ssh connection per machine state, shared by every command: a new one costs an emulated guest most of a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pagecage.errors import HostError
from pagecage.hosts.ssh import SshTarget, master_argv
from pagecage.process import Process, spawn

CONNECT_SECONDS = 60.0


class Connection:
    """An ssh that holds the connection open until close(), or until the process that started it ends."""

    def __init__(
        self, target: SshTarget, sockets: Path, alive: Callable[[], None], limit_seconds: float = CONNECT_SECONDS
    ) -> None:
        """Connect. `alive` is called while waiting and raises when there is no use; HostError after the limit."""
        self.target = replace(target, control_path=sockets / "ssh")
        self._master = self._spawn()
        deadline = time.monotonic() + limit_seconds
        while not (sockets / "ssh").exists():
            alive()
            if time.monotonic() > deadline:
                self.close()
                raise HostError(f"it does not answer on ssh within {limit_seconds:.0f} s", "pagecage host rebuild vm")
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
