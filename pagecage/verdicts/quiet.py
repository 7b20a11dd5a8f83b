"""Quietness of a host: its processors, its disk, and the machine around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from pagecage.model.record import Record
from pagecage.model.record_sections import SECTOR_BYTES, Row
from pagecage.units import format_bytes
from pagecage.verdicts.consistency import pause_seconds
from pagecage.verdicts.counters import (
    Rows,
    counter,
    cpu_seconds,
    cpu_seconds_between,
    difference,
    disk_bytes,
    disk_views,
    figure,
    growth,
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


def _lost_time(lost: float, most: float, sentence: str) -> Finding:
    return lost <= max(most, LEAST_LOST_SECONDS), sentence


def _stolen_time(record: Record, seconds: float) -> Finding | None:
    """Check the CPU time that a hypervisor gave to others (`steal`, proc_stat(5))."""
    stolen = host_cpu_seconds(record, "steal")
    if stolen is None:
        return None
    if seconds < SHORTEST_SECONDS:
        if not counter(record, "after", "host", "stat", "steal"):
            return True, "the hypervisor has taken no CPU time since the machine started"
        return _around(record, seconds, "stolen time")
    share = f"{100 * stolen / seconds:.1f} %"
    sentence = f"the hypervisor took CPU time worth {share} of the measured time"
    return _lost_time(stolen, STEAL_SHARE * seconds, sentence)


def _cpu_wait(record: Record, seconds: float) -> Finding | None:
    """Check the slice's waits for a CPU, unless CPUQuota or its own threads cause them.

    Without a cgroup, and for a server, `_other_processes` judges. Others cannot make the trial wait
    for longer than they ran.
    """
    waited, used = stalled_seconds(record, "cpu"), cpu_seconds(record)
    if waited is None or "CPUQuota" in (record.cage.requested or {}) or not has_cgroup(record):
        return None
    if (used is not None and used > ONE_THREAD * seconds) or record.load:
        return None
    sentence = f"the trial waited for a CPU for {100 * waited / seconds:.1f} % of the time"
    most = max(CPU_PRESSURE_SHARE * seconds, LEAST_LOST_SECONDS)
    if waited <= most:
        return True, sentence
    others = _others_seconds(record)
    if others is None or others > most:
        return False, sentence
    return True, f"{sentence}, for its own threads: {_busy_sentence(others, seconds)}"


def _other_processes(record: Record, seconds: float) -> Finding | None:
    """Check the CPU time of other processes, where the trial's waits cannot be told from theirs."""
    own, others = cpu_seconds(record), _others_seconds(record)
    if own is None:
        return None
    if has_cgroup(record) and not record.load:
        if own <= ONE_THREAD * seconds and "CPUQuota" not in (record.cage.requested or {}):
            return None  # `_cpu_wait` judges the trial
        idle, busy = host_cpu_seconds(record, "idle"), host_cpu_seconds(record, *BUSY)
        if idle is None or busy is None or idle > IDLE_SHARE * (idle + busy):
            return None
    if record.load and record.load.cpu_seconds is None:
        return None, "the CPU time of the load was not counted"
    if others is None:
        return None
    if seconds < SHORTEST_SECONDS:
        return _machine_waits(record, seconds) or _around(
            record, seconds, "the CPU time of other processes"
        )
    agent = (difference(record, "agent", "cpu_usec") or 0.0) / 1e6
    of_agent = f", pagecage {agent / seconds:.2f}" if agent else ""
    return _lost_time(others, OTHER_CPUS * seconds, _busy_sentence(others, seconds) + of_agent)


def _machine_waits(record: Record, seconds: float) -> Finding | None:
    """Judge a short part by all tasks' waits for a CPU; None if unknown, or if they are many."""
    totals = []
    for moment in (record.counters.before, record.counters.after):
        pressure = figure(moment, "host", "cpu_pressure")
        pressure = pressure or figure(moment, "processes", "pressure", "cpu")
        totals.append(figure(pressure, "some", "total"))
    if None in totals:
        return None
    waited = totals[1] - totals[0]
    if waited > 1e6 * CPU_PRESSURE_SHARE * seconds:
        return None
    share = waited / 1e4 / seconds
    return True, f"tasks of the machine waited for a CPU for {share:.1f} % of the time"


def _around(record: Record, seconds: float, what: str) -> Finding:
    """Judge a short part by the time around it; a neighbour then leaves it unknown."""
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
    kernel_threads = growth(before, after, "kernel_threads_usec") or 0.0
    others = max(0.0, busy - (sum(filter(None, own)) + max(0.0, kernel_threads)) / 1e6)
    is_calm = others <= max(OTHER_CPUS * span, LEAST_LOST_SECONDS)
    is_calm &= stolen <= max(STEAL_SHARE * span, LEAST_LOST_SECONDS)
    found = f"{_busy_sentence(others, span)} in the {span:.2f} s around the trial"
    return (True, found) if is_calm else (None, f"{short}, and {found}")


