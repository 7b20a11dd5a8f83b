"""The verification of a target: limits, evidence that is hidden here, and limits that bound.

Which limits bound in the watched seconds follows from counters of the kernel alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pagecage.linux.cgroup import Cgroup, ancestors, is_real_root, pids_in
from pagecage.linux.cgroup_files import COUNTERS_AND_EVENTS, read_counters
from pagecage.model.cage import IO_STAT_KEY, MEMORY_EVENT, enforced_limit
from pagecage.model.json_codec import Json
from pagecage.process import is_alive
from pagecage.units import kernel_page_bytes
from pagecage.verdicts.windows import Window, binding_limit
from pagecage.verify import comparison
from pagecage.verify.comparison import LimitComparison, LimitInForce, RequestedLimit
from pagecage.verify.kernel import (
    KernelTrees,
    disk_name,
    group_at,
    open_disks,
    require_cgroups,
    used_disks,
)
from pagecage.verify.target import Subject, Target, find_target

WINDOW_SECONDS = 0.5
"""As in verdicts/windows.py: five slices of blk-throttle."""
_EVENTS = {
    "MemoryMax": ("memory.events", "max"),
    "MemoryHigh": ("memory.events", "high"),
    "MemorySwapMax": ("memory.swap.events", "max"),
}
_KINDS = ("io", "memory", "cpu")


@dataclass(frozen=True)
class Snapshot:
    """The counters of cgroups at one moment of CLOCK_MONOTONIC."""

    at_seconds: float
    counters: dict[Cgroup, Json]


@dataclass(frozen=True)
class LimitUse:
    """The use of one limit in the watched time.

    `bound_seconds` is the time in which the limit held the program back. `used_share` is the mean
    use of an I/O cap. `hits` counts how often a memory limit was met, and the throttled periods of
    a CPU quota, of `periods`; it is None for a limit that the kernel does not count.
    """

    limit: LimitInForce
    bound_seconds: float
    used_share: float | None = None
    per_second: float | None = None
    hits: int | None = None
    periods: int | None = None

    def to_json(self) -> dict[str, object]:
        limit, figures = self.limit, {**vars(self), "bound_seconds": round(self.bound_seconds, 3)}
        del figures["limit"]
        return {"name": limit.name, "maj_min": limit.maj_min, "file": str(limit.file), **figures}


@dataclass(frozen=True)
class Watched:
    """The watched time, each limit's use, and the shares spent waiting, None without pressure."""

    seconds: float
    uses: tuple[LimitUse, ...] = ()
    waited: dict[str, float | None] | None = None
    oom_kills: int = 0
    ended: bool = False


def take(cgroups: Iterable[Cgroup]) -> Snapshot:
    at_seconds = time.monotonic()
    there = (cgroup for cgroup in cgroups if cgroup.exists() or not cgroup.directories)
    return Snapshot(at_seconds, {one: read_counters(one, *COUNTERS_AND_EVENTS) for one in there})


