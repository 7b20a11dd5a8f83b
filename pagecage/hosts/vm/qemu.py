"""A running QEMU: started here, or found by the description that another process wrote."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from pagecage.digests import text_sha256
from pagecage.errors import HostDied, HostError
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.machine import GUEST_DAEMON_SOCKET, QMP_SOCKET
from pagecage.hosts.vm.qmp import QmpClient
from pagecage.process import (
    Process,
    ProcessId,
    dying_with_parent,
    end,
    identify,
    is_alive,
    replay,
    spawn,
)

_SOCKET_SECONDS = 10.0


def sockets_dir(cache: GuestCache) -> Path:
    """Return the directory for the sockets of the guest of this cache.

    Its name is short, because the path of a unix socket has at most 107 characters (unix(7)). It is
    constant, so that the next process finds the sockets of a killed one.
    """
    name = text_sha256(str(cache.root))[:8]
    return Path("/tmp") / f"pagecage-vm-{os.getuid()}-{name}"


def make_sockets_dir(cache: GuestCache) -> Path:
    """Create the directory for sockets anew, with mode 0700.

    Raises HostError if another user owns it.
    """
    path = sockets_dir(cache)
    shutil.rmtree(path, ignore_errors=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        raise HostError(f"{path} belongs to another user", f"sudo rm -r {path}") from None
    return path


class Qemu:
    """A QEMU process and a client of its control socket."""

    def __init__(
        self, process_id: ProcessId, sockets: Path, log: Path, child: Process[bytes] | None = None
    ) -> None:
        self.process_id = process_id
        self.sockets = sockets
        self.monitor = QmpClient(sockets / QMP_SOCKET)
        self._log = log
        self._child = child

    @classmethod
    def start(
        cls, argv: Sequence[str], sockets: Path, scratch: Path, *, dies_with_parent: bool
    ) -> Qemu:
        """Start QEMU, stopped, and connect to it.

        With `dies_with_parent` it ends with the calling thread, which must live on. Raises
        HostError with QEMU's message if it ends at once.
        """
        log = scratch / "qemu.log"
        started = dying_with_parent(argv) if dies_with_parent else argv
        env = {"TMPDIR": str(scratch)}
        with log.open("wb") as output:
            child = spawn(started, stdout=output, stderr=output, env=env, new_session=True)
        process_id = identify(child.pid)
        if process_id is None:
            raise HostError(
                f"QEMU ended at once: {_last_line(log)}", f"run it by hand: {replay(argv)}"
            )
        qemu = cls(process_id, sockets, log, child)
        qemu.connect()
        return qemu

    def connect(self) -> None:
        """Connect to the control socket. Raises HostError if QEMU does not open it or has ended."""
        deadline = time.monotonic() + _SOCKET_SECONDS
        while not self.monitor.connect(0.5):
            if not self.alive() or time.monotonic() > deadline:
                message = _last_line(self._log)
                self.end()
                raise HostError(f"QEMU did not start: {message}", "pagecage host rebuild vm")

    @property
    def guest_daemon(self) -> Path:
        """The socket of the daemon in the guest."""
        return self.sockets / GUEST_DAEMON_SOCKET

    def alive(self) -> bool:
        """Return whether the process is running."""
        return is_alive(self.process_id)

    def check(self) -> None:
        """Raise HostDied if the process has ended."""
        if not self.alive():
            raise HostDied(
                f"the guest ended: {_last_line(self._log)}",
                "run it again; finished trials are kept",
            )

    def quit(self) -> None:
        """Ask QEMU to end, so that it writes out its disks; kill it after a time limit."""
        with contextlib.suppress(HostError):  # it is ending or has ended; end() makes sure
            self.monitor.execute("quit")
        deadline = time.monotonic() + _SOCKET_SECONDS
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.end()

    def end(self) -> None:
        """Kill and reap the process and remove its sockets. Safe at any time."""
        self.monitor.close()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        else:
            end(self.process_id)
        shutil.rmtree(self.sockets, ignore_errors=True)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it printed no reason"


def console_tail(console: Path, lines: int = 12) -> str:
    """Return the last lines of the guest's serial console, for a guest that does not boot."""
    text = console.read_text(errors="replace") if console.exists() else ""
    return (
        os.linesep.join(line.rstrip() for line in text.splitlines()[-lines:])
        or "(the console is empty)"
    )
