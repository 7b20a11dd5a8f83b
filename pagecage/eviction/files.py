"""The files to evict: regular files among and below paths, on a file system with a page cache."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from pagecage.agent.system.block_device import find_mount, parse_mountinfo
from pagecage.errors import PagecageError

_IN_MEMORY = "whose files are the page cache itself"
_BY_KERNEL = "whose files the kernel makes up"
# File systems whose page cache cannot be dropped, or is not where the data are kept.
_REFUSED = {
    **dict.fromkeys(("tmpfs", "ramfs", "devtmpfs", "hugetlbfs"), _IN_MEMORY),
    **dict.fromkeys(("proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs"), _BY_KERNEL),
    "zfs": "which has a cache of its own (ARC) that cannot be counted",
}
STACKED = ("overlay",)
"""File systems whose files have their pages in another file system's cache."""


@dataclass(frozen=True)
class EvictedFile:
    """A file: its path, its identity, and its file system."""

    path: Path
    device: int
    inode: int
    filesystem: str

    @property
    def is_stacked(self) -> bool:
        """True if its pages are in the cache of a file system below."""
        return self.filesystem in STACKED


def find_files(paths: Iterable[str]) -> list[EvictedFile]:
    """Return the regular files among and below the paths, each once; links below are skipped.

    Raises PagecageError for a path that does not exist, that cannot be read, that has no regular
    file, or whose file system keeps no page cache that can be dropped.
    """
    found: dict[tuple[int, int], EvictedFile] = {}
    kinds: dict[int, str] = {}
    for path in paths:
        files = list(_identified(_checked(path, kinds)))
        if not files:
            raise PagecageError(f"{path} contains no regular file", f"ls -la {shlex.quote(path)}")
        for (device, inode), file in files:
            if device not in kinds:
                kinds[device] = _filesystem(file)
            found.setdefault((device, inode), EvictedFile(file, device, inode, kinds[device]))
    if not found:
        raise PagecageError("no file was given", "name files or directories")
    return list(found.values())


def _checked(text: str, kinds: dict[int, str]) -> Path:
    """Return the path of an existing file or directory, and add its file system to `kinds`."""
    if not text or "\0" in text:
        raise PagecageError(f"{text!r} is not a valid path", "name files or directories")
    path = Path(text)
    try:
        device = os.stat(path).st_dev  # noqa: PTH116 - Path.exists() hides the reason
    except OSError as error:
        _refuse(path, error)
    if device not in kinds:
        kinds[device] = _filesystem(path)
    return path


def _identified(path: Path) -> Iterator[tuple[tuple[int, int], Path]]:
    """Yield device, inode and path of regular files.

    A file that is gone by now is left out: servers remove files of their own.
    """
    for file in _names_of(path):
        try:
            status = file.stat(follow_symlinks=file == path)
        except FileNotFoundError:
            continue
        except OSError as error:
            _refuse(file, error)
        if stat.S_ISREG(status.st_mode):
            yield (status.st_dev, status.st_ino), file


def _names_of(path: Path) -> Iterator[Path]:
    """Yield the path itself, or everything below a directory that is not one."""
    if not path.is_dir():
        yield path
        return

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # a directory that is gone by now
            _refuse(path, error)

    for folder, folders, names in os.walk(path, onerror=refuse):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names))


def _refuse(path: Path, error: OSError) -> NoReturn:
    place = error.filename or path
    if isinstance(error, FileNotFoundError):
        raise PagecageError(
            f"{place} does not exist", f"ls -la {shlex.quote(str(path.parent))}"
        ) from None
    message = f"{place} cannot be read: {error.strerror}"
    raise PagecageError(message, "run as its owner or as root") from None


def _filesystem(file: Path) -> str:
    """Return the type of a file's file system. Raises PagecageError if it is refused."""
    text = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
    kind = find_mount(file, parse_mountinfo(text)).filesystem
    if reason := _REFUSED.get(kind):
        raise PagecageError(
            f"{file} is on {kind}, {reason}, so it cannot be made cold",
            "copy it to a disk with ext4, XFS or btrfs",
        )
    return kind
