"""Where the vm host keeps things: everything below one directory of the user's cache, nothing anywhere else."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from pagecage.errors import HostError, PagecageError

DEFAULT_NAME = "vm"
"""The guest that HOST=vm means."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,29}")


def _base() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pagecage"


def known_caches() -> list[GuestCache]:
    """The caches of all guests that were ever made by this user, by name."""
    found = [path for path in _base().glob(f"{DEFAULT_NAME}*") if (path / "images").is_dir()]
    return [GuestCache(path) for path in sorted(found)]


@dataclass(frozen=True)
class GuestCache:
    """The vm host's directory and the names in it."""

    root: Path

    @classmethod
    def of_user(cls, name: str = DEFAULT_NAME) -> GuestCache:
        """The directory that the XDG Base Directory Specification gives us: $XDG_CACHE_HOME, or ~/.cache.

        A guest of another name has everything to itself: image, saved states, data disk, lock. Raises PagecageError for
        a name that is no word.
        """
        if not _NAME.fullmatch(name):
            raise PagecageError(f"{name!r} is no name for a guest", "use letters, digits and dashes")
        return cls(_base() / (DEFAULT_NAME if name == DEFAULT_NAME else f"{DEFAULT_NAME}-{name}"))

    @property
    def name(self) -> str:
        """The guest's name."""
        return self.root.name.removeprefix(f"{DEFAULT_NAME}-")

    @property
    def images(self) -> Path:
        """One directory an image, named by the key of what went into it."""
        return self.root / "images"

    @property
    def states(self) -> Path:
        """One directory a saved machine state, named by its key."""
        return self.root / "states"

    @property
    def data_disk(self) -> Path:
        """The raw file behind the guest's data disk; kept between runs, so that datasets are."""
        return self.root / "data.raw"

    @property
    def lock_file(self) -> Path:
        """Held with flock(2) by whoever uses the guest."""
        return self.root / "lock"

    @property
    def guest_file(self) -> Path:
        """Which guest runs now: its process, its port, its sockets."""
        return self.root / "guest.json"

    @property
    def acceleration_file(self) -> Path:
        """What the trial boot said about KVM on this host."""
        return self.root / "acceleration.json"

    @property
    def scratch(self) -> Path:
        """Logs and the overlays that QEMU throws away; on the same disk as the images, because they grow."""
        return self.root / "scratch"

    def make(self) -> None:
        """Create the directories. Others may not look in: the keys to the guest lie here.

        Raises HostError where they cannot be made.
        """
        for path in (self.root, self.images, self.states, self.scratch):
            try:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                hint = "set XDG_CACHE_HOME to a folder that can be written"
                raise HostError(f"{path} cannot be made: {error.strerror}", hint) from None


def keep_newest(directory: Path, count: int) -> list[Path]:
    """Remove all but the `count` last used entries, and every unfinished `.part`; returns what was removed."""
    entries = sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    whole = [path for path in entries if path.suffix != ".part"]
    doomed = whole[count:] + [path for path in entries if path.suffix == ".part"]
    for path in doomed:
        shutil.rmtree(path, ignore_errors=True)
    return doomed


class CacheLock:
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
    hint = f"wait for it, or end it in good order: kill -INT {pid or 'PID'}"
    return HostError(f"the vm is in use by process {pid or '?'} since {since}", hint)
