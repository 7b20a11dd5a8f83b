"""A disk of pagecage's own on a host: a file with a file system, attached by the loop driver.

It has a request queue, counters and limits of its own, so that those of the disk below stay as they
are. The file is kept with its datasets from run to run. Its mount point has a fixed name in the
spool, since one agent locks the host: the next start finds what a killed agent left. The kernel
detaches the loop device when the file system is unmounted (LO_FLAGS_AUTOCLEAR).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.system.block_device import find_mount, parse_mountinfo
from pagecage.agent.system.kernel_text import read_text
from pagecage.errors import HostError, PagecageError
from pagecage.process import run

SYS_BLOCK = Path("/sys/block")
_SETTINGS = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"


@dataclass(frozen=True)
class LoopDisk:
    """A file that becomes a disk with room for `size_bytes`."""

    file: Path
    size_bytes: int

    def attach(self, spool: Path) -> Path:
        """Attach and mount the disk; return its mount point.

        The file is made if it is missing or too small, and made again if it cannot be mounted.
        Raises HostError if the kernel or the file system below cannot make a disk of it.
        """
        mount_point = _mount_point(spool)
        mount_point.mkdir(parents=True, exist_ok=True)
        try:
            if not self._is_large_enough():
                self._make()
            try:
                _mount(self.file, mount_point)
            except PagecageError:
                self._make()
                _mount(self.file, mount_point)
        except (PagecageError, OSError) as error:
            detach_loop_disk(spool)
            reason = getattr(error, "message", None) or str(error)
            raise HostError(
                f"{self.file} cannot become a disk: {reason}",
                "add --yes to change the settings of the disk below instead, or use --host vm",
            ) from None
        return mount_point

    def _is_large_enough(self) -> bool:
        return self.file.is_file() and self.file.stat().st_size >= self.size_bytes

    def _make(self) -> None:
        """Make the file, with all its blocks, and its file system; it appears whole."""
        part = self.file.with_name(f".{self.file.name}.part")
        self.file.unlink(missing_ok=True)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, self.size_bytes)
            run(
                ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-E", _SETTINGS, part],
                timeout_seconds=300,
            )
            part.replace(self.file)
        finally:
            part.unlink(missing_ok=True)


def _mount_point(spool: Path) -> Path:
    return spool / "disk"


def _mount(file: Path, mount_point: Path) -> None:
    """Mount the file; reads and writes of the loop device then bypass the cache of the disk below.

    mount(8) attaches the loop device itself, so that a killed agent leaves both or neither.
    """
    run(["mount", "-t", "ext4", "-o", "loop,noatime", file, mount_point], timeout_seconds=60)
    node = Path(_source(mount_point))
    run(["losetup", "--direct-io=on", node], timeout_seconds=30)
    if (read_text(SYS_BLOCK / node.name / "loop/dio") or "").strip() != "1":
        raise HostError(f"{node} takes no direct I/O")


def _source(mount_point: Path) -> str:
    mounts = parse_mountinfo(read_text(Path("/proc/self/mountinfo")) or "")
    return find_mount(mount_point, mounts).source


def detach_loop_disk(spool: Path) -> list[str]:
    """Unmount and detach the disk; return the names of what was there."""
    mount_point = _mount_point(spool)
    if not mount_point.is_mount():
        return []
    node = _source(mount_point)
    run(["umount", mount_point], timeout_seconds=60)
    return [node]
