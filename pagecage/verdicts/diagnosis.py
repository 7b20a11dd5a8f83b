"""Diagnosis of a treatment: which limit of which disk holds it, what would help, and remarks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pagecage.model.cage import DATA_DISK, MEMORY_EVENT
from pagecage.model.record import Record
from pagecage.model.record_sections import SECTOR_BYTES
from pagecage.units import KIB, format_bytes, format_rate, format_seconds
from pagecage.verdicts.counters import (
    difference,
    final_counter,
    io_difference,
    measured_seconds,
    on_disk,
    stalled_seconds,
)
from pagecage.verdicts.io_demand import (
    DiskTraffic,
    Traffic,
    TrafficSecond,
    amplification,
    least_seconds,
    second_by_second,
    total,
    traffic,
    traffic_of_others,
)
from pagecage.verdicts.limits import drained_after_seconds, requested_caps, shared_limits
from pagecage.verdicts.verdict import BindingVerdict
from pagecage.verdicts.volume_account import mean_latency_us
from pagecage.verdicts.windows import (
    DISK_WAITING,
    WAITING,
    BindingLimit,
    Window,
    binding_limit,
    full_caps,
)


@dataclass(frozen=True)
class Diagnosis:
    """The binding limit, its `share` of the measured time, and the traffic in every second.

    `property` is the systemd property of the cap. `sequential_seconds` is the least time in which
    the caps allow the files to be read once, in order. `read` and `write` cover the whole measured
    part; they are None if it did not end. `disk` is the disk of the limit; None with one disk, or
    if the limit is not on a disk. `others` has the traffic of disks beside the data directory's.
    """

    bound_by: str
    sentence: str
    property: str | None = None
    disk: str | None = None
    share: float | None = None
    read: Traffic | None = None
    write: Traffic | None = None
    others: Mapping[str, DiskTraffic] = field(default_factory=dict)
    sequential_seconds: float | None = None
    seconds: tuple[TrafficSecond, ...] = ()


def diagnose(record: Record, binding: BindingVerdict, windows: Sequence[Window]) -> Diagnosis:
    """Return the diagnosis from a record, its binding verdict and its windows (may be empty)."""
    killed = ""
    if final_counter(record, "memory.events", "oom_kill"):
        killed = (
            "The OOM killer ended the program: it needs more memory than the"
            f" {_memory_limit(record)}. Only more memory helps."
        )
    name = binding.verdict
    if not windows or not binding.shares:
        return Diagnosis(name, killed or binding.reason, share=binding.shares.get(name))
    caps = _held_by(windows, [full_caps(window) for window in windows]) if record.disks else []
    evidence = _evidence(record, binding, windows, caps)
    sentences = [killed] if killed else [_LIMIT_SENTENCES[name](evidence), *_remarks(evidence)]
    sentences += [
        _other_cap(held)
        for held in caps
        if held.limit.disk != evidence.disk and held.share >= WORTH_NAMING
    ]
    return Diagnosis(
        bound_by=name,
        sentence=" ".join(sentences),
        property=evidence.cap_property,
        disk=evidence.disk,
        share=evidence.share,
        read=traffic("read", windows),
        write=traffic("write", windows),
        others=traffic_of_others(windows),
        sequential_seconds=sequential_seconds(record),
        seconds=second_by_second(windows, record.cage.requested or {}),
    )


def _evidence(
    record: Record, binding: BindingVerdict, windows: Sequence[Window], caps: Sequence[HeldWindows]
) -> Evidence:
    """Return the evidence; of several disks, from the one whose limit held for longest."""
    name, found = binding.verdict, caps
    limits = [binding_limit(window, record.cage.requested or {}) for window in windows]
    if record.disks and name == "device":
        found = _held_by(windows, [[limit] for limit in limits])
    if of_disk := next((held for held in found if held.limit.name == name), None):
        disk = of_disk.limit.disk
        view = record if disk == DATA_DISK else on_disk(record, disk)
        share = of_disk.share
        return Evidence(binding, of_disk.limit.property, view, of_disk.windows, share, disk)
    properties = {limit.property for limit in limits if limit.name == name and limit.property}
    prop = max(properties, key=lambda prop: binding.caps.get(prop, 0.0), default=None)
    held = [w for w, limit in zip(windows, limits, strict=True) if limit.name == name]
    return Evidence(binding, prop, record, held or windows, binding.shares[name])


DEFAULT_READ_AHEAD_KB = 128
"""Used if the record has no value (VM_READAHEAD_PAGES, include/linux/pagemap.h)."""


def sequential_seconds(record: Record) -> float | None:
    """Return the least time to read all files once, in order, by whole read-ahead windows.

    None if the cage has no cap on reads.
    """
    size, caps = record.cache.file_bytes, requested_caps(record)
    if not size:
        return None
    window_kb = (record.device.queue_settings or {}).get("read_ahead_kb") or DEFAULT_READ_AHEAD_KB
    ios = size / (KIB * max(4, int(window_kb)))
    needs = {"IOReadBandwidthMax": size, "IOReadIOPSMax": ios}
    return max(
        (least_seconds(record, name, need) for name, need in needs.items() if name in caps),
        default=None,
    )


WORTH_NAMING = 0.15
"""Least share of the time for which a second limit is named."""
FULL = 0.9


@dataclass(frozen=True)
class HeldWindows:
    """The windows in which a limit of one disk held the program back, and their share of the time.

    The windows are those of that disk.
    """

    limit: BindingLimit
    windows: Sequence[Window]
    share: float


def _held_by(
    windows: Sequence[Window], limits: Sequence[Sequence[BindingLimit]]
) -> list[HeldWindows]:
    """Return each limit with its windows, the longest first; a window may have several limits."""
    total = sum(one.seconds for one in windows)
    found = []
    for limit in dict.fromkeys(limit for one in limits for limit in one):
        held = [window for window, ones in zip(windows, limits, strict=True) if limit in ones]
        share = sum(one.seconds for one in held) / total
        found.append(HeldWindows(limit, [one.by_disk[limit.disk] for one in held], share))
    return sorted(found, key=lambda one: one.share, reverse=True)


def _other_cap(held: HeldWindows) -> str:
    prop = held.limit.property or ""
    moved = traffic("write" if "Write" in prop else "read", held.windows)
    if "IOPS" in prop:
        cap, rate = moved.iops_cap or 0.0, moved.ios_per_second
        amount = _format_iops(cap)
    else:
        cap, rate = moved.bandwidth_cap or 0.0, moved.bytes_per_second
        amount = format_rate(cap)
    verb = "was full" if rate >= FULL * cap else "held the program back"
    where = f"{'writes to' if 'Write' in prop else 'reads from'} the {held.limit.disk} disk"
    return f"The {amount} cap on {where} {verb} for {_format_percent(held.share)} as well."


@dataclass(frozen=True)
class Evidence:
    """The material for the sentences of a diagnosis.

    `held_windows` are those in which the verdict's limit held the program back, for `share` of the
    time; at least one. With several disks, record and windows are as seen from the limit's `disk`.
    """

    binding: BindingVerdict
    cap_property: str | None
    record: Record
    held_windows: Sequence[Window]
    share: float
    disk: str | None = None

    @property
    def requested(self) -> Mapping[str, object]:
        return self.record.cage.requested or {}

    @property
    def of_disk(self) -> str:
        """The disk of the limit as a phrase after reads or writes; empty if there is only one."""
        toward = "to" if self.direction == "write" else "from"
        return "" if self.disk is None else f" {toward} the {self.disk} disk"

    @property
    def direction(self) -> str:
        """`read` or `write`: the direction of the cap, or else the one that moved more bytes."""
        if self.cap_property:
            return "write" if "Write" in self.cap_property else "read"
        read, write = (traffic(name, self.held_windows).bytes for name in ("read", "write"))
        return "write" if write > read else "read"

    @property
    def traffic(self) -> Traffic:
        """The traffic in the cap's direction while the limit held the program back."""
        return traffic(self.direction, self.held_windows)

    @property
    def reread_share(self) -> float:
        """The share of the bytes read that had been in memory before; 0 if it is not known.

        workingset_refault_file counts the pages that return (cgroup-v2.rst), including those that
        read-ahead fetched.
        """
        read = traffic("read", self.held_windows).bytes
        again = (total("refault_pages", self.held_windows) or 0.0) * self.record.page_bytes
        return min(1.0, again / read) if read else 0.0

    def time_share(self, figure: str) -> float:
        """Return a figure in seconds as a share of the held time; 0 if it is not known."""
        seconds = sum(window.seconds for window in self.held_windows)
        return (total(figure, self.held_windows) or 0.0) / seconds


