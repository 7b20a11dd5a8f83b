"""Control groups of both versions: where they are, their ancestors and processes (cgroups(7))."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pagecage.linux.block_device import parse_mountinfo
from pagecage.linux.processes import ProcessInfo, is_exiting, is_running, tree
from pagecage.linux.procfs import name_of, read_text

CGROUP_ROOT = Path("/sys/fs/cgroup")
"""The mount point of the unified hierarchy where it has all controllers (cgroups(7))."""
PROC = Path("/proc")
V1_CONTROLLERS = ("memory", "blkio", "cpu", "cpuacct")
"""Controllers that are looked for in hierarchies of version 1, by their names there."""


@dataclass(frozen=True)
class Cgroup:
    """One control group: its directory in the unified hierarchy, and those in version 1.

    A controller whose field is None belongs to the unified hierarchy. `unified` is None where no
    such hierarchy is mounted.
    """

    unified: Path | None = None
    memory: Path | None = None
    blkio: Path | None = None
    cpu: Path | None = None
    cpuacct: Path | None = None

    @property
    def by_controller(self) -> dict[str, Path]:
        return {name: path for name, path in vars(self).items() if path is not None}

    @property
    def directories(self) -> tuple[Path, ...]:
        """Each directory once; version 1 may mount several controllers together."""
        return tuple(dict.fromkeys(self.by_controller.values()))

    @property
    def hierarchy(self) -> str:
        if self.unified is None:
            return "v1"
        return "hybrid" if len(self.directories) > 1 else "v2"

    def child(self, name: str) -> Cgroup:
        return Cgroup(**{key: path / name for key, path in self.by_controller.items()})

    def exists(self) -> bool:
        return any(directory.is_dir() for directory in self.directories)

    def without_roots(self) -> Cgroup:
        """Return it without real roots, which count for the whole machine and have no limits.

        The root of blkio stays, because it may have limits.
        """
        places = self.by_controller.items()
        return Cgroup(
            **{k: path for k, path in places if k == "blkio" or not is_real_root(path, k)}
        )

    def identity(self) -> int | None:
        try:
            return None if self.unified is None else self.unified.stat().st_ino
        except OSError:
            return None

    def __str__(self) -> str:
        return str(self.memory or self.unified or next(iter(self.directories), CGROUP_ROOT))


# --- Places ---------------------------------------------------------------------------------------


def ancestors(cgroup: Cgroup, proc: Path | None = None) -> Iterator[Cgroup]:
    """Yield the groups whose limits also hold for this one, nearest first, below the real root.

    The root of a cgroup namespace is included, since it is a container's own group. blk-throttle of
    version 1 is flat: limits of parents do not hold (block/blk-throttle.c, throtl_qnode), so
    they are left out.
    """
    mounts = mount_points(proc)
    for controller, path in cgroup.by_controller.items():
        has_no_limits = controller == "unified" and cgroup.memory and cgroup.blkio
        if has_no_limits or controller not in ("unified", "memory", "cpu"):
            continue
        roots = [mounts[controller][0]] if controller in mounts else []
        roots += [CGROUP_ROOT] if controller == "unified" else []
        root = next((root for root in roots if path.is_relative_to(root)), None)
        for parent in path.parents:
            # Before Linux 5.11 groups below may not be charged to the parent (memory.rst, 6).
            is_apart = (read_text(parent / "memory.use_hierarchy") or "").strip() == "0"
            if root is None or not parent.is_relative_to(root) or is_apart:
                break
            if parent != root or not is_real_root(parent, controller):
                yield Cgroup(**{controller: parent})


def is_real_root(directory: Path | None, controller: str) -> bool:
    if directory is None or controller != "unified":
        return directory is not None and (directory / "release_agent").exists()
    return not (directory / "cgroup.type").exists()


def mount_points(proc: Path | None = None) -> dict[str, tuple[Path, str]]:
    """Return mount point and mounted path by controller of version 1, and of `unified`.

    The mounted path is "/" or, in a bind mount of a container, the path of its own group.
    """
    found: dict[str, tuple[Path, str]] = {}
    for mount in parse_mountinfo(read_text((proc or PROC) / "self/mountinfo") or ""):
        names = mount.options.split(",") if mount.filesystem == "cgroup" else ["unified"]
        for controller in names if mount.filesystem in ("cgroup", "cgroup2") else ():
            found.setdefault(controller, (Path(mount.mount_point), mount.root))
    # Another file system may have been mounted over it.
    return {name: one for name, one in found.items() if (one[0] / "cgroup.procs").exists()}


def own_cgroup(proc: Path | None = None) -> Cgroup:
    """Return the cgroup of this process, which is charged for the pages that it touches first."""
    return cgroup_of("self", proc) or Cgroup(unified=CGROUP_ROOT)


def cgroup_of(pid: int | str, proc: Path | None = None) -> Cgroup | None:
    paths, mounts, found = cgroup_paths(pid, proc), mount_points(proc), {}
    if not mounts.keys() & {"unified", *V1_CONTROLLERS}:
        mounts["unified"] = (CGROUP_ROOT, "/")
    for controller in ("unified", *V1_CONTROLLERS):
        if controller in mounts and controller in paths:
            mount, mounted = mounts[controller]
            path = paths[controller]
            path = path if mounted == "/" else path.removeprefix(mounted)
            directory = mount / path.lstrip("/")
            # In a container the path may be that of the host, which is not mounted there: the
            # mount point is then the container's own group.
            is_there = controller == "unified" or directory.is_dir()
            found[controller] = directory if is_there else mount
    return Cgroup(**found) if found else None


def cgroup_paths(pid: int | str, proc: Path | None = None) -> dict[str, str]:
    """Return a process's path by controller of version 1, `unified`, and such as `name=systemd`."""
    found: dict[str, str] = {}
    for line in (read_text((proc or PROC) / str(pid) / "cgroup") or "").splitlines():
        _, names, path = line.split(":", 2)
        found |= dict.fromkeys(names.split(",") if names else ["unified"], path)
    return found


# --- Processes ------------------------------------------------------------------------------------


def pids_in(*directories: Path) -> list[int]:
    files = [Path(one, "cgroup.procs") for place in directories for one, *_ in os.walk(place)]
    return sorted({int(word) for file in files for word in (read_text(file) or "").split()})


def members(cgroup: Cgroup) -> list[ProcessInfo]:
    """Return the live processes in a cgroup and its descendants, in any hierarchy."""
    pids = filter(is_running, pids_in(*cgroup.directories))
    return [ProcessInfo(pid, name_of(pid), str(cgroup)) for pid in pids]


def outside(pid: int, cgroup: Cgroup) -> list[ProcessInfo]:
    """Return those of a process and its descendants that left the cgroup, with their directory."""
    found = []
    for one in tree(pid):
        place = cgroup_of(one)
        for controller, inside in cgroup.by_controller.items() if place else ():
            there: Path | None = getattr(place, controller)
            if there is None or not there.is_relative_to(inside):
                if not is_exiting(one):
                    found.append(ProcessInfo(one, name_of(one), str(there or place)))
                break
    return found
