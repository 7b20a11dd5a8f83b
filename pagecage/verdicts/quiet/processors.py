"""CPU time that a trial lost to other processes, to a limit of an ancestor or to a hypervisor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.model.record import Record
from pagecage.verdicts.counters import (
    counter,
    cpu_seconds,
    cpu_seconds_between,
    difference,
    has_cgroup,
    host_cpu_seconds,
    stalled_seconds,
)

STEAL_SHARE = 0.05
"""CPU time that a hypervisor took, as a share of the measured time."""
CPU_PRESSURE_SHARE = 0.15
"""Time in which a runnable task of the slice waited for a CPU, as a share of the measured time."""
OTHER_CPUS = 0.25
"""CPUs busy with other processes beside a trial that has no cgroup. The agent's own time does not
count: it is a hundredth of a CPU, but on an emulated one as much as this."""
SHORTEST_SECONDS = 0.2
"""In less time, counters with ticks of 10 ms cannot distinguish 5 % from nothing."""
LEAST_LOST_SECONDS = 0.05
"""Less lost time than this is a handful of ticks and never counts as noise."""
IDLE_SHARE = 0.1
"""Share of the CPUs' time that is idle if no task has to wait for another."""
ONE_THREAD = 1.2
"""A slice that used more CPUs than this caused its own CPU pressure."""
BUSY = ("user", "nice", "system", "irq", "softirq")

# A finding is (state, sentence); state is True for quiet, False for not quiet, None for not known.
Finding = tuple[bool | None, str]


def stolen_time(record: Record, seconds: float) -> Finding | None:
    """Check the CPU time that a hypervisor gave to others (`steal`, proc_stat(5))."""
    stolen = host_cpu_seconds(record, "steal")
    if stolen is None:
        return None
    if seconds < SHORTEST_SECONDS:
        if not counter(record, "after", "host", "stat", "steal"):
            return True, "the hypervisor has taken no CPU time since the machine started"
        return _around(record, seconds, "stolen time")
    is_noise = stolen > STEAL_SHARE * seconds and stolen > LEAST_LOST_SECONDS
    return (
        not is_noise,
        f"the hypervisor took CPU time worth {100 * stolen / seconds:.1f} % of the measured time",
    )


def cpu_wait(record: Record, seconds: float) -> Finding | None:
    """Check the slice's waits for a CPU, unless CPUQuota or its own threads cause them.

    Without a cgroup they are the machine's, and `other_processes` judges who kept the CPUs busy.
    It also does for a server, whose processes wait for each other on the CPUs beside its load's.
    Others cannot make the trial wait for longer than they ran.
    """
    waited = stalled_seconds(record, "cpu")
    used = cpu_seconds(record)
    has_quota = "CPUQuota" in (record.cage.requested or {})
    has_many_threads = used is not None and used > ONE_THREAD * seconds
    if waited is None or has_quota or has_many_threads or not has_cgroup(record):
        return None
    if record.load:
        return None
    sentence = f"the trial waited for a CPU for {100 * waited / seconds:.1f} % of the time"
    most = max(CPU_PRESSURE_SHARE * seconds, LEAST_LOST_SECONDS)
    if waited <= most:
        return True, sentence
    others = _others_seconds(record)
    if others is None or others > most:
        return False, sentence
    return True, f"{sentence}, for its own threads: {_busy_sentence(others, seconds)}"


def other_processes(record: Record, seconds: float) -> Finding | None:
    """Check the CPU time of other processes, where the trial's waits cannot be told from theirs."""
    own, others = cpu_seconds(record), _others_seconds(record)
    if own is None or _judges_waits(record, own, seconds):
        return None
    if record.load and record.load.cpu_seconds is None:
        return None, "the CPU time of the load was not counted"
    if others is None:
        return None
    if seconds < SHORTEST_SECONDS:
        return _machine_waits(record, seconds) or _around(
            record, seconds, "the CPU time of other processes"
        )
    is_noise = others > OTHER_CPUS * seconds and others > LEAST_LOST_SECONDS
    sentence, agent = _busy_sentence(others, seconds), _agent_seconds(record)
    return not is_noise, f"{sentence}, pagecage {agent / seconds:.2f}" if agent else sentence