def _iops(evidence: Evidence) -> str:
    traffic, cap = evidence.traffic, evidence.traffic.bandwidth_cap
    rate, remedy = format_rate(traffic.bytes_per_second), ""
    if cap is not None:
        is_full = traffic.bytes_per_second >= FULL * cap
        full = " only with more bandwidth, which is full as well"
        remedy = full if is_full else ". More bandwidth does not"
    of_cap = f" of {format_rate(cap)}" if cap else ""
    return (
        f"{_cap_sentence(evidence, _format_iops, traffic.iops_cap or 0.0, traffic.ios_per_second)}"
        f" ({rate}{of_cap}). More IOPS or larger {evidence.direction}s help{remedy}."
    )


WASTEFUL = 1.5
"""Bytes delivered per distinct byte requested, from which on the sentence advises to read less."""


def _bandwidth(evidence: Evidence) -> str:
    traffic, cap = evidence.traffic, evidence.traffic.bandwidth_cap or 0.0
    iops = f" of {traffic.iops_cap:,.0f}" if traffic.iops_cap else ""
    less = "reading" if evidence.direction == "read" else "writing"
    sentence = (
        f"{_cap_sentence(evidence, format_rate, cap, traffic.bytes_per_second)}"
        f" ({traffic.ios_per_second:,.0f}{iops} I/Os per second)."
        f" More bandwidth or {less} less helps.{' More IOPS do not.' if iops else ''}"
    )
    ratio = amplification(evidence.record).per_distinct_byte
    if evidence.direction == "write" or ratio is None or ratio < WASTEFUL:
        return sentence
    return (
        f"{sentence} The disk delivered {ratio:.3g} bytes for each byte that the program requested."
        " A smaller read-ahead, MADV_RANDOM or sequential reading avoids this."
    )


