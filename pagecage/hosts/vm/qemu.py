"""One running QEMU: started here, or found by the file in which another process of ours described it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from pagecage.errors import HostDied, HostError
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.machine import CARETAKER_SOCKET, QMP_SOCKET
from pagecage.hosts.vm.qmp import QmpClient
from pagecage.process import Process, ProcessId, end, identify, is_alive, replay, spawn

_SOCKET_SECONDS = 10.0


def sockets_dir(cache: GuestCache) -> Path:
    """The directory for the sockets of the one guest of this cache.

    Its name is short, because the path of a unix socket has at most 107 characters (unix(7)), and always the same, so
    that a killed owner leaves nothing that the next one would not find.
    """
    name = hashlib.sha256(str(cache.root).encode()).hexdigest()[:8]
    return Path("/tmp") / f"pagecage-vm-{os.getuid()}-{name}"


def make_sockets_dir(cache: GuestCache) -> Path:
    """That directory, private and made anew. Raises HostError when somebody else took its name."""
    path = sockets_dir(cache)
    shutil.rmtree(path, ignore_errors=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        raise HostError(f"{path} belongs to somebody else", f"have it removed: sudo rm -r {path}") from None
    return path


class Qemu:
    """A QEMU process and the connection to its control socket."""

    def __init__(self, process_id: ProcessId, sockets: Path, log: Path, child: Process[bytes] | None = None) -> None:
        self.process_id = process_id
        self.sockets = sockets
        self.monitor = QmpClient(sockets / QMP_SOCKET)
        self._log = log
        self._child = child

    @classmethod
    def start(cls, argv: Sequence[str], sockets: Path, scratch: Path, *, dies_with_us: bool) -> Qemu:
        """Start QEMU, stopped, and connect to it.

        With `dies_with_us` the kernel kills it when the thread that called this ends (PR_SET_PDEATHSIG in prctl(2),
        by setpriv(1)), so call it from a thread that lives on. Raises HostError with QEMU's own words when it ends at
        once.
        """
        log = scratch / "qemu.log"
        prefix = ["setpriv", "--pdeathsig", "KILL"] if dies_with_us else []
        env = {"TMPDIR": str(scratch)}
        with log.open("wb") as output:
            child = spawn([*prefix, *argv], stdout=output, stderr=output, env=env, new_session=True)
        process_id = identify(child.pid)
        if process_id is None:
            raise HostError(f"QEMU ended at once: {_last_line(log)}", f"see why: {replay(argv)}")
        qemu = cls(process_id, sockets, log, child)
        qemu.connect()
        return qemu

    def connect(self) -> None:
        """Connect to the control socket. Raises HostError when QEMU does not open it or has ended."""
        deadline = time.monotonic() + _SOCKET_SECONDS
        while not self.monitor.connect(0.5):
            if not self.alive() or time.monotonic() > deadline:
                said = _last_line(self._log)
                self.end()
                raise HostError(f"QEMU did not start: {said}", "pagecage host rebuild vm")

    @property
    def caretaker(self) -> Path:
        """The socket at whose other end the guest's caretaker waits."""
        return self.sockets / CARETAKER_SOCKET

    def alive(self) -> bool:
        """Whether the process still runs."""
        return is_alive(self.process_id)

    def check(self) -> None:
        """Raises HostDied when the process has ended."""
        if not self.alive():
            raise HostDied(f"the guest ended: {_last_line(self._log)}", "run it again; what was recorded stays")

    def quit(self) -> None:
        """Let QEMU end by itself, so that it writes out its disks; kill it when it does not."""
        with contextlib.suppress(HostError):  # it is ending, or already gone; end() makes sure of it
            self.monitor.execute("quit")
        deadline = time.monotonic() + _SOCKET_SECONDS
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.end()

    def end(self) -> None:
        """Make sure that the process is gone and reaped, and its sockets with it. Safe at any time."""
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
    """The last lines of the guest's serial console, where a guest that does not boot says why."""
    text = console.read_text(errors="replace") if console.exists() else ""
    return os.linesep.join(line.rstrip() for line in text.splitlines()[-lines:]) or "(the console is empty)"
