"""The vm host's files, all below one directory of the user's cache."""

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
from pagecage.model.cage import DATA_DISK

DEFAULT_NAME = "vm"
"""The guest of HOST=vm."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,29}")


class FileBelow:
    """The path of a file below the directory in the attribute `top`."""

    def __init__(self, name: str, top: str = "directory") -> None:
        self._name, self._top = name, top

    def __get__(self, owner: object, _kind: type) -> Path:
        return Path(getattr(owner, self._top), self._name)


def _base() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pagecage"


def existing_caches() -> list[GuestCache]:
    """Return the caches of all guests of this user, by name."""
    found = [path for path in _base().glob(f"{DEFAULT_NAME}*") if (path / "images").is_dir()]
    return [GuestCache(path) for path in sorted(found)]


@dataclass(frozen=True)
class GuestCache:
    """The directory of one guest and the paths in it."""

    root: Path

    @classmethod
    def of_user(cls, name: str = DEFAULT_NAME) -> GuestCache:
        """Return the cache of a guest below $XDG_CACHE_HOME or ~/.cache. Raises PagecageError."""
        if not _NAME.fullmatch(name):
            reason = f"{name!r} is not a valid name for a guest"
            raise PagecageError(reason, "use small letters, digits and dashes")
        return cls(_base() / (DEFAULT_NAME if name == DEFAULT_NAME else f"{DEFAULT_NAME}-{name}"))

    @property
    def name(self) -> str:
        return self.root.name.removeprefix(f"{DEFAULT_NAME}-")

    images = FileBelow("images", "root")  # one directory per image, named by its recipe's key
    states = FileBelow("states", "root")  # one directory per saved machine state, named by its key
    data_disk = FileBelow("data.raw", "root")  # keeps datasets between runs

    def disk(self, name: str) -> Path:
        """The raw file of a data disk: `data`, or another disk of a cage."""
        return self.data_disk if name == DATA_DISK else self.root / f"{DATA_DISK}-{name}.raw"

    def disks(self) -> tuple[Path, ...]:
        """The raw files of all data disks, where they exist or not for `data`."""
        return (self.data_disk, *sorted(self.root.glob(f"{DATA_DISK}-*.raw")))

    lock_file = FileBelow("lock", "root")  # locked with flock(2) by the user of the guest
    guest_file = FileBelow("guest.json", "root")  # process, port and saved state of the guest
    acceleration_file = FileBelow("acceleration.json", "root")  # the trial boot under KVM
    # Logs, and QEMU's temporary overlays, which grow and so are on the disk of the images.
    scratch = FileBelow("scratch", "root")

    def make(self) -> None:
        """Create the directories with mode 0700, because they hold keys. Raises HostError."""
        for path in (self.root, self.images, self.states, self.scratch):
            try:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                hint = "set XDG_CACHE_HOME to a writable directory"
                raise HostError(f"{path} cannot be created: {error.strerror}", hint) from None


def allocated_bytes(file: Path) -> int:
    """Return the allocated bytes of a file (st_blocks; inode(7)); 0 if it was removed meanwhile."""
    try:
        return file.lstat().st_blocks * 512
    except OSError:
        return 0


def keep_newest(directory: Path, count: int) -> list[Path]:
    """Remove all but the `count` last used entries, and every `.part`; return their paths."""
    entries = sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    finished = [path for path in entries if path.suffix != ".part"]
    removed = finished[count:] + [path for path in entries if path.suffix == ".part"]
    for path in removed:
        shutil.rmtree(path, ignore_errors=True)
    return removed


class CacheLock:
    """flock(2) on a file that names the holder. The kernel releases it when the holder ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock unless this object has it. Raises PagecageError naming its holder."""
        if self._fd is not None:
            return
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise in_use(*read_holder(self._path)) from None
        os.ftruncate(fd, 0)
        holder = {"pid": os.getpid(), "since_unix_seconds": time.time()}
        os.pwrite(fd, json.dumps(holder).encode(), 0)
        self._fd = fd

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None


def read_holder(path: Path) -> tuple[int | None, float]:
    """Return the pid in a lock file, or None, and the time of locking in seconds since 1970."""
    try:
        holder = json.loads(path.read_text())
        return int(holder["pid"]), float(holder["since_unix_seconds"])
    except (FileNotFoundError, ValueError, KeyError):
        return None, 0.0


def is_held(path: Path) -> bool:
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


def in_use(
    pid: int | None, since_unix_seconds: float, *, is_persistent: bool = False
) -> PagecageError:
    since = time.strftime("%H:%M:%S", time.localtime(since_unix_seconds))
    if is_persistent:
        reason = f"the guest has been running since {since} (pagecage host up)"
        return HostError(reason, "pagecage host down vm")
    hint = f"wait for it, or interrupt it: kill -INT {pid or 'PID'}"
    return HostError(f"the vm is in use by process {pid or '?'} since {since}", hint)
