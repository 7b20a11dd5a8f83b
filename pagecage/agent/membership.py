"""Who is in a cage, and which of a program's processes have left it: where no limit holds, nothing was measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagecage.agent import cgroupfs
from pagecage.agent.kernelfs import read_text

PROC = Path("/proc")


@dataclass(frozen=True)
class Member:
    """A process by its id, the name of its command, and its cgroup."""

    pid: int
    name: str
    cgroup: str

    def to_json(self) -> dict[str, Any]:
        """As records keep it."""
        return asdict(self)


def members(cgroup: Path) -> list[Member]:
    """Living processes in a cgroup and below."""
    pids = {int(word) for file in _procs(cgroup) for word in (read_text(file) or "").split()}
    return [Member(pid, _name(pid), str(cgroup)) for pid in sorted(pids) if _lives(pid)]


def _procs(cgroup: Path) -> Iterator[Path]:
    """The lists of processes of a cgroup and of those below; one that goes while we look is none."""
    for folder, _, files in os.walk(cgroup):
        if "cgroup.procs" in files:
            yield Path(folder, "cgroup.procs")


def outside(pid: int, cgroup: Path) -> list[Member]:
    """Of a process and all below it, those that are in another cgroup."""
    found = []
    for one in _family(pid):
        place = cgroupfs.cgroup_of(one)
        if place is not None and place != cgroup and cgroup not in place.parents and _lives(one):
            found.append(Member(one, _name(one), str(place)))
    return found


def _family(pid: int) -> Iterator[int]:
    """The process and its descendants; only itself where the kernel has no list of children (proc_pid_task(5))."""
    yield pid
    for task in _tasks(pid):
        for child in (read_text(task / "children") or "").split():
            yield from _family(int(child))


def _tasks(pid: int) -> list[Path]:
    try:
        return list((PROC / str(pid) / "task").iterdir())
    except OSError:  # it has gone
        return []


def _name(pid: int) -> str:
    return (read_text(PROC / str(pid) / "comm") or "?").strip()


def _lives(pid: int) -> bool:
    """Whether it still runs: neither gone nor a zombie (proc_pid_stat(5))."""
    state = (read_text(PROC / str(pid) / "stat") or "").rpartition(")")[2].split()
    return bool(state) and state[0] not in "ZX"
