"""The kernel's file systems that verify reads, and what this machine hides from it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.system.block_device import SYS
from pagecage.agent.system.cgroup import CGROUP_ROOT, Cgroup, ancestors
from pagecage.agent.system.kernel_text import read_text
from pagecage.agent.system.procfs import PROC
from pagecage.errors import HostError

_FIRST_NAMESPACE = "cgroup:[4026531835]"  # PROC_CGROUP_INIT_INO (include/linux/proc_ns.h)


@dataclass(frozen=True)
class KernelTrees:
    """The mount points of cgroup2, procfs and sysfs."""

    cgroup: Path = CGROUP_ROOT
    proc: Path = PROC
    sys: Path = SYS

    def shown(self, cgroup: Path) -> str:
        """Return a cgroup's path below the mount point; `/` is the mount point itself."""
        below = cgroup.relative_to(self.cgroup)
        return str(below) if below.parts else "/"


def require_cgroup2(kernel: KernelTrees) -> None:
    """Raise HostError if memory and I/O are controlled by cgroup v1, or by none."""
    if not (kernel.cgroup / "cgroup.controllers").exists():
        raise HostError(
            "this machine has no cgroup v2, so it cannot be told which limits are in force, which"
            " were lost and which one binds",
            "boot with systemd.unified_cgroup_hierarchy=1",
        )


def lineage(cgroup: Path, kernel: KernelTrees) -> tuple[Path, ...]:
    """Return a cgroup and all its visible ancestors, nearest first, the mount point included.

    In a cgroup namespace the mount point is an ordinary cgroup with limits of its own.
    """
    above = ancestors(Cgroup(unified=cgroup), kernel.cgroup)
    return tuple(dict.fromkeys((cgroup, *(one.directories[0] for one in above), kernel.cgroup)))


def pids_of(cgroup: Path) -> list[int]:
    """Return the processes of a cgroup and of its descendants."""
    folders = (Path(folder) for folder, _, _ in os.walk(cgroup))
    words = (
        word for folder in folders for word in (read_text(folder / "cgroup.procs") or "").split()
    )
    return sorted({int(word) for word in words if word.isdigit()})


def notes(cgroup: Path, kernel: KernelTrees) -> Iterator[str]:
    """Yield a sentence for each kind of evidence that this machine hides."""
    if _namespace(kernel) not in (None, _FIRST_NAMESPACE):
        yield (
            "This process is in a cgroup namespace: limits of the cgroups above"
            f" {kernel.cgroup} are hidden."
        )
    if read_text(cgroup / "io.pressure") is None:
        yield (
            "The kernel has no pressure figures for this cgroup (psi=1 on its command line), so a"
            " limit counts as binding only where it is nearly full."
        )


def _namespace(kernel: KernelTrees) -> str | None:
    try:
        return str((kernel.proc / "self/ns/cgroup").readlink())
    except OSError:
        return None
