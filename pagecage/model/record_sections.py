"""Sections of a record: the evidence on cage, cache, device, counters and workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagecage.model.json_codec import JsonView, Section

Moment = JsonView
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
    if (cgroup := moment.get("cgroup")) is not None:
        used = (cgroup.get("cpu.stat") or {}).get("usage_usec")
    else:
        used = ((moment.get("processes") or {}).get("cpu") or {}).get("usage_usec")
    return None if used is None else float(used)


Row = JsonView


@dataclass(frozen=True)
class CageEvidence(Section):
    """The limits that were requested, and the evidence that they were in force."""

    name: str | None = None
    requested: JsonView | None = None
    read_back: Mapping[str, str] | None = None
    read_back_after: Mapping[str, str] | None = None
    expected: Mapping[str, str] | None = None
    ancestors: Mapping[str, Mapping[str, str]] | None = None
    ancestors_after: Mapping[str, Mapping[str, str]] | None = None
    slice: str | None = None
    hierarchy: str | None = None
    counter_files: Mapping[str, tuple[str, ...]] | None = None
    calibration: Mapping[str, Row] | None = None
    driver: Row | None = None
    driver_cgroup: str | None = None
    external: Row | None = None
    volume: Row | None = None
    burst: Row | None = None
    accounting: Row | None = None
    latency: Row | None = None
    fidelity: tuple[Row, ...] | None = None
    credits: Row | None = None
    simulation: Row | None = None
    enforced_by: str | None = None
    dilation: float | None = None


@dataclass(frozen=True)
class CacheCheck(Section):
    """Page cache figures at one moment. None means that this kernel does not report the figure.

    `resident_bytes` of the trial's files are in the page cache. The slice is charged for
    `charged_bytes` of page cache, has read `read_bytes` from the trial's disk, and has lost
    `reclaimed_bytes` to reclaim; cgroup v1 does not count them. It has met its memory limit
    `limit_hits` times. `host_reclaimed_bytes` were reclaimed from any cgroup because the host was
    short of memory.
    """

    resident_bytes: int
    charged_bytes: int | None = None
    read_bytes: int | None = None
    reclaimed_bytes: int | None = None
    host_reclaimed_bytes: int | None = None
    limit_hits: int | None = None

    def since(self, before: CacheCheck, key: str) -> int | None:
        """Return the growth of a figure since an earlier check; None if one lacks it."""
        first, last = getattr(before, key), getattr(self, key)
        return None if first is None or last is None else last - first


@dataclass(frozen=True)
class CacheEvidence(Section):
    """The page-cache state of the trial's files, from its proof to the end of the measured part."""

    requested: str | None = None
    method: str | None = None
    file_bytes: int | None = None
    resident_bytes_before: int | None = None
    resident_bytes_after: int | None = None
    charged_to: str | None = None
    step: Row | None = None
    start: CacheCheck | None = None
    go: CacheCheck | None = None
    end: CacheCheck | None = None
    charge_lag_bytes: int | None = None
    evicted_bytes: int | None = None
    came_bytes: int | None = None
    least_resident_bytes: int | None = None
    metadata: str | None = None


@dataclass(frozen=True)
class DataEvidence(Section):
    """The prepared or copied data of the trial, and their restoration before it."""

    directory: str | None = None
    key: str | None = None
    made_by: tuple[str, ...] | None = None
    entries: int | None = None
    size_bytes: int | None = None
    manifest_sha256: str | None = None
    restored: Row | None = None


@dataclass(frozen=True)
class DeviceEvidence(Section):
    """The disk that was measured. `own_disk` is the file of one that pagecage made by loop."""

    name: str | None = None
    maj_min: str | None = None
    node: str | None = None
    filesystem: str | None = None
    mount_point: str | None = None
    stack: tuple[str, ...] | None = None
    queue_settings: JsonView | None = None
    queue_settings_after: JsonView | None = None
    caches_below: tuple[Row, ...] | None = None
    storage: str | None = None
    read_latency_us: float | None = None
    own_disk: str | None = None


