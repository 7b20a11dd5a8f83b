"""The verification of a target, and the evidence that this machine hides."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pagecage.linux.cgroup import Cgroup, ancestors, is_real_root, pids_in
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
    open_disks,
    require_cgroups,
    used_disks,
)
from pagecage.verify.target import Subject, Target, find_target
from pagecage.verify.watch import Watched, watch

_FIRST_NAMESPACE = "cgroup:[4026531835]"  # PROC_CGROUP_INIT_INO (include/linux/proc_ns.h)
_WRITES = ("IOWriteBandwidthMax", "IOWriteIOPSMax")


def notes(target: Target, effective: Sequence[LimitInForce], kernel: KernelTrees) -> Iterator[str]:
    mount, namespace = kernel.mount_of(target.directory), None
    with suppress(OSError):
        namespace = str((kernel.proc / "self/ns/cgroup").readlink())
    if namespace not in (None, _FIRST_NAMESPACE):
        place = "a cgroup namespace"
    else:
        place = "a container" if any(one != "/" for _, one in kernel.mounts.values()) else ""
    if place:
        yield f"This process is in {place}: limits of the cgroups above {mount} are hidden."
    for name in kernel.missing_controllers():
        yield f"No hierarchy that is mounted here has the controller {name}."
    yield from _version_1(target.cgroup, effective, kernel)
    yield from _uncounted(target.cgroup, effective)


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

    def to_json(self) -> dict[str, object]:
        return {
            "type": "verification",
            "verification_version": VERSION,
            "unix_seconds": round(self.unix_seconds, 3),
            "kernel": os.uname().release,
            "target": self.target.description,
            "cgroup": str(self.target.directory),
            "processes": self.processes,
            "limits": [
                {
                    "name": limit.name,
                    "disk": limit.maj_min and disk_name(limit.maj_min, self.kernel),
                    "maj_min": limit.maj_min,
                    "value": limit.value,
                    "file": str(limit.file),
                    "effective": limit in self.effective,
                }
                for limit in self.limits
            ],
            "requested": [one.to_json(self.kernel) for one in self.comparisons],
            "io_bytes": self.used_bytes,
            "seconds": round(self.watched.seconds, 3),
            "bound": [use.to_json() for use in self.watched.uses],
            "waited": self.watched.waited,
            "oom_kills": self.watched.oom_kills,
            "notes": list(self.notes),
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
    kernel = kernel or KernelTrees()
    subject.check()
    expected_limits(expected, Cgroup())
    require_cgroups(kernel)
    target = find_target(subject, kernel)
    asked_here = expected_limits(expected, group_at(target.directory, target.cgroup, kernel))
    unix_seconds = time.time()
    limits = all_limits((target.cgroup, *ancestors(target.cgroup, kernel.proc)))
    effective, pids = tightest(limits), pids_in(target.directory)
    compared, told = _compared(target, asked_here, pids, kernel)
    used = dict(used_disks(target.cgroup))

    def is_there() -> bool:
        if target.process is not None:
            return is_alive(target.process, kernel.proc)
        return target.directory.is_dir()

    watched = watch(target.cgroup, effective, seconds, is_there)
    if watched.ended:
        end = f"ended while it was watched, after {watched.seconds:.1f} s."
        told.append(f"The {target.description} {end}")
    return Verification(
        *(target, kernel, tuple(limits), tuple(effective), tuple(compared), used, len(pids)),
        *(watched, (*notes(target, effective, kernel), *told), unix_seconds),
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
