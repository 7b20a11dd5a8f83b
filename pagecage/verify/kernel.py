"""The kernel's file systems that verify reads, and the places of cgroups and disks in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pagecage.errors import HostError
from pagecage.linux.block_device import SYS, descend, resolve_disk
from pagecage.linux.cgroup import V1_CONTROLLERS, Cgroup, is_real_root, mount_points
from pagecage.linux.cgroup_files import read_counters
from pagecage.linux.procfs import PROC, read_text
from pagecage.units import MIB

SYSTEMD = "name=systemd"
"""The hierarchy of version 1 in which systemd has every unit, whatever controllers it has."""
_NAMES = {"memory": "memory", "blkio": "io", "cpu": "cpu"}  # of version 1, and of version 2


@dataclass(frozen=True)
class KernelTrees:
    """The mount points of procfs and sysfs."""

    proc: Path = PROC
    sys: Path = SYS

    @cached_property
    def mounts(self) -> Mapping[str, tuple[Path, str]]:
        wanted = {"unified", SYSTEMD, *V1_CONTROLLERS}
        return {name: place for name, place in mount_points(self.proc).items() if name in wanted}

    def directory_of(self, name: str, path: str) -> Path | None:
        """Return the directory of a process' path in a hierarchy; None if it is not mounted."""
        if name not in self.mounts:
            return None
        mount, mounted = self.mounts[name]
        return mount / (path if mounted == "/" else path.removeprefix(mounted)).lstrip("/")

    def mount_of(self, directory: Path) -> Path | None:
        """Return the mount point of a cgroup's directory; None for another directory."""
        roots = {root for root, _ in self.mounts.values()}
        return next((one for one in (directory, *directory.parents) if one in roots), None)

    def shown(self, directory: Path) -> str:
        """Return a cgroup's path below its mount point; `/` is the mount point itself."""
        below = directory.relative_to(self.mount_of(directory) or "/")
        return str(below) if below.parts else "/"

    def missing_controllers(self) -> list[str]:
        """Return the controllers of limits that no hierarchy has here, by version 2's names."""
        unified = self.mounts.get("unified", (Path("/"), "/"))[0] / "cgroup.controllers"
        there = (read_text(unified) or "").split()
        return [name for v1, name in _NAMES.items() if v1 not in self.mounts and name not in there]


def require_cgroups(kernel: KernelTrees) -> None:
    """Raise HostError if neither memory nor I/O is controlled by cgroups that are visible here."""
    if {"memory", "io"} <= set(kernel.missing_controllers()):
        raise HostError(
            "no cgroup hierarchy with the controllers memory and io is mounted here, so it cannot"
            " be told which limits are in force, which were lost and which one binds",
            "run this outside of the container, or mount -t cgroup2 none /sys/fs/cgroup",
        )


def directories_around(directory: Path, kernel: KernelTrees) -> list[Path]:
    """Return a cgroup's directory and those above it, nearest first, below the mount point."""
    mount = kernel.mount_of(directory)
    return [one for one in (directory, *directory.parents) if mount and mount in one.parents]


def group_at(directory: Path, cgroup: Cgroup, kernel: KernelTrees) -> Cgroup:
    """Return the group of a directory in each hierarchy, where it may not exist.

    It is `cgroup` or a group around it. Its path may be another in some hierarchy, and its name
    is then the same.
    """
    found = {}
    for controller in ("unified", *V1_CONTROLLERS):
        if controller in kernel.mounts:
            own: Path | None = getattr(cgroup, controller)
            around = (own, *own.parents) if own else ()
            place = kernel.mounts[controller][0] / kernel.shown(directory).lstrip("/")
            named = (one for one in around if one.name == directory.name)
            found[controller] = place if place in around else next(named, place)
    return Cgroup(**found)


IDLE_BYTES = MIB
"""A disk with less I/O than this holds no data that a limit is meant for."""
_MOST_PROCESSES = 200


@dataclass(frozen=True)
class WrittenDevice:
    """The disks on which a limit may be in force; `problem` says why the kernel takes none."""

    disks: tuple[str, ...] = ()
    problem: str = ""


def disk_name(maj_min: str, kernel: KernelTrees) -> str:
    place = kernel.sys / "dev/block" / maj_min
    return place.resolve().name if place.exists() else maj_min


def written_device(path: str, kernel: KernelTrees) -> WrittenDevice:
    """Return the disks for a device node, or for a path whose disk systemd is to limit."""
    try:
        real = os.path.realpath(path)
        name = real[5:].replace("/", "!") if real.startswith("/dev/") else ""
        number = (_sysfs_number(name, kernel) if name else None) or _device_number(real)
        if number is None:
            mountinfo = os.fsdecode((kernel.proc / "self/mountinfo").read_bytes())
            return WrittenDevice((resolve_disk(Path(path), kernel.sys, mountinfo).maj_min,))
        whole, stack = descend(number, kernel.sys)
    except (HostError, OSError, ValueError):
        return WrittenDevice(problem=f"there is no disk {path} on this machine")
    is_partition = (kernel.sys / "dev/block" / number / "partition").exists()
    problem = f"{path} is a partition, and the kernel limits whole disks" if is_partition else ""
    numbers = (_sysfs_number(name, kernel) for name in stack)
    return WrittenDevice(tuple(dict.fromkeys((*filter(None, numbers), whole))), problem)


def _device_number(path: str, *, is_file: bool = False) -> str | None:
    """Return the number of a device node, or with `is_file` of a file's file system."""
    found = Path(path).stat()
    if stat.S_ISBLK(found.st_mode):
        return f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    if is_file and stat.S_ISREG(found.st_mode):
        return f"{os.major(found.st_dev)}:{os.minor(found.st_dev)}"
    return None


def _sysfs_number(name: str, kernel: KernelTrees) -> str | None:
    text = read_text(kernel.sys / "class/block" / name / "dev")
    return None if text is None else text.strip()


def used_disks(cgroup: Cgroup) -> Mapping[str, int]:
    """Return a cgroup's I/O so far, by disk (io.stat). A real root counts for every group."""
    if is_real_root(cgroup.blkio, "blkio"):
        return {}
    stats = read_counters(cgroup, "io.stat")["io.stat"] or {}
    moved = {disk: n.get("rbytes", 0) + n.get("wbytes", 0) for disk, n in stats.items()}
    return {disk: count for disk, count in moved.items() if count}


def open_disks(pids: Iterable[int], kernel: KernelTrees) -> tuple[set[str], bool]:
    """Return the disks of all open files, and whether all were readable (proc_pid_fd(5))."""
    numbers, complete = set[str](), True
    for pid in list(pids)[:_MOST_PROCESSES]:
        try:
            entries = list((kernel.proc / str(pid) / "fd").iterdir())
        except FileNotFoundError:
            continue
        except OSError:
            complete = False
            continue
        for entry in entries:
            with suppress(OSError):
                numbers |= {_device_number(str(entry), is_file=True) or ""}
    disks = set[str]()
    for number in numbers - {""}:
        with suppress(HostError, OSError):  # a file system without a disk
            whole, names = descend(number, kernel.sys)
            layers = filter(None, (_sysfs_number(name, kernel) for name in names))
            disks |= {whole, number, *layers}
    return disks, complete
