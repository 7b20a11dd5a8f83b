"""A trial's own share of the counters of one moment, from its cgroup or from its processes.

A moment has `cgroup` or `processes`, and beside them `device`. Without a cgroup the kernel counts a
process's bytes but not its I/Os, so the numbers of I/Os are the disk's: they include those of other
processes, which the verdict on a quiet host bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Moment = Mapping[str, Any]
SECTOR_BYTES = 512
"""Unit of the sectors in /proc/diskstats, for every disk (Documentation/block/stat.rst)."""
_OF_DISK = {"rios": "reads", "wios": "writes"}


def io_count(moment: Moment, maj_min: str | None, key: str) -> float | None:
    """Return a counter of io.stat (`rbytes wbytes rios wios`) on one disk; None if unknown.

    io.stat has no line for a disk that the cgroup never touched, which is 0. Without a cgroup,
    `wbytes` are the bytes that the processes dirtied (proc_pid_io(5)).
    """
    if (cgroup := moment.get("cgroup")) is not None:
        table = cgroup.get("io.stat")
        if not isinstance(table, Mapping) or maj_min is None:
            return None
        return float((table.get(maj_min) or {}).get(key, 0))
    processes = moment.get("processes")
    if processes is None:
        return None
    of_disk = key in _OF_DISK
    source = moment.get("device") if of_disk else processes["io"]
    found = (source or {}).get(_OF_DISK.get(key, key))
    return None if found is None else float(found)


def stall_usec(moment: Moment, resource: str, kind: str) -> float | None:
    """Return the microseconds in which `some` or all (`full`) tasks waited for a resource.

    Source: Documentation/accounting/psi.rst. Without a cgroup it is the machine's pressure, or, on
    a kernel without it, the run delay of the trial's threads.
    """
    owner = moment.get("cgroup")
    pressure = None if owner is None else owner.get(f"{resource}.pressure")
    if owner is None and (processes := moment.get("processes")) is not None:
        pressure = (processes.get("pressure") or {}).get(resource)
        if pressure is None and (resource, kind) == ("cpu", "some"):
            delay: float | None = processes.get("run_delay_usec")
            return delay
    found = ((pressure or {}).get(kind) or {}).get("total")
    return None if found is None else float(found)


def cpu_usec(moment: Moment) -> float | None:
    """Return the CPU time that the trial has used, in microseconds."""
    if (cgroup := moment.get("cgroup")) is not None:
        used = (cgroup.get("cpu.stat") or {}).get("usage_usec")
    else:
        used = ((moment.get("processes") or {}).get("cpu") or {}).get("usage_usec")
    return None if used is None else float(used)