def watch(
    cgroup: Cgroup,
    limits: Sequence[LimitInForce],
    seconds: float,
    is_alive: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> Watched:
    cgroups = dict.fromkeys((cgroup, *(limit.cgroup for limit in limits)))
    taken = [take(cgroups)]
    end_seconds = taken[0].at_seconds + seconds
    ended = False
    while not ended and taken[-1].at_seconds < end_seconds:
        sleep(min(WINDOW_SECONDS, max(0.0, end_seconds - time.monotonic())))
        now = take(cgroups)
        ended = cgroup not in now.counters or not is_alive()
        if now.counters.keys() == taken[0].counters.keys():
            taken.append(now)
    return summary(cgroup, limits, taken, ended)


def summary(
    cgroup: Cgroup, limits: Sequence[LimitInForce], taken: Sequence[Snapshot], ended: bool = False
) -> Watched:
    first, last = taken[0], taken[-1]
    seconds = last.at_seconds - first.at_seconds
    if seconds <= 0:
        return Watched(0.0, ended=ended)
    kills = _growth(first, last, cgroup, "memory.events", "oom_kill")
    waited = {kind: _waited(cgroup, kind, first, last) for kind in _KINDS}
    return Watched(
        seconds,
        tuple(_use(cgroup, limit, taken) for limit in limits),
        {kind: None if one is None else one / seconds for kind, one in waited.items()},
        int(kills or 0),
        ended,
    )


def _use(cgroup: Cgroup, limit: LimitInForce, taken: Sequence[Snapshot]) -> LimitUse:
    windows = [_window(cgroup, limit, one, other) for one, other in zip(taken, taken[1:])]  # noqa: B905, RUF007 - Python 3.9
    bound = sum(window.seconds for window in windows if _binds(limit, window))
    first, last = taken[0], taken[-1]
    if key := IO_STAT_KEY.get(limit.name):
        per_second = sum(w.moved[key] for w in windows) / (last.at_seconds - first.at_seconds)
        return LimitUse(limit, bound, per_second / max(1.0, limit.value), per_second)
    if limit.name == "CPUQuota":
        place = (first, last, limit.cgroup, "cpu.stat")
        throttled, periods = (
            int(_growth(*place, f"nr_{n}") or 0) for n in ("throttled", "periods")
        )
        return LimitUse(limit, bound, hits=throttled, periods=periods)
    hits = _hits(limit, first, last)
    return LimitUse(limit, bound, hits=None if hits is None else int(hits))


def _binds(limit: LimitInForce, window: Window) -> bool:
    """Return whether the limit held the program back in a window, by the rule for trials."""
    if limit.name == "MemorySwapMax":
        return bool(window.limit_hits)
    memory = {"MemoryMax": limit.value} if limit.name in _EVENTS else {}
    found = binding_limit(window, memory)
    if limit.name in IO_STAT_KEY:
        return found.property == limit.name
    return found.name == ("memory" if memory else "cpu")


def _window(cgroup: Cgroup, limit: LimitInForce, first: Snapshot, last: Snapshot) -> Window:
    is_io, is_cpu = limit.name in IO_STAT_KEY, limit.name == "CPUQuota"
    seconds = last.at_seconds - first.at_seconds
    throttled = _growth(first, last, limit.cgroup, "cpu.stat", "throttled_usec")
    place = limit.cgroup if is_io else cgroup
    disks = [limit.maj_min] if limit.maj_min else list(last.counters[place]["io.stat"] or {})
    moved = {}  # on the limited disk; for a limit on memory or CPU, on the busiest
    for key in IO_STAT_KEY.values():
        grown = (_growth(first, last, place, "io.stat", one, key) for one in disks)
        moved[key] = max((count for count in grown if count), default=0.0)
    return Window(
        start_seconds=0.0,
        seconds=seconds,
        moved=moved,
        caps={limit.name: max(1.0, enforced_limit(limit.name, limit.value))} if is_io else {},
        waited_io=_waited(cgroup, "io", first, last) if is_io else None,
        waited_memory=_waited(cgroup, "memory", first, last),
        waited_cpu=None,
        refault_pages=_growth(first, last, cgroup, "memory.stat", "workingset_refault_file"),
        page_bytes=kernel_page_bytes(),
        limit_hits=_hits(limit, first, last),
        disk_busy=None,
        cpu=None,
        throttled=1e-6 * throttled if is_cpu and throttled is not None else None,
    )


def _hits(limit: LimitInForce, first: Snapshot, last: Snapshot) -> float | None:
    """Return how often a memory limit was met, by the cgroup's own events if the kernel has them.

    `memory.events` also counts the limits of descendants; `memory.events.local` does not.
    """
    if limit.name not in _EVENTS:
        return None
    file, key = _EVENTS[limit.name]
    own = _growth(first, last, limit.cgroup, f"{file}.local", key)
    return _growth(first, last, limit.cgroup, file, key) if own is None else own


def _waited(cgroup: Cgroup, kind: str, first: Snapshot, last: Snapshot) -> float | None:
    grown = _growth(first, last, cgroup, f"{kind}.pressure", "some", "total")
    return None if grown is None else 1e-6 * grown


def _growth(first: Snapshot, last: Snapshot, cgroup: Cgroup, file: str, *path: str) -> float | None:
    """Return the growth of a counter, 0 at first where it was missing; None if it still is."""
    values = []
    for snapshot in (first, last):
        value: Any = snapshot.counters.get(cgroup, {}).get(file)
        for name in path:
            value = None if value is None else value.get(name)
        values.append(value)
    return None if values[1] is None else float(values[1]) - float(values[0] or 0)


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
    counters = read_counters(target.cgroup, "io.pressure", "memory.pressure", "memory.stat")
    if counters["io.pressure"] is None:
        reason = (
            "The kernel has no pressure figures for this cgroup (psi=1 on its command line)"
            if target.cgroup.unified
            else "The program has no cgroup of its own in version 2, where pressure is counted"
        )
        yield f"{reason}, so a limit counts as binding only where it is nearly full."
    has_refaults = "workingset_refault_file" in (counters["memory.stat"] or {})
    is_limited = any(limit.name in MEMORY_EVENT for limit in effective)
    if is_limited and not has_refaults and not counters["memory.pressure"]:
        yield (
            "The kernel counts neither refaults nor waits for memory in this cgroup: what the"
            " memory limit costs is unknown, and only its hits are counted."
        )


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

    `expected` are limits that should be in force, written as in a unit file. Raises PagecageError
    if the target does not exist or is not running, HostError if this machine cannot tell.
    """
    kernel = kernel or KernelTrees()
    subject.check()
    comparison.expected_limits(expected, Cgroup())
    require_cgroups(kernel)
    target = find_target(subject, kernel)
    asked_here = comparison.expected_limits(
        expected, group_at(target.directory, target.cgroup, kernel)
    )
    unix_seconds = time.time()
    limits = comparison.all_limits((target.cgroup, *ancestors(target.cgroup, kernel.proc)))
    effective, pids = comparison.tightest(limits), pids_in(target.directory)
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
    requested, told = comparison.requested_limits(target, kernel, expected)
    has_devices = any(one.device for one in requested)
    on_disks, complete = open_disks(pids, kernel) if has_devices else (set[str](), True)
    if not complete:
        told.append("The open files of another user's processes were not read; root may read them.")
    return comparison.compare(
        requested, target.cgroup, kernel, on_disks if complete else None
    ), told
