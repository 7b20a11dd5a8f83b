"""CPU time that a trial lost to other processes, to a limit of an ancestor or to a hypervisor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.model.record import Record
from pagecage.verdicts.counters import (
    cpu_seconds,
    difference,
    has_cgroup,
    host_cpu_seconds,
    stalled_seconds,
)

STEAL_SHARE = 0.05
"""CPU time that a hypervisor took, as a share of the measured time."""
CPU_PRESSURE_SHARE = 0.20
"""Time in which a runnable task of the slice waited for a CPU, as a share of the measured time."""
OTHER_CPUS = 0.25
"""CPUs busy with other processes beside a trial that has no cgroup; pagecage needs a few tenths of
this."""
OUTER_CPUS = 0.5
"""CPUs of the outer host busy with anything but the guest; pagecage needs a few hundredths."""
SHORTEST_SECONDS = 0.2
"""In less time, counters with ticks of 10 ms cannot distinguish 5 % from nothing."""
LEAST_LOST_SECONDS = 0.05
"""Less lost time than this is a handful of ticks and never counts as noise."""
IDLE_SHARE = 0.1
"""Share of the CPUs' time that is idle if no task has to wait for another."""
ONE_THREAD = 1.2
"""A slice that used more CPUs than this caused its own CPU pressure."""
_BUSY = ("user", "nice", "system", "irq", "softirq")

# A finding is (state, sentence); state is True for quiet, False for not quiet, None for not known.
Finding = tuple[bool | None, str]


def stolen_time(record: Record, seconds: float) -> Finding | None:
    """Check the CPU time that a hypervisor gave to others (`steal`, proc_stat(5))."""
    stolen = host_cpu_seconds(record, "steal")
    if stolen is None:
        return None
    if seconds < SHORTEST_SECONDS:
        return None, f"{seconds:.3f} s are too short to measure stolen time"
    is_noise = stolen > STEAL_SHARE * seconds and stolen > LEAST_LOST_SECONDS
    return (
        not is_noise,
        f"the hypervisor took CPU time worth {100 * stolen / seconds:.1f} % of the measured time",
    )


def cpu_wait(record: Record, seconds: float) -> Finding | None:
    """Check the slice's waits for a CPU, unless CPUQuota or its own threads cause them.

    Without a cgroup they are the machine's, and `other_processes` judges who kept the CPUs busy.
    It also does for a server, whose processes wait for each other on the CPUs beside its load's.
    """
    waited = stalled_seconds(record, "cpu")
    used = cpu_seconds(record)
    has_quota = "CPUQuota" in (record.cage.requested or {})
    has_many_threads = used is not None and used > ONE_THREAD * seconds
    if waited is None or has_quota or has_many_threads or not has_cgroup(record):
        return None
    if record.load:
        return None
    is_noise = waited > CPU_PRESSURE_SHARE * seconds and waited > LEAST_LOST_SECONDS
    return (
        not is_noise,
        f"the trial waited for a CPU for {100 * waited / seconds:.1f} % of the time",
    )


def other_processes(record: Record, seconds: float) -> Finding | None:
    """Check the CPU time of other processes, where the trial's waits cannot be told from theirs."""
    own, busy = cpu_seconds(record), host_cpu_seconds(record, *_BUSY)
    if own is None or busy is None or _judges_waits(record, own, seconds):
        return None
    if record.load:
        if record.load.cpu_seconds is None:
            return None, "the CPU time of the load was not counted"
        own += record.load.cpu_seconds
    if seconds < SHORTEST_SECONDS:
        return None, f"{seconds:.3f} s are too short to measure the CPU time of other processes"
    other = max(0.0, busy - own)
    is_noise = other > OTHER_CPUS * seconds and other > LEAST_LOST_SECONDS
    return not is_noise, f"other processes kept {other / seconds:.2f} CPUs busy"


def _judges_waits(record: Record, own: float, seconds: float) -> bool:
    """Return whether `cpu_wait` judges the trial, or no CPU was short of time for it."""
    if not has_cgroup(record) or record.load:
        return False
    if own <= ONE_THREAD * seconds and "CPUQuota" not in (record.cage.requested or {}):
        return True
    idle, busy = host_cpu_seconds(record, "idle"), host_cpu_seconds(record, *_BUSY)
    return idle is None or busy is None or idle > IDLE_SHARE * (idle + busy)


def foreign_cpu_limit(record: Record) -> Finding | None:
    """Check for throttling although the cage has no CPUQuota: then an ancestor has one."""
    throttled = difference(record, "cgroup", "cpu.stat", "throttled_usec")
    if not throttled or "CPUQuota" in (record.cage.requested or {}):
        return None
    sentence = (
        f"a CPU limit that the cage does not request held the trial for {throttled / 1e6:.2f} s"
    )
    return throttled / 1e6 <= LEAST_LOST_SECONDS, sentence


def outer_host(record: Record) -> Finding | None:
    """Check the CPUs that other processes kept busy on the outer host, which a guest cannot see."""
    if not record.outer_host:
        return None
    before, after = record.outer_host.before or {}, record.outer_host.after or {}
    used, seconds = _foreign_cpu_seconds(before, after), _growth(before, after, "unix_seconds")
    if used is None or not seconds:
        return None, "the outer host's CPU time was not counted"
    if seconds < SHORTEST_SECONDS:
        return None, f"{seconds:.3f} s are too short to measure the outer host's CPU time"
    is_noise = used > OUTER_CPUS * seconds and used > LEAST_LOST_SECONDS
    return not is_noise, f"on the outer host, other processes kept {used / seconds:.2f} CPUs busy"


def _growth(before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> float | None:
    if before.get(key) is None or after.get(key) is None:
        return None
    return float(after[key] - before[key])


def _foreign_cpu_seconds(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Return the outer host's CPU seconds less QEMU's.

    The guest's ticks are part of `user` (proc_stat(5)).
    """
    guest = _growth(before, after, "qemu_cpu_seconds")
    first, last = before.get("cpu_seconds"), after.get("cpu_seconds")
    if guest is None or not first or not last:
        return None
    return max(0.0, sum(_growth(first, last, key) or 0.0 for key in (*_BUSY, "steal")) - guest)