def _others_seconds(record: Record) -> float | None:
    """Return the CPU time of all other processes; None if one of the parts is unknown.

    Neither the trial, its load and the agent count, nor kernel threads, whose work (a loop device's
    requests, reclaim, writeback) is that of the processes which do I/O.
    """
    own, busy = cpu_seconds(record), host_cpu_seconds(record, *BUSY)
    load = record.load.cpu_seconds if record.load else 0.0
    if own is None or busy is None or load is None:
        return None
    agent = difference(record, "agent", "cpu_usec") or 0.0
    kernel_threads = difference(record, "host", "kernel_threads_usec") or 0.0
    return max(0.0, busy - own - load - (agent + max(0.0, kernel_threads)) / 1e6)


def _busy_sentence(others: float, seconds: float) -> str:
    return f"other processes kept {others / seconds:.2f} CPUs busy"


def _foreign_cpu_limit(record: Record) -> Finding | None:
    """Check for throttling although the cage has no CPUQuota: then an ancestor has one."""
    throttled = difference(record, "cgroup", "cpu.stat", "throttled_usec")
    if not throttled or "CPUQuota" in (record.cage.requested or {}):
        return None
    lost = throttled / 1e6
    sentence = f"a CPU limit that the cage does not request held the trial for {lost:.2f} s"
    return _lost_time(lost, 0.0, sentence)


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


def _disk_service(record: Record) -> DiskService | None:
    keys = ("reads", "writes", "sectors_read", "sectors_written", "read_ms", "write_ms", "io_ticks")
    grown = [difference(record, "device", key) for key in keys]
    reads, writes, read, written, read_ms, write_ms, busy = (one or 0 for one in grown)
    if None in grown or not measured_seconds(record):
        return None
    requests = reads + writes
    size = SECTOR_BYTES * (read + written) / max(1.0, requests)
    if requests < FEWEST_REQUESTS or not size:
        return None
    return DiskService(requests, size, (read_ms + write_ms) / requests, busy / requests)


def judge_disk_speed(record: Record, repeats: Sequence[Record]) -> Verdict:
    """Return `usual`, `slow` or `unknown`, from the other repeats of the trial's treatment.

    With a deeper queue than theirs a request waits for others, so that the time between two ends
    counts.
    """
    own, seconds = _disk_service(record), measured_seconds(record)
    if own is None or not seconds:
        return Verdict("unknown", "The disk served too few requests to judge its speed.")
    known = [found for other in repeats if (found := _disk_service(other))]
    alike = [one for one in known if 1 / ALIKE <= one.request_bytes / own.request_bytes <= ALIKE]
    if len(alike) < FEWEST_OTHERS:
        return Verdict("unknown", "Too few other repeats had requests of this size.")
    usual_ms = median(other.ms for other in alike)
    usual, mine = usual_ms, own.ms
    if own.depth > ALIKE * median(other.depth for other in alike):
        usual, mine = median(other.busy_ms for other in alike), own.busy_ms
    factor = mine / usual if usual else 1.0
    lost = own.requests * own.busy_ms / 1000 * (1 - 1 / factor) if factor > 1 else 0.0
    is_slow = factor >= SLOWER and lost > max(LOST_SHARE * seconds, LEAST_LOST_SECONDS)
    return Verdict(
        "slow" if is_slow else "usual",
        f"the disk took {own.ms:.3g} ms per request of {format_bytes(own.request_bytes)}, and"
        f" {usual_ms:.3g} ms in {len(alike)} other repeats",
    )


OUTER_CPUS = 0.5
"""CPUs of the outer host busy with anything but the guest; pagecage needs a few hundredths."""
MEMORY_SHARE = 0.02
"""Time in which tasks of the outer host waited for memory; 0.02 % was the most of 348 trials."""
SWAPPED_BYTES = 4 << 20
"""Bytes that the outer host may move from and to its swap."""
OUTER_DISK_SHARE = 0.2
"""Time in which the outer disk may be busy for others while the guest's disk is busy, as a share of
the measured part. 8 % was the most in 348 trials that count: the journal of the guest's image."""


def _outer_machine(record: Record, seconds: float) -> Iterator[Finding]:
    """Check what a guest cannot see: the outer host's CPUs, memory and disk."""
    if not record.outer_host:
        return
    before, after = record.outer_host.before or {}, record.outer_host.after or {}
    passed, guest = (growth(before, after, key) for key in ("unix_seconds", "qemu_cpu_seconds"))
    if not passed or guest is None or not before.get("cpu_seconds") or not after.get("cpu_seconds"):
        yield None, "the outer host's CPU time was not counted"
    elif passed < SHORTEST_SECONDS:
        yield None, f"{passed:.3f} s are too short to measure the outer host's CPU time"
    else:
        # The guest's ticks are part of `user` (proc_stat(5)).
        ran = sum(growth(before, after, "cpu_seconds", key) or 0.0 for key in (*BUSY, "steal"))
        used = max(0.0, ran - guest)
        sentence = f"on the outer host, {_busy_sentence(used, passed)}"
        yield _lost_time(used, OUTER_CPUS * passed, sentence)
    if passed:
        yield from _outer_memory(before, after, passed)
        yield from _outer_disk(record, before, after, seconds)


