"""Directory entries and inodes of a trial's files, which stay in memory when file data are dropped.

The page cache holds the data of files. Names and inodes are in slabs, and the blocks that hold them
on the disk are in the page cache of the block device.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from pagecage.agent.caged import Caged
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.model.requirements import Requirement
from pagecage.model.trial import COLD_METADATA

DROP, DEV = Path("/proc/sys/vm/drop_caches"), Path("/dev")
_SLABS = "2"
"""Dentries and inodes (admin-guide/sysctl/vm.rst)."""
_KNOWN = ("ext2", "ext3", "ext4")
"""File systems whose blocks of names and inodes were seen to be read again afterwards."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def drop_metadata(run: TrialRun, caged: Caged) -> None:
    """Drop the metadata of the files' file system if the trial wants that; keep their state.

    It must be the last step before `go`, since each check of the page cache opens every file. That
    is also why they are warm otherwise. Raises RequirementMissed if this user may not drop them.
    """
    if COLD_METADATA not in run.trial.conditions:
        run.keep("cache", metadata="warm" if caged.files else "unknown")
        return
    device = DEV / next(iter(caged.disk.stack), caged.disk.name)
    try:
        _write_back(Path(caged.disk.mount_point))
        DROP.write_text(_SLABS)
        _forget(device)
    except OSError as error:
        raise RequirementMissed.of(
            Requirement.METADATA,
            f"directory entries and inodes cannot be dropped: {error.filename or DROP}:"
            f" {error.strerror}",
            "run as root or in the guest (HOST=vm), or leave out cold-metadata",
        ) from None
    is_known = caged.disk.filesystem in _KNOWN
    run.keep("cache", metadata="cold" if is_known else "unknown")


def _write_back(mount_point: Path) -> None:
    """Write back the file system, because inodes and blocks that are dirty stay in memory."""
    descriptor = os.open(mount_point, os.O_RDONLY)
    try:
        if _LIBC.syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(mount_point))
    finally:
        os.close(descriptor)


def _forget(device: Path) -> None:
    """Drop the block device's own page cache."""
    descriptor = os.open(device, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