CHANGED = 1.02
"""A cap was changed by credits or sharing if its average differs by more than this factor."""


def _cap_sentence(
    evidence: Evidence, format_cap: Callable[[float], str], in_force: float, rate: float
) -> str:
    """Return the cap, its average if it was changed, whether it was full, and the I/Os' size."""
    kind, share = evidence.direction, _format_percent(evidence.share)
    base = requested_caps(evidence.record).get(evidence.cap_property or "")
    cap = f"The {format_cap(base or in_force)} cap on {kind}s{evidence.of_disk}"
    if base and not 1 / CHANGED <= in_force / base <= CHANGED:
        cause = "with burst credits" if in_force > base else "because reads and writes share it"
        cap += f" (on average {format_cap(in_force)} {cause})"
    size = evidence.traffic.bytes_per_io
    ios = f"with {kind}s of {format_bytes(size)}" if size else f"without {kind}s"
    if rate >= FULL * in_force:
        return f"{cap} was full for {share} of the time {ios}"
    return (
        f"{cap} held the program back for {share} of the time. The program used"
        f" {_format_percent(rate / in_force)} of the cap {ios}"
    )


def _memory_limit(record: Record, name: str = "MemoryMax") -> str:
    limit = (record.cage.requested or {}).get(name)
    return f"{name} of {format_bytes(limit)}" if isinstance(limit, int) else "memory limit"


def _memory(evidence: Evidence) -> str:
    is_high = _is_throttled(evidence.record)
    limit = _memory_limit(evidence.record, "MemoryHigh" if is_high else "MemoryMax")
    kills = " Above it the kernel throttles the program, but does not kill it." if is_high else ""
    reread = f" {_reread_sentence(evidence)}" if evidence.reread_share else ""
    return (
        f"The {limit} held the program back for {_format_percent(evidence.share)} of the time."
        f"{kills}{reread} {'Throttling and reclaim' if is_high else 'Reclaiming memory'} took"
        f" {_format_percent(evidence.time_share('waited_memory'))} of that time. More memory helps."
    )


