"""Devices as people write them, beside the disks whose numbers are in io.max and io.stat."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.system.block_device import descend, resolve_disk
from pagecage.agent.system.cgroup import Cgroup, is_real_root
from pagecage.agent.system.cgroup_files import read_counters
from pagecage.agent.system.kernel_text import read_text
from pagecage.errors import HostError
from pagecage.units import MIB
from pagecage.verify.kernel import KernelTrees

IDLE_BYTES = MIB
"""A disk with less I/O than this holds no data that a limit is meant for."""
_MOST_PROCESSES = 200


@dataclass(frozen=True)
class WrittenDevice:
    """A device that a limit was asked for, and the disks on which the limit may be in force.

    `problem` is a clause that says why the kernel takes no limit for it; empty if it does.
    """

    disks: tuple[str, ...] = ()
    problem: str = ""


def disk_name(maj_min: str, kernel: KernelTrees) -> str:
    """Return a disk's name in sysfs (`vdb`), or its number if sysfs does not have it."""
    place = kernel.sys / "dev/block" / maj_min
    return place.resolve().name if place.exists() else maj_min


def written_device(path: str, kernel: KernelTrees) -> WrittenDevice:
    """Return the disks for a device node, or for a path whose disk systemd is to limit."""
    try:
        if (number := _number(path, kernel)) is None:
            return WrittenDevice(
                (resolve_disk(Path(path), kernel.sys, _mountinfo(kernel)).maj_min,)
            )
        whole, stack = descend(number, kernel.sys)
    except (HostError, OSError, ValueError):
        return WrittenDevice(problem=f"there is no disk {path} on this machine")
    is_partition = (kernel.sys / "dev/block" / number / "partition").exists()
    problem = f"{path} is a partition, and the kernel limits whole disks" if is_partition else ""
    numbers = (_sysfs_number(name, kernel) for name in stack)
    return WrittenDevice(tuple(dict.fromkeys((*filter(None, numbers), whole))), problem)


def _number(path: str, kernel: KernelTrees) -> str | None:
    """Return the number of a device node; None if the path is something else."""
    real = os.path.realpath(path)
    if real.startswith("/dev/") and (known := _sysfs_number(real[5:].replace("/", "!"), kernel)):
        return known
    found = Path(real).stat()
    if not stat.S_ISBLK(found.st_mode):
        return None
    return f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"


def _sysfs_number(name: str, kernel: KernelTrees) -> str | None:
    text = read_text(kernel.sys / "class/block" / name / "dev")
    return None if text is None else text.strip()


def _mountinfo(kernel: KernelTrees) -> str:
    return os.fsdecode((kernel.proc / "self/mountinfo").read_bytes())


def used_disks(cgroup: Cgroup) -> Mapping[str, int]:
    """Return the bytes that a cgroup has read and written so far, by disk (io.stat).

    Nothing is known of a real root, whose counters include those of every group.
    """
    if is_real_root(cgroup.blkio, "blkio"):
        return {}
    stats = read_counters(cgroup, "io.stat")["io.stat"] or {}
    moved = {
        maj_min: counts.get("rbytes", 0) + counts.get("wbytes", 0)
        for maj_min, counts in stats.items()
    }
    return {maj_min: count for maj_min, count in moved.items() if count}


def open_disks(pids: Iterable[int], kernel: KernelTrees) -> tuple[set[str], bool]:
    """Return the disks of all files that these processes have open, and whether all were readable.

    Another user's open files are readable to root alone (proc_pid_fd(5)).
    """
    numbers, complete = set(), True
    for pid in list(pids)[:_MOST_PROCESSES]:
        try:
            entries = list((kernel.proc / str(pid) / "fd").iterdir())
        except FileNotFoundError:
            continue
        except OSError:
            complete = False
            continue
        numbers |= {number for entry in entries if (number := _of_open_file(entry))}
    return {disk for number in numbers for disk in _stack(number, kernel)}, complete


def _of_open_file(entry: Path) -> str | None:
    try:
        found = entry.stat()
    except OSError:
        return None
    if stat.S_ISBLK(found.st_mode):
        return f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    if not stat.S_ISREG(found.st_mode):
        return None
    return f"{os.major(found.st_dev)}:{os.minor(found.st_dev)}"


def _stack(number: str, kernel: KernelTrees) -> set[str]:
    """Return the number of a device and of everything below it."""
    try:
        whole, names = descend(number, kernel.sys)
    except (HostError, OSError):  # a file system without a disk
        return set()
    return {whole, number, *filter(None, (_sysfs_number(name, kernel) for name in names))}
