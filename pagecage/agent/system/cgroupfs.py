"""Counters, limits and processes of a cgroup (Documentation/admin-guide/cgroup-v2.rst)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pagecage.agent.system.kernel_text import (
    parse_flat_keyed,
    parse_limits,
    parse_nested_keyed,
    parse_pressure,
    read_text,
)
from pagecage.agent.system.process_tree import ProcessInfo, is_running, name_of, tree
from pagecage.model.cage import IO_MAX_KEY

CGROUP_ROOT = Path("/sys/fs/cgroup")
_FLAT = ("memory.stat", "memory.events", "cpu.stat")
_NUMBER = ("memory.current", "memory.peak", "memory.swap.current")
_PRESSURE = ("cpu.pressure", "io.pressure", "memory.pressure")
_LIMIT = ("memory.max", "memory.high", "memory.swap.max", "cpu.max")


def read_counters(cgroup: Path) -> dict[str, Any]:
    """Return every counter that records keep of a cgroup, by file name.

    Returns None for a file that this kernel lacks.
    """
    counters: dict[str, Any] = {}
    for name in _FLAT:
        text = read_text(cgroup / name)
        counters[name] = None if text is None else parse_flat_keyed(text)
    for name in _NUMBER:
        text = read_text(cgroup / name)
        counters[name] = int(text) if text and text.strip().isdigit() else None
    for name in _PRESSURE:
        text = read_text(cgroup / name)
        counters[name] = None if text is None else parse_pressure(text)
    text = read_text(cgroup / "io.stat")
    counters["io.stat"] = None if text is None else parse_nested_keyed(text)
    return counters


def read_limits(cgroup: Path, maj_min: str) -> dict[str, str]:
    """Return limits in force, {"memory.max": text, "io.max.rbps": text}, without missing files."""
    limits: dict[str, str] = {}
    for name in _LIMIT:
        text = read_text(cgroup / name)
        if text is not None:
            limits[name] = text.strip()
    io_max = read_text(cgroup / "io.max")
    if io_max is not None:
        limits |= limits_of("io.max", io_max, maj_min)
    return limits


LIMIT_FILES = (*_LIMIT, "io.max")


def limits_of(name: str, text: str, maj_min: str) -> dict[str, str]:
    """Return the limits in the text of a file, whose name may begin with its cgroup's path."""
    if not name.endswith("io.max"):
        return {name: text.strip()}
    on_disk = parse_limits(text).get(maj_min, {})
    return {f"{name}.{key}": on_disk.get(key, "max") for key in IO_MAX_KEY.values()}


def ancestors(cgroup: Path, root: Path = CGROUP_ROOT) -> Iterator[Path]:
    """Return the parent cgroups, nearest first, without the root, which has no limits."""
    for parent in cgroup.parents:
        if parent == root or root not in parent.parents:
            return
        yield parent


def own_cgroup(root: Path = CGROUP_ROOT, proc: Path = Path("/proc")) -> Path:
    """Return the cgroup of this process, which is charged for the pages that it touches first."""
    return cgroup_of("self", root, proc) or root


def cgroup_of(pid: int | str, root: Path = CGROUP_ROOT, proc: Path = Path("/proc")) -> Path | None:
    """Return the cgroup of a process in the unified hierarchy (cgroups(7)).

    Returns None if the process is gone.
    """
    text = read_text(proc / str(pid) / "cgroup") or ""
    for line in text.splitlines():
        if line.startswith("0::"):
            return root / line[3:].lstrip("/")
    return None


def members(cgroup: Path) -> list[ProcessInfo]:
    """Return the live processes in a cgroup and its descendants."""
    pids = {int(word) for file in _procs(cgroup) for word in (read_text(file) or "").split()}
    return [ProcessInfo(pid, name_of(pid), str(cgroup)) for pid in sorted(pids) if is_running(pid)]


def _procs(cgroup: Path) -> Iterator[Path]:
    """Yield cgroup.procs of a cgroup and of its descendants, without those removed meanwhile."""
    for folder, _, files in os.walk(cgroup):
        if "cgroup.procs" in files:
            yield Path(folder, "cgroup.procs")


def outside(pid: int, cgroup: Path) -> list[ProcessInfo]:
    """Return the process and descendants of it that are in another cgroup."""
    found = []
    for one in tree(pid):
        place = cgroup_of(one)
        if (
            place is not None
            and place != cgroup
            and cgroup not in place.parents
            and is_running(one)
        ):
            found.append(ProcessInfo(one, name_of(one), str(place)))
    return found