def _device(evidence: Evidence) -> str:
    """Return how long a disk was busy; a simulated volume is while a request takes its time."""
    traffic, share = evidence.traffic, _format_percent(evidence.share)
    latency_us = mean_latency_us(evidence.record, evidence.direction)
    named, kind = "" if evidence.disk is None else f"{evidence.disk} ", evidence.direction
    if latency_us is not None:
        return (
            f"The latency of the {named}volume held the program back for {share} of the time:"
            f" {traffic.ios_per_second:,.0f} {kind}s per second, each of {latency_us / 1000:.3g}"
            f" ms, below every cap. More {kind}s at once, larger {kind}s or a volume with a lower"
            " latency help. Higher caps do not."
        )
    is_capped = requested_caps(evidence.record)
    return (
        f"{f'the {named}disk'.capitalize()} itself was busy for {share} of the time"
        f" ({format_rate(traffic.bytes_per_second)}, {traffic.ios_per_second:,.0f} I/Os per"
        f" second), {'below every cap' if is_capped else 'without any cap'}. A faster disk or fewer"
        f" {kind}s help.{' Higher caps do not.' if is_capped else ''}"
    )


def _cpu(evidence: Evidence) -> str:
    share = _format_percent(evidence.share)
    if evidence.time_share("throttled") >= WAITING:
        quota = evidence.requested.get("CPUQuota")
        named = f"The CPUQuota of {quota} %" if quota else "A CPU quota"
        return (
            f"{named} held the program back for {share} of the time. More CPU helps. A faster disk"
            " does not."
        )
    slack = ", and no cap was full" if requested_caps(evidence.record) else ""
    real = " QEMU emulates the CPU here: a real one needs a fraction of this time."
    return (
        f"For {share} of the time, the program computed or waited for a CPU"
        f" ({evidence.time_share('cpu'):.2f} CPUs busy){slack}. A faster disk does not"
        f" help.{real if evidence.record.emulated else ''}"
    )


def _none(evidence: Evidence) -> str:
    waited, traffic = evidence.time_share("waited_io"), evidence.traffic
    if waited < DISK_WAITING or not traffic.ios:
        return (
            f"No limit held the program back. It waited for the disk {_format_percent(waited)} of"
            f" the time and for memory {_format_percent(evidence.time_share('waited_memory'))}, and"
            f" kept {evidence.time_share('cpu'):.2f} CPUs busy."
        )
    milliseconds = 1000 * (total("waited_io", evidence.held_windows) or 0.0) / traffic.ios
    return (
        f"No cap was full. The program waited for the disk {_format_percent(waited)} of the time,"
        f" {milliseconds:.3g} ms per {evidence.direction}. Several {evidence.direction}s at once or"
        " a disk with lower latency help. Higher caps do not."
    )


_LIMIT_SENTENCES: dict[str, Callable[[Evidence], str]] = {
    "iops": _iops,
    "bandwidth": _bandwidth,
    "memory": _memory,
    "device": _device,
    "cpu": _cpu,
    "none": _none,
}
REREAD = 0.25
"""Least share of the bytes read that were read again, from which on memory is a second cause."""


def _remarks(evidence: Evidence) -> Iterator[str]:
    record, verdict = evidence.record, evidence.binding.verdict
    shares = {**evidence.binding.shares, verdict: 0.0}
    second = max(shares, key=lambda n: shares[n])
    if shares[second] >= WORTH_NAMING:
        yield _SECOND_LIMITS[second].format(f"{_format_percent(shares[second])} of the time")
    yield from _merged_requests(evidence)
    if (record.cage.burst or {}).get("start") == "drained":
        yield (
            "The trial began without burst credits. They refill while the program uses less than"
            " the base rate."
        )
    elif (drained := drained_after_seconds(record)) is not None:
        yield (
            f"Burst credits ran out after {format_seconds(drained)}. Then only the base rate was"
            " left."
        )
    yield from _shared_limit(evidence)
    is_capped = verdict in ("iops", "bandwidth")
    if "MemoryMax" in evidence.requested and is_capped and evidence.reread_share >= REREAD:
        yield f"{_reread_sentence(evidence)} More memory helps as well."
    waited = stalled_seconds(record, "memory") or 0.0
    share = waited / (measured_seconds(record) or 1.0)
    if verdict != "memory" and _is_throttled(record) and share >= WORTH_NAMING:
        yield (
            f"The {_memory_limit(record, 'MemoryHigh')} throttled the program: it waited for memory"
            f" {_format_percent(share)} of the time."
        )
    yield from _sequential_reading(evidence)
    yield from _busy_load(evidence)