def _machine_waits(record: Record, seconds: float) -> Finding | None:
    """Judge a short part by the waits of all tasks for a CPU, which are counted in microseconds.

    None if they are not known or many: they may be those of the trial's own threads.
    """
    totals = [_waited_usec(getattr(record.counters, moment)) for moment in ("before", "after")]
    if None in totals:
        return None
    waited = (totals[1] or 0.0) - (totals[0] or 0.0)
    if waited > 1e6 * CPU_PRESSURE_SHARE * seconds:
        return None
    share = waited / 1e4 / seconds
    return True, f"tasks of the machine waited for a CPU for {share:.1f} % of the time"


def _waited_usec(moment: Mapping[str, Any] | None) -> float | None:
    moment = moment or {}
    pressure = (moment.get("host") or {}).get("cpu_pressure")
    pressure = pressure or ((moment.get("processes") or {}).get("pressure") or {}).get("cpu")
    total = ((pressure or {}).get("some") or {}).get("total")
    return None if total is None else float(total)


def _around(record: Record, seconds: float, what: str) -> Finding:
    """Judge a short part by the time around it, from before the collectors start to their stop.

    A neighbour then may or may not have run in the part itself, so that it is not known.
    """
    short = f"{seconds:.3f} s are too short to measure {what}"
    around = record.counters.around or {}
    before, after = around.get("before"), around.get("after")
    if not before or not after or record.load:
        return None, short
    span = after["monotonic_seconds"] - before["monotonic_seconds"]
    busy = cpu_seconds_between(before["stat"] or {}, after["stat"] or {}, *BUSY)
    stolen = cpu_seconds_between(before["stat"] or {}, after["stat"] or {}, "steal")
    own = [growth(before, after, key) for key in ("trial_cpu_usec", "agent_cpu_usec")]
    if span < SHORTEST_SECONDS or busy is None or stolen is None or None in own:
        return None, short
    others = max(0.0, busy - sum(filter(None, own)) / 1e6)
    is_calm = others <= max(OTHER_CPUS * span, LEAST_LOST_SECONDS)
    is_calm &= stolen <= max(STEAL_SHARE * span, LEAST_LOST_SECONDS)
    found = f"{_busy_sentence(others, span)} in the {span:.2f} s around the trial"
    return (True, found) if is_calm else (None, f"{short}, and {found}")


def _others_seconds(record: Record) -> float | None:
    """Return the CPU time of all but the trial, its load and the agent; None if one is unknown."""
    own, busy = cpu_seconds(record), host_cpu_seconds(record, *BUSY)
    load = record.load.cpu_seconds if record.load else 0.0
    if own is None or busy is None or load is None:
        return None
    return max(0.0, busy - own - load - _agent_seconds(record))


def _agent_seconds(record: Record) -> float:
    """Return the agent's own CPU time; zero where the record does not have it."""
    return (difference(record, "agent", "cpu_usec") or 0.0) / 1e6


def _busy_sentence(others: float, seconds: float) -> str:
    return f"other processes kept {others / seconds:.2f} CPUs busy"


def _judges_waits(record: Record, own: float, seconds: float) -> bool:
    """Return whether `cpu_wait` judges the trial, or no CPU was short of time for it."""
    if not has_cgroup(record) or record.load:
        return False
    if own <= ONE_THREAD * seconds and "CPUQuota" not in (record.cage.requested or {}):
        return True
    idle, busy = host_cpu_seconds(record, "idle"), host_cpu_seconds(record, *BUSY)
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


def growth(before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> float | None:
    """Return the growth of a figure between two samples; None if one lacks it."""
    if before.get(key) is None or after.get(key) is None:
        return None
    return float(after[key] - before[key])
