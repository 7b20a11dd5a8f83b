"""Quietness of a host: its processors, its disk, and the machine around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pagecage.model.record import Record
from pagecage.model.record_sections import SECTOR_BYTES
from pagecage.units import format_bytes
from pagecage.verdicts.consistency import longest_gap_allowed, longest_gap_seconds
from pagecage.verdicts.counters import (
    counter,
    cpu_seconds,
    cpu_seconds_between,
    difference,
    disk_bytes,
    disk_views,
    has_cgroup,
    host_cpu_seconds,
    io_difference,
    measured_seconds,
    stalled_seconds,
)
from pagecage.verdicts.verdict import Verdict

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


SLOWER = 3.0
"""Times the median of the others from which on the disk was slow. The largest factor of a stored
trial that other verdicts include is 2.1."""
LOST_SHARE = 0.1
"""Time that the disk was busy for longer than the others', as a share of the measured part."""
FEWEST_REQUESTS, FEWEST_OTHERS = 50, 2
ALIKE = 2.0
"""Sizes and depths of requests are alike within this factor."""


@dataclass(frozen=True)
class DiskService:
    """A disk's service of a trial's requests; `ms` is the time of one, the queue included."""

    requests: float
    request_bytes: float
    ms: float
    busy_ms: float

    @property
    def depth(self) -> float:
        """The mean number of requests in the disk while it was busy."""
        return self.ms / self.busy_ms if self.busy_ms else 0.0


def disk_service(record: Record) -> DiskService | None:
    """Return the service of the data's disk in the measured part; None if it is not known."""
    counts = [difference(record, "device", key) for key in ("reads", "writes")]
    sectors = [difference(record, "device", f"sectors_{key}") for key in ("read", "written")]
    spent = [difference(record, "device", key) for key in ("read_ms", "write_ms")]
    busy = difference(record, "device", "io_ticks")
    if None in (*counts, *sectors, *spent) or busy is None or not measured_seconds(record):
        return None
    requests = sum(filter(None, counts))
    size = SECTOR_BYTES * sum(filter(None, sectors)) / max(1.0, requests)
    if requests < FEWEST_REQUESTS or not size:
        return None
    return DiskService(requests, size, sum(filter(None, spent)) / requests, busy / requests)


def judge_disk_speed(record: Record, repeats: Sequence[Record]) -> Verdict:
    """Return `usual`, `slow` or `unknown`, from the other repeats of the trial's treatment."""
    own, seconds = disk_service(record), measured_seconds(record)
    if own is None or not seconds:
        return Verdict("unknown", "The disk served too few requests to judge its speed.")
    known = [found for other in repeats if (found := disk_service(other))]
    alike = [one for one in known if 1 / ALIKE <= one.request_bytes / own.request_bytes <= ALIKE]
    if len(alike) < FEWEST_OTHERS:
        return Verdict("unknown", "Too few other repeats had requests of this size.")
    usual_ms, factor = median(found.ms for found in alike), _slower(own, alike)
    lost = own.requests * own.busy_ms / 1000 * (1 - 1 / factor) if factor > 1 else 0.0
    sentence = (
        f"the disk took {own.ms:.3g} ms per request of {format_bytes(own.request_bytes)}, and"
        f" {usual_ms:.3g} ms in {len(alike)} other repeats"
    )
    is_slow = factor >= SLOWER and lost > max(LOST_SHARE * seconds, LEAST_LOST_SECONDS)
    return Verdict("slow" if is_slow else "usual", sentence)


def _slower(own: DiskService, others: Sequence[DiskService]) -> float:
    """Return how many times longer a request took than in the others.

    With a deeper queue a request waits for others, so that the time between two ends counts.
    """
    usual = median(found.ms for found in others)
    depth = median(found.depth for found in others)
    if own.depth > ALIKE * depth:
        usual, mine = median(found.busy_ms for found in others), own.busy_ms
    else:
        mine = own.ms
    return mine / usual if usual else 1.0