_SECOND_LIMITS = {
    "bandwidth": "A bandwidth cap held it back for another {}.",
    "iops": "An IOPS cap held it back for another {}.",
    "memory": "The memory limit held it back for another {}.",
    "device": "The disk itself held it back for another {}.",
    "cpu": "Computing took another {}.",
    "none": "No single limit held it back for another {}.",
}
MERGED = 1.1
"""Least ratio of counted I/Os to requests for which merging is mentioned; iostat varies as much."""
_DISK_COUNTERS = {
    "read": ("reads", "sectors_read", "rios"),
    "write": ("writes", "sectors_written", "wios"),
}


def _merged_requests(evidence: Evidence) -> Iterator[str]:
    """Yield why iostat shows fewer requests than the cap counts: the kernel merged them later."""
    record, (requests, sectors, ios) = evidence.record, _DISK_COUNTERS[evidence.direction]
    found, moved = (difference(record, "device", key) for key in (requests, sectors))
    counted = io_difference(record, ios)
    if evidence.binding.verdict not in ("iops", "bandwidth") or not (found and moved and counted):
        return
    if counted >= MERGED * found:
        yield (
            "The kernel counts I/Os before it merges adjacent ones: the disk received one request"
            f" of {format_bytes(moved * SECTOR_BYTES / found)} for {counted / found:.2f} I/Os."
        )


SHARED_GRACE = 1.03
"""Reads and writes exceeded a shared limit if they used more than this multiple of it."""


def _shared_limit(evidence: Evidence) -> Iterator[str]:
    most = max(shared_limits(evidence.record), key=lambda limit: limit.used, default=None)
    if most is None:
        return
    amount = _format_iops(most.base) if most.kind == "iops" else format_rate(most.base)
    if most.used > SHARED_GRACE:
        yield (
            f"Reads and writes together used {most.used:.2f} times the limit of {amount} that they"
            " share at the provider."
        )
    elif most.was_split and most.used >= 1 / SHARED_GRACE:
        yield f"Reads and writes shared the limit of {amount} and together used all of it."


def _is_throttled(record: Record) -> bool:
    """Return whether memory.high throttled a trial, and memory.max was met less often."""
    high, most = (
        difference(record, "cgroup", "memory.events", MEMORY_EVENT[name]) or 0
        for name in ("MemoryHigh", "MemoryMax")
    )
    return "MemoryHigh" in (record.cage.requested or {}) and high > most


def _reread_sentence(evidence: Evidence) -> str:
    return f"{_format_percent(evidence.reread_share)} of the bytes read had been in memory before."


MUCH_FASTER = 0.8
"""Sequential reading is mentioned if it would take less than this share of the trial's time."""


def _sequential_reading(evidence: Evidence) -> Iterator[str]:
    record, limit, memory = evidence.record, evidence.requested.get("MemoryMax"), ""
    seconds, size = sequential_seconds(record), record.cache.file_bytes
    whole = record.response.get("full_pass_seconds") or measured_seconds(record)
    is_read = evidence.binding.verdict in ("bandwidth", "iops", "memory")
    if not is_read or evidence.direction != "read" or seconds is None or not whole:
        return
    if isinstance(limit, int) and size is not None and limit < size:
        memory = f", but they do not fit into {format_bytes(limit)} of memory"
    if seconds < MUCH_FASTER * whole:
        took = f"would take about {format_seconds(seconds)}{memory}"
        yield f"Reading the files once, sequentially, {took}."


BUSY_LOAD = 0.9
"""Share of its CPU from which on a service's load may be the limit itself."""


def _busy_load(evidence: Evidence) -> Iterator[str]:
    load, seconds = evidence.record.load, measured_seconds(evidence.record)
    if not load.cpus or load.cpu_seconds is None or not seconds:
        return
    share = load.cpu_seconds / (seconds * len(load.cpus))
    if share >= BUSY_LOAD:
        yield (
            f"The load used {_format_percent(min(share, 1.0))} of its CPU, so that the load itself"
            " may have held the server's figures down."
        )


def _format_percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _format_iops(ios_per_second: float) -> str:
    return f"{ios_per_second:,.0f} IOPS"