def _outer_memory(before: Row, after: Row, passed: float) -> Iterator[Finding]:
    """Check the outer host's waits for memory and its swap: it may take pages of the guest."""
    waited = growth(before, after, "pressure", "memory", "some_us")
    swapped = [growth(before, after, "swap", key) for key in ("in_bytes", "out_bytes")]
    if waited is None and None in swapped:
        return
    moved, share = sum(filter(None, swapped)), (waited or 0.0) / 1e6 / passed
    swap = "" if None in swapped else f", and {format_bytes(moved)} were swapped"
    is_noise = share > MEMORY_SHARE and share * passed > LEAST_LOST_SECONDS
    yield (
        not (is_noise or moved > SWAPPED_BYTES),
        f"on the outer host, tasks waited for memory for {100 * share:.1f} % of the time{swap}",
    )


def _outer_disk(record: Record, before: Row, after: Row, seconds: float) -> Iterator[Finding]:
    """Check how long the outer disk worked for others while the guest waited for its own.

    Its time is divided by the bytes of the guest and of the rest.
    """
    keys = ("sectors_read", "sectors_written")
    busy_ms, own_busy_ms = (
        growth(before, after, "disk", "io_ms"),
        difference(record, "device", "io_ticks"),
    )
    moved = [growth(before, after, "disk", key) for key in keys]
    if busy_ms is None or own_busy_ms is None or None in moved:
        return
    others = (("disks", name, "device") for name in counter(record, "after", "disks") or {})
    own = sum(
        difference(record, *disk, key) or 0.0 for disk in (("device",), *others) for key in keys
    )
    sectors = sum(filter(None, moved))
    foreign = max(0.0, sectors - own)
    lost = min(busy_ms * foreign / sectors if sectors else 0.0, own_busy_ms) / 1000
    sentence = (
        f"the outer host's disk moved {format_bytes(foreign * SECTOR_BYTES)} for others, while the"
        f" guest waited for it {100 * lost / seconds:.1f} % of the time"
    )
    yield _lost_time(lost, OUTER_DISK_SHARE * seconds, sentence)


FOREIGN_IO_SHARE = 0.02
"""Foreign disk traffic, as a share of the slice's, that matters less than repeats differ."""
LEAST_FOREIGN_IO_BYTES = 1_000_000
"""Less traffic than this is a journal commit or an inode, even if the trial reads nothing."""
FLUSH_BYTES = 16_384
"""Bytes that a file system may write for each flush, which no cgroup is charged for: ext4's journal
(filesystems/ext4/journal.rst). 6 to 12 KiB per flush were seen."""
_ALSO_WRITES = ", or flushes of files that another cgroup wrote before,"
"""The kernel hands a file's writeback over to its new writer, whose limits then hold, only after
several flushes (admin-guide/cgroup-v2.rst, "Writeback")."""


def judge_host_quiet(
    record: Record, series: Rows = (), disk_speed: Verdict | None = None
) -> Verdict:
    """Return `quiet`, `not_quiet` or `unknown`.

    The verdict rests on the disk, the CPUs, the outer host, the gaps in the sampler's series, and
    the verdict on the disk's speed. A speed that is not known does not count.
    """
    seconds = measured_seconds(record)
    if not seconds:
        return Verdict("unknown", "The measured part did not end, so its counters are incomplete.")
    pause = pause_seconds(record, series)
    found = (
        _disk_traffic(record),
        _stolen_time(record, seconds),
        _cpu_wait(record, seconds),
        _other_processes(record, seconds),
        _foreign_cpu_limit(record),
        *_outer_machine(record, seconds),
        (disk_speed.verdict == "usual", disk_speed.reason)
        if disk_speed and disk_speed.verdict != "unknown"
        else None,
        (False, f"nothing was sampled for {pause:.1f} s: the machine was paused or overloaded")
        if pause
        else None,
        *(_disk_traffic(view, f"the disk {name}") for name, view in disk_views(record).items()),
    )
    findings = [finding for finding in found if finding]
    for word, state in (("not_quiet", False), ("unknown", None)):
        if hits := [sentence for found, sentence in findings if found is state]:
            return Verdict(word, "; ".join(hits) + ".")
    return Verdict("quiet", "; ".join(sentence for _, sentence in findings) + ".")


def _disk_traffic(record: Record, name: str = "the disk") -> Finding:
    """Compare the disk's traffic with the slice's, without what a file system adds to a sync."""
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