@dataclass(frozen=True)
class DiskEvidence(Section):
    """Another disk of the cage. Its counters are below `disks` in each moment of counters."""

    device: DeviceEvidence = DeviceEvidence()
    cage: CageEvidence = CageEvidence()


@dataclass(frozen=True)
class CountersEvidence(Section):
    """Counters before and after the measured part, of the slice's whole life, and around it."""

    before: Row | None = None
    after: Row | None = None
    totals: Row | None = None
    around: Row | None = None


@dataclass(frozen=True)
class ExitEvidence(Section):
    """The end of the workload. A negative `status` is the signal that ended it."""

    status: int | None = None
    oom_kill: int | None = None
    stderr_tail: tuple[str, ...] | None = None
    ended_by_itself: bool | None = None
    left_behind: tuple[Row, ...] | None = None
    escaped: tuple[Row, ...] | None = None
    stdout: Row | None = None


@dataclass(frozen=True)
class LoadEvidence(Section):
    """The load of a service, whose CPU time no counter of the cage includes.

    `during` is the part that the trial reached: `start`, `warm_up`, `settle` or `load`. `cpus` are
    those of the load. A negative `status` is the signal that ended it.
    """

    argv: tuple[str, ...] | None = None
    during: str | None = None
    warm_up: Row | None = None
    cpus: tuple[int, ...] | None = None
    server_cpus: tuple[int, ...] | None = None
    cpu_note: str | None = None
    status: int | None = None
    ended_by_itself: bool | None = None
    user_seconds: float | None = None
    system_seconds: float | None = None
    stderr_tail: tuple[str, ...] | None = None
    output_bytes: int | None = None
    metrics: Mapping[str, float] | None = None
    missing_metric: str | None = None

    @property
    def cpu_seconds(self) -> float | None:
        if self.user_seconds is None or self.system_seconds is None:
            return None
        return self.user_seconds + self.system_seconds


@dataclass(frozen=True)
class WorkloadEvidence(Section):
    """The program that ran. `environment` has names alone, since values may be secrets."""

    program: str | None = None
    argv: tuple[str, ...] | None = None
    sha256: str | None = None
    checksum: Any = None
    checksum_ok: bool | None = None
    end: Row | None = None
    environment: tuple[str, ...] | None = None
    home: str | None = None


@dataclass(frozen=True)
class MachineEvidence(Section):
    """Settings that decide the trial's speed besides its limits, at `go` and at the end."""

    before: Row | None = None
    after: Row | None = None


@dataclass(frozen=True)
class MemoryEvidence(Section):
    """The memory left to the guest for the trial."""

    requested_bytes: int | None = None
    available_bytes: int | None = None
    hugepages: int | None = None
    hugepage_bytes: int | None = None


@dataclass(frozen=True)
class DirtyLimitsEvidence(Section):
    """Dirty limits in bytes by file name of /proc/sys/vm."""

    requested: Mapping[str, int] | None = None
    in_force: Mapping[str, int] | None = None


@dataclass(frozen=True)
class MeasuredInterval:
    """The measured part in wall-clock time and CLOCK_MONOTONIC."""

    start_wall_seconds: float
    start_monotonic_seconds: float
    seconds: float

    @property
    def end_monotonic_seconds(self) -> float:
        return self.start_monotonic_seconds + self.seconds

    def holds(self, monotonic_seconds: float) -> bool:
        return self.start_monotonic_seconds <= monotonic_seconds <= self.end_monotonic_seconds


@dataclass(frozen=True)
class PhaseTiming:
    """The times of one phase."""

    name: str
    start_wall_seconds: float
    start_monotonic_seconds: float
    seconds: float


@dataclass(frozen=True)
class MissedEntry:
    """A requirement that the host does not meet."""

    requirement: str
    reason: str
    hint: str = ""


@dataclass(frozen=True)
class OuterHost(Section):
    """Counters of the machine around a guest, before and after the measured part."""

    before: Row | None = None
    after: Row | None = None
