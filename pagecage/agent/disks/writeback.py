"""Refusal of limits on writes where the kernel charges buffered writes to no cgroup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pagecage.agent.storage import Storage
from pagecage.agent.system.block_device import Disk, has_cgroup_writeback
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.model.requirements import Requirement


def require_cgroup_writeback(run: TrialRun, storage: Storage, disk: Disk) -> None:
    """Raise RequirementMissed if a limit on writes would not hold for buffered writes to a disk.

    Its limit reads back well, and direct writes and the program's own fsync keep it. The kernel's
    flusher does not: its writes are charged to the root cgroup
    (Documentation/admin-guide/cgroup-v2.rst, "Writeback").
    """
    for reason in unlimited_writes(_limited(run, storage, disk)):
        hint = "put the data on ext4 (without data=journal), XFS or btrfs, or remove these limits"
        raise RequirementMissed.of(Requirement.LIMITS, reason, hint)


def _limited(
    run: TrialRun, storage: Storage, disk: Disk
) -> Iterator[tuple[Disk, Mapping[str, int]]]:
    """Yield each disk with its limits on the cgroup."""
    cage = run.trial.cage.cgroup_part
    yield disk, cage.properties
    for name, limits in cage.disks.items():
        yield storage.disks[name].disk, limits.properties


def unlimited_writes(
    limited: Iterator[tuple[Disk, Mapping[str, int]]], mountinfo: str | None = None
) -> Iterator[str]:
    """Yield a sentence per disk with a limit on writes and without writeback by cgroup."""
    for disk, properties in limited:
        names = [name for name in properties if name.startswith("IOWrite")]
        if names and not has_cgroup_writeback(Path(disk.mount_point), mountinfo):
            yield (
                f"{disk.mount_point} is {disk.filesystem} with writeback outside of the trial's"
                f" cgroup, where {' and '.join(names)} would not hold for buffered writes"
            )