OUTER_CPUS = 0.5
"""CPUs of the outer host busy with anything but the guest; pagecage needs a few hundredths."""
MEMORY_SHARE = 0.02
"""Time in which tasks of the outer host waited for memory; 0.02 % was the most of 348 trials."""
SWAPPED_BYTES = 4 << 20
"""Bytes that the outer host may move from and to its swap."""
OUTER_DISK_SHARE = 0.2
"""Time in which the outer disk may be busy for others while the guest's disk is busy, as a share of
the measured part. 8 % was the most in 348 trials that count: the journal of the guest's image."""


def outer_host(record: Record) -> Finding | None:
    """Check the CPUs that other processes kept busy on the outer host, which a guest cannot see."""
    if not record.outer_host:
        return None
    before, after = record.outer_host.before or {}, record.outer_host.after or {}
    used, seconds = _foreign_cpu_seconds(before, after), growth(before, after, "unix_seconds")
    if used is None or not seconds:
        return None, "the outer host's CPU time was not counted"
    if seconds < SHORTEST_SECONDS:
        return None, f"{seconds:.3f} s are too short to measure the outer host's CPU time"
    is_noise = used > OUTER_CPUS * seconds and used > LEAST_LOST_SECONDS
    return not is_noise, f"on the outer host, other processes kept {used / seconds:.2f} CPUs busy"


def outer_memory(record: Record) -> Finding | None:
    """Check the outer host's waits for memory and its swap: it may take pages of the guest."""
    before, after, seconds = _moments(record)
    if not seconds:
        return None
    waited = growth(_stalls(before), _stalls(after), "some_us")
    swapped = [growth(before.get("swap") or {}, after.get("swap") or {}, key) for key in _SWAP]
    moved = sum(filter(None, swapped))
    if waited is None and None in swapped:
        return None
    share, sentence = (waited or 0.0) / 1e6 / seconds, "on the outer host, tasks waited for memory"
    sentence += f" for {100 * share:.1f} % of the time"
    if None not in swapped:
        sentence += f", and {format_bytes(moved)} were swapped"
    is_noise = share > MEMORY_SHARE and share * seconds > LEAST_LOST_SECONDS
    return not (is_noise or moved > SWAPPED_BYTES), sentence


_SWAP = ("in_bytes", "out_bytes")


def outer_disk(record: Record, seconds: float) -> Finding | None:
    """Check how long the outer disk worked for others while the guest waited for its own disks.

    Its time is divided by the bytes, those of the guest's disks and the rest. A guest that does not
    use its disk is not disturbed.
    """
    before, after, passed = _moments(record)
    first, last = before.get("disk") or {}, after.get("disk") or {}
    busy_ms, sectors = growth(first, last, "io_ms"), _sectors(first, last)
    own_busy_ms = difference(record, "device", "io_ticks")
    if busy_ms is None or sectors is None or own_busy_ms is None or not passed:
        return None
    foreign = max(0.0, sectors - _guest_sectors(record))
    lost = min(busy_ms * foreign / sectors if sectors else 0.0, own_busy_ms) / 1000
    is_noise = lost > OUTER_DISK_SHARE * seconds and lost > LEAST_LOST_SECONDS
    return not is_noise, (
        f"the outer host's disk moved {format_bytes(foreign * SECTOR_BYTES)} for others, while the"
        f" guest waited for it {100 * lost / seconds:.1f} % of the time"
    )


def _moments(record: Record) -> tuple[Mapping[str, Any], Mapping[str, Any], float | None]:
    if not record.outer_host:
        return {}, {}, None
    before, after = record.outer_host.before or {}, record.outer_host.after or {}
    return before, after, growth(before, after, "unix_seconds")


def _stalls(moment: Mapping[str, Any]) -> Mapping[str, Any]:
    return (moment.get("pressure") or {}).get("memory") or {}


def _sectors(first: Mapping[str, Any], last: Mapping[str, Any]) -> float | None:
    moved = [growth(first, last, f"sectors_{key}") for key in ("read", "written")]
    return None if None in moved else sum(filter(None, moved))


def _guest_sectors(record: Record) -> float:
    """Return what the guest moved on the data's disk and on the cage's others."""
    disks: list[tuple[str, ...]] = [("device",)]
    disks += [("disks", name, "device") for name in counter(record, "after", "disks") or {}]
    return sum(
        difference(record, *disk, f"sectors_{key}") or 0.0
        for disk in disks
        for key in ("read", "written")
    )


