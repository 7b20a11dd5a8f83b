"""One guest per cache directory: a lock that its owner holds for as long as it lives, and that dies with it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

from pagecage.errors import HostError, PagecageError


class Lock:
    """flock(2) on a file that tells who holds it. The kernel lets go of it when the holder dies, however it dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take it at once or raise PagecageError naming who has it; again and again is fine."""
        if self._fd is not None:
            return
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            holder, since = read_holder(self._path)
            raise in_use(holder, since) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps({"pid": os.getpid(), "since_unix_seconds": time.time()}).encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Let go of it, if it is ours."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None


def read_holder(path: Path) -> tuple[int | None, float]:
    """The pid in a lock file (None if nobody wrote one) and the moment it was taken, in seconds since 1970."""
    try:
        told = json.loads(path.read_text())
        return int(told["pid"]), float(told["since_unix_seconds"])
    except (FileNotFoundError, ValueError, KeyError):
        return None, 0.0


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock now."""
    if not path.exists():
        return False
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def in_use(pid: int | None, since_unix_seconds: float, *, kept: bool = False) -> PagecageError:
    """The error for a second user. A kept guest can be ended; a run has to be ended by its owner."""
    since = time.strftime("%H:%M:%S", time.localtime(since_unix_seconds))
    if kept:
        return HostError(f"the guest is kept up, since {since}", "pagecage host down vm")
    mend = f"wait for it, or end it in good order: kill -INT {pid or 'PID'}"
    return HostError(f"the vm is in use by process {pid or '?'} since {since}", mend)
