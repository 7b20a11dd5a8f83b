"""The kernel's file systems that verify reads, and the places of cgroups in them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pagecage.agent.system.block_device import SYS
from pagecage.agent.system.cgroup import V1_CONTROLLERS, Cgroup, ancestors, mount_points
from pagecage.agent.system.kernel_text import read_text
from pagecage.agent.system.procfs import PROC
from pagecage.errors import HostError

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
        """Mount point and mounted path of the hierarchies that systemd or a limit may use."""
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


def lineage(cgroup: Cgroup, kernel: KernelTrees) -> tuple[Cgroup, ...]:
    """Return a cgroup and all visible groups whose limits hold for it too, nearest first."""
    return (cgroup, *ancestors(cgroup, kernel.proc))


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


def pids_of(directory: Path) -> list[int]:
    """Return the processes of a cgroup and of its descendants."""
    folders = (Path(folder) for folder, _, _ in os.walk(directory))
    words = (
        word for folder in folders for word in (read_text(folder / "cgroup.procs") or "").split()
    )
    return sorted({int(word) for word in words if word.isdigit()})