def _foreign_cpu_seconds(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Return the outer host's CPU seconds less QEMU's.

    The guest's ticks are part of `user` (proc_stat(5)).
    """
    guest = growth(before, after, "qemu_cpu_seconds")
    first, last = before.get("cpu_seconds"), after.get("cpu_seconds")
    if guest is None or not first or not last:
        return None
    return max(0.0, sum(growth(first, last, key) or 0.0 for key in (*BUSY, "steal")) - guest)


FOREIGN_IO_SHARE = 0.02
"""Foreign disk traffic, as a share of the slice's, that matters less than repeats differ."""
LEAST_FOREIGN_IO_BYTES = 1_000_000
"""Less traffic than this is a journal commit or an inode, even if the trial reads nothing."""
FLUSH_BYTES = 16_384
"""Bytes that a file system may write by itself for each flush of the disk.

For a sync, ext4 writes a journal descriptor, some metadata and a commit
(filesystems/ext4/journal.rst). No cgroup is charged for them. 6 to 12 KiB per flush were seen.
"""
_ALSO_WRITES = ", or flushes of files that another cgroup wrote before,"
"""The kernel hands the writeback of a file over to its new writer only after several flushes.

Until then no limit of the trial holds for them (admin-guide/cgroup-v2.rst, "Writeback").
"""


def judge_host_quiet(
    record: Record, series: Sequence[Mapping[str, Any]] = (), disk_speed: Verdict | None = None
) -> Verdict:
    """Return `quiet`, `not_quiet` or `unknown`.

    The verdict rests on the disk, the CPUs, the outer host, the gaps in the sampler's series, and
    the verdict on the disk's speed. A speed that is not known does not count.
    """
    seconds = measured_seconds(record)
    if not seconds:
        return Verdict("unknown", "The measured part did not end, so its counters are incomplete.")
    found: tuple[Finding | None, ...] = (
        _disk_traffic(record),
        stolen_time(record, seconds),
        cpu_wait(record, seconds),
        other_processes(record, seconds),
        foreign_cpu_limit(record),
        outer_host(record),
        outer_memory(record),
        outer_disk(record, seconds),
        _speed(disk_speed),
        _pause(record, series, seconds),
    )
    views = disk_views(record)
    found += tuple(_disk_traffic(view, f"the disk {name}") for name, view in views.items())
    findings = [finding for finding in found if finding]
    for word, state in (("not_quiet", False), ("unknown", None)):
        if hits := [sentence for found, sentence in findings if found is state]:
            return Verdict(word, "; ".join(hits) + ".")
    return Verdict("quiet", "; ".join(sentence for _, sentence in findings) + ".")


def _disk_traffic(record: Record, name: str = "the disk") -> Finding:
    """Compare the disk's traffic with the slice's.

    Absolute counts also work for a short part. Bytes that the file system writes for a sync do not
    count as traffic of another process.
    """
    foreign, own = [], 0.0
    synced = FLUSH_BYTES * (difference(record, "device", "flushes") or 0.0)
    for direction, key, left_out in (("read", "rbytes", 0.0), ("written", "wbytes", synced)):
        disk, slice_ = disk_bytes(record, direction), io_difference(record, key)
        if disk is None or slice_ is None:
            return None, f"the traffic of {name} was not counted"
        foreign.append(max(0.0, disk - slice_ - left_out))
        own += slice_
    is_noise = sum(foreign) > max(LEAST_FOREIGN_IO_BYTES, FOREIGN_IO_SHARE * own)
    also = _ALSO_WRITES if is_noise and foreign[1] > foreign[0] else ""
    return (
        not is_noise,
        f"other processes{also} moved {format_bytes(sum(foreign))} on {name},"
        f" the trial {format_bytes(own)}",
    )


def _speed(found: Verdict | None) -> Finding | None:
    if found is None or found.verdict == "unknown":
        return None
    return found.verdict == "usual", found.reason


def _pause(record: Record, series: Sequence[Mapping[str, Any]], seconds: float) -> Finding | None:
    gap = longest_gap_seconds(record, series)
    if gap <= longest_gap_allowed(seconds):
        return None
    return False, f"nothing was sampled for {gap:.1f} s: the machine was paused or overloaded"
