"""The verification of a target, and the evidence that this machine hides."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.linux.cgroup import Cgroup, is_real_root
from pagecage.linux.cgroup_files import read_counters
from pagecage.model.cage import MEMORY_EVENT
from pagecage.process import is_alive
from pagecage.verify.comparison import (
    LimitComparison,
    LimitInForce,
    RequestedLimit,
    all_limits,
    compare,
    expected_limits,
    requested_limits,
    tightest,
)
from pagecage.verify.kernel import (
    KernelTrees,
    disk_name,
    group_at,
    lineage,
    open_disks,
    pids_of,
    require_cgroups,
    used_disks,
)
from pagecage.verify.target import Subject, Target, find_target
from pagecage.verify.watch import LimitUse, Watched, watch

_FIRST_NAMESPACE = "cgroup:[4026531835]"  # PROC_CGROUP_INIT_INO (include/linux/proc_ns.h)
_WRITES = ("IOWriteBandwidthMax", "IOWriteIOPSMax")


def notes(target: Target, effective: Sequence[LimitInForce], kernel: KernelTrees) -> Iterator[str]:
    yield from _hidden_groups(kernel, kernel.mount_of(target.directory))
    for name in kernel.missing_controllers():
        yield f"No hierarchy that is mounted here has the controller {name}."
    yield from _version_1(target.cgroup, effective, kernel)
    yield from _uncounted(target.cgroup, effective)


def _hidden_groups(kernel: KernelTrees, mount: Path | None) -> Iterator[str]:
    if _namespace(kernel) not in (None, _FIRST_NAMESPACE):
        yield (
            "This process is in a cgroup namespace: limits of the cgroups above"
            f" {mount} are hidden."
        )
    elif any(mounted != "/" for _, mounted in kernel.mounts.values()):
        yield f"This process is in a container: limits of the cgroups above {mount} are hidden."


def _namespace(kernel: KernelTrees) -> str | None:
    try:
        return str((kernel.proc / "self/ns/cgroup").readlink())
    except OSError:
        return None


def _version_1(
    cgroup: Cgroup, effective: Sequence[LimitInForce], kernel: KernelTrees
) -> Iterator[str]:
    if "memory" in kernel.mounts:
        yield (
            "Memory is controlled by cgroup v1, which has no MemoryHigh, and counts neither reclaim"
            " nor the times that a limit on swap was met."
        )
    if "blkio" in kernel.mounts:
        yield (
            "I/O is controlled by cgroup v1, which may count no I/O on a disk that never had a"
            " limit."
        )
    if is_real_root(cgroup.blkio, "blkio"):
        yield "The program is in the root of blkio, whose counters include the I/O of every group."
    for limit in effective:
        if limit.name in _WRITES and cgroup.blkio:
            yield (
                f"{limit.name} does not hold buffered writes back: in cgroup v1 the kernel's"
                " flusher writes them, outside of the cgroup."
            )


def _uncounted(cgroup: Cgroup, effective: Sequence[LimitInForce]) -> Iterator[str]:
    counters = read_counters(cgroup, "io.pressure", "memory.pressure", "memory.stat")
    if counters["io.pressure"] is None:
        reason = (
            "The kernel has no pressure figures for this cgroup (psi=1 on its command line)"
            if cgroup.unified
            else "The program has no cgroup of its own in version 2, where pressure is counted"
        )
        yield f"{reason}, so a limit counts as binding only where it is nearly full."
    has_refaults = "workingset_refault_file" in (counters["memory.stat"] or {})
    if {limit.name for limit in effective} & MEMORY_EVENT.keys() and not (
        has_refaults or counters["memory.pressure"]
    ):
        yield (
            "The kernel counts neither refaults nor waits for memory in this cgroup: what the"
            " memory limit costs is unknown, and only its hits are counted."
        )


VERSION = 1


@dataclass(frozen=True)
class Verification:
    """The result for one target.

    `limits` has every limit of the cgroup and its ancestors that can hold, nearest first,
    `effective` the tightest of each kind and disk. `used_bytes` is the I/O so far, by disk.
    """

    target: Target
    kernel: KernelTrees
    limits: tuple[LimitInForce, ...]
    effective: tuple[LimitInForce, ...]
    comparisons: tuple[LimitComparison, ...]
    used_bytes: dict[str, int]
    processes: int
    watched: Watched
    notes: tuple[str, ...]
    unix_seconds: float

    @property
    def failed(self) -> bool:
        return any(one.is_failure for one in self.comparisons)

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "verification",
            "verification_version": VERSION,
            "unix_seconds": round(self.unix_seconds, 3),
            "kernel": os.uname().release,
            "target": self.target.description,
            "cgroup": str(self.target.directory),
            "processes": self.processes,
            "limits": [self._limit_to_json(limit) for limit in self.limits],
            "requested": [one.to_json(self.kernel) for one in self.comparisons],
            "io_bytes": self.used_bytes,
            "seconds": round(self.watched.seconds, 3),
            "bound": [self._use_to_json(use) for use in self.watched.uses],
            "waited": self.watched.waited,
            "oom_kills": self.watched.oom_kills,
            "notes": list(self.notes),
        }

    def _limit_to_json(self, limit: LimitInForce) -> dict[str, Any]:
        disk = limit.maj_min and disk_name(limit.maj_min, self.kernel)
        return {
            "name": limit.name,
            "disk": disk,
            "maj_min": limit.maj_min,
            "value": limit.value,
            "file": str(limit.file),
            "effective": limit in self.effective,
        }

    def _use_to_json(self, use: LimitUse) -> dict[str, Any]:
        return {
            "name": use.limit.name,
            "maj_min": use.limit.maj_min,
            "file": str(use.limit.file),
            "bound_seconds": round(use.bound_seconds, 3),
            "used_share": use.used_share,
            "per_second": use.per_second,
            "hits": use.hits,
            "periods": use.periods,
        }


def verify(
    subject: Subject,
    seconds: float = 10.0,
    kernel: KernelTrees | None = None,
    expected: Sequence[str] = (),
) -> Verification:
    """Verify a running unit, container or process, and watch its limits for some seconds.

    `expected` are limits that should be in force, written as in a unit file.

    Raises PagecageError if the target does not exist or is not running, HostError if this machine
    cannot tell.
    """
    kernel = KernelTrees() if kernel is None else kernel
    subject.check()
    expected_limits(expected, Cgroup())
    require_cgroups(kernel)
    target = find_target(subject, kernel)
    asked_here = expected_limits(expected, group_at(target.directory, target.cgroup, kernel))
    unix_seconds = time.time()
    limits = all_limits(lineage(target.cgroup, kernel))
    effective, pids = tightest(limits), pids_of(target.directory)
    compared, told = _compared(target, asked_here, pids, kernel)
    used = dict(used_disks(target.cgroup))
    watched = watch(target.cgroup, effective, seconds, lambda: _is_there(target, kernel))
    return Verification(
        target,
        kernel,
        tuple(limits),
        tuple(effective),
        tuple(compared),
        used,
        len(pids),
        watched,
        (*notes(target, effective, kernel), *told, *_ended(target, watched)),
        unix_seconds,
    )


def _compared(
    target: Target, expected: Sequence[RequestedLimit], pids: Sequence[int], kernel: KernelTrees
) -> tuple[list[LimitComparison], list[str]]:
    requested, told = requested_limits(target, kernel, expected)
    has_devices = any(one.device for one in requested)
    on_disks, complete = open_disks(pids, kernel) if has_devices else (set[str](), True)
    if not complete:
        told.append("The open files of another user's processes were not read; root may read them.")
    return compare(requested, target.cgroup, kernel, on_disks if complete else None), told


def _is_there(target: Target, kernel: KernelTrees) -> bool:
    if target.process is not None:
        return is_alive(target.process, kernel.proc)
    return target.directory.is_dir()


def _ended(target: Target, watched: Watched) -> Iterator[str]:
    if watched.ended:
        yield f"The {target.description} ended while it was watched, after {watched.seconds:.1f} s."
