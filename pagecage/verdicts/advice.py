"""Advice and remarks on a treatment: what would help, and what is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pagecage.model.cage import MEMORY_EVENT
from pagecage.model.record import Record
from pagecage.model.record_sections import SECTOR_BYTES
from pagecage.units import format_bytes, format_rate, format_seconds
from pagecage.verdicts.counters import (
    difference,
    final_counter,
    io_difference,
    measured_seconds,
    stalled_seconds,
)
from pagecage.verdicts.io_demand import Evidence, amplification, format_iops, format_percent, total
from pagecage.verdicts.limits import SharedLimit, requested_caps, shared_limits
from pagecage.verdicts.volume_account import mean_latency_us
from pagecage.verdicts.windows import DISK_WAITING, WAITING

WORTH_NAMING = 0.15
"""Least share of the time for which a second limit is named."""
SHARED_GRACE = 1.03
"""Reads and writes exceeded a shared limit if they used more than this multiple of it."""
MERGED = 1.1
"""Least ratio of counted I/Os to requests for which merging is mentioned; iostat varies as much."""
REREAD = 0.25
"""Least share of the bytes read that were read again, from which on memory is a second cause."""
BUSY_LOAD = 0.9
"""Share of its CPU from which on a service's load may be the limit itself."""
_READ_LIMITS = ("bandwidth", "iops", "memory")
_SECOND_LIMITS = {
    "bandwidth": "A bandwidth cap held it back for another {}.",
    "iops": "An IOPS cap held it back for another {}.",
    "memory": "The memory limit held it back for another {}.",
    "device": "The disk itself held it back for another {}.",
    "cpu": "Computing took another {}.",
    "none": "No single limit held it back for another {}.",
}
_DISK_COUNTERS = {
    "read": ("reads", "sectors_read", "rios"),
    "write": ("writes", "sectors_written", "wios"),
}


def remarks(evidence: Evidence) -> Iterator[str]:
    """Yield the further causes and remarks, in the order of the diagnosis."""
    found = (
        _second_limit(evidence),
        _merged_requests(evidence),
        _drained_credits(evidence),
        _shared_limit(evidence),
        _memory_as_well(evidence),
        _throttled_as_well(evidence),
        _sequential_reading(evidence),
        _busy_load(evidence),
    )
    yield from (sentence for sentence in found if sentence)


def _second_limit(evidence: Evidence) -> str:
    """Return the limit that held the program back for most of the remaining time."""
    others = {
        name: share
        for name, share in evidence.binding.shares.items()
        if name != evidence.binding.verdict
    }
    name = max(others, key=lambda n: others[n], default="none")
    share = others.get(name, 0.0)
    return (
        ""
        if share < WORTH_NAMING
        else _SECOND_LIMITS[name].format(f"{format_percent(share)} of the time")
    )


def _merged_requests(evidence: Evidence) -> str:
    """Return the size of the disk's requests if the kernel merged I/Os after io.max counted them.

    It explains why iostat shows fewer requests than the cap counts.
    """
    requests, sectors, ios = _DISK_COUNTERS[evidence.direction]
    found, moved, counted = (
        difference(evidence.record, "device", requests),
        difference(evidence.record, "device", sectors),
        io_difference(evidence.record, ios),
    )
    if evidence.binding.verdict not in ("iops", "bandwidth") or not (found and moved and counted):
        return ""
    if counted < MERGED * found:
        return ""
    size = format_bytes(moved * SECTOR_BYTES / found)
    return (
        "The kernel counts I/Os before it merges adjacent ones: "
        f"the disk received one request of {size} for {counted / found:.2f} I/Os."
    )


def _drained_credits(evidence: Evidence) -> str:
    """Return when the burst credits ran out, or that the trial began without any."""
    burst = evidence.record.cage.burst or {}
    if burst.get("start") == "drained":
        return (
            "The trial began without burst credits. They refill while the program uses less than"
            " the base rate."
        )
    if evidence.drained_seconds is None:
        return ""
    return (
        f"Burst credits ran out after {format_seconds(evidence.drained_seconds)}. Then only the"
        " base rate was left."
    )


def _shared_limit(evidence: Evidence) -> str:
    """Return how far reads and writes together used a limit that they share at the provider."""
    most = max(shared_limits(evidence.record), key=lambda limit: limit.used, default=None)
    if most is None or (most.was_split and most.used < 1 / SHARED_GRACE):
        return ""
    if most.was_split and most.used <= SHARED_GRACE:
        return f"Reads and writes shared the {_format_limit(most)} and together used all of it."
    if most.used <= SHARED_GRACE:
        return ""
    used = f"Reads and writes together used {most.used:.2f} times"
    return f"{used} the {_format_limit(most)} that they share at the provider."


def _format_limit(limit: SharedLimit) -> str:
    return (
        f"limit of {format_iops(limit.base) if limit.kind == 'iops' else format_rate(limit.base)}"
    )


def _memory_as_well(evidence: Evidence) -> str:
    """Return that memory is a second cause if a cap was full of bytes that had been read before."""
    is_limited = "MemoryMax" in (evidence.record.cage.requested or {})
    if (
        not is_limited
        or evidence.binding.verdict not in ("iops", "bandwidth")
        or evidence.reread_share < REREAD
    ):
        return ""
    return f"{reread_sentence(evidence)} More memory helps as well."


def is_throttled(record: Record) -> bool:
    """Return whether memory.high throttled a trial, and memory.max was met less often."""
    high, most = (
        difference(record, "cgroup", "memory.events", MEMORY_EVENT[name]) or 0
        for name in ("MemoryHigh", "MemoryMax")
    )
    return "MemoryHigh" in (record.cage.requested or {}) and high > most


def _throttled_as_well(evidence: Evidence) -> str:
    """Return that memory.high throttled the program, if another limit held it back for longer."""
    waited = stalled_seconds(evidence.record, "memory") or 0.0
    share = waited / (measured_seconds(evidence.record) or 1.0)
    if (
        not is_throttled(evidence.record)
        or evidence.binding.verdict == "memory"
        or share < WORTH_NAMING
    ):
        return ""
    limit = format_bytes((evidence.record.cage.requested or {})["MemoryHigh"])
    return (
        f"The MemoryHigh of {limit} throttled the program: it waited for memory"
        f" {format_percent(share)} of the time."
    )


def reread_sentence(evidence: Evidence) -> str:
    """Return the share of the bytes read that had been in memory before, as a sentence."""
    return f"{format_percent(evidence.reread_share)} of the bytes read had been in memory before."


def _sequential_reading(evidence: Evidence) -> str:
    """Return the time of one sequential pass if a read limit held the program back."""
    seconds = evidence.sequential_seconds
    if (
        seconds is None
        or evidence.direction != "read"
        or evidence.binding.verdict not in _READ_LIMITS
    ):
        return ""
    limit, size = (
        (evidence.record.cage.requested or {}).get("MemoryMax"),
        evidence.record.cache.file_bytes,
    )
    memory = ""
    if isinstance(limit, int) and size is not None and limit < size:
        memory = f", but they do not fit into {format_bytes(limit)} of memory"
    return (
        f"Reading the files once, sequentially, would take about {format_seconds(seconds)}{memory}."
    )


def _busy_load(evidence: Evidence) -> str:
    """Return that a service's load used its CPUs, so that it may be what limits the figures."""
    load, seconds = evidence.record.load, measured_seconds(evidence.record)
    if not load.cpus or load.cpu_seconds is None or not seconds:
        return ""
    share = load.cpu_seconds / (seconds * len(load.cpus))
    if share < BUSY_LOAD:
        return ""
    return (
        f"The load used {format_percent(min(share, 1.0))} of its CPU, so that the load itself may"
        " have held the server's figures down."
    )


FULL = 0.9
"""From this share on, a cap is called full."""
WASTEFUL = 1.5
"""Bytes delivered per distinct byte requested, from which on the sentence advises to read less."""
CHANGED = 1.02
"""A cap was changed by credits or sharing if its average differs by more than this factor."""


def sentence_of(evidence: Evidence) -> str:
    """Return the diagnosis: the limit and its remedy, then further causes and remarks."""
    limit = _LIMIT_SENTENCES[evidence.binding.verdict](evidence)
    return " ".join((limit, *remarks(evidence)))


def oom_kill_sentence(record: Record) -> str | None:
    """Return the diagnosis of a trial that the OOM killer ended; None if it did not."""
    if not final_counter(record, "memory.events", "oom_kill"):
        return None
    cause = f"it needs more memory than the {_memory_limit(record)}"
    return f"The OOM killer ended the program: {cause}. Only more memory helps."


def _iops(evidence: Evidence) -> str:
    traffic, cap = evidence.traffic, evidence.traffic.iops_cap or 0.0
    remedy = f"More IOPS or larger {evidence.direction}s help"
    if traffic.bandwidth_cap is not None:
        is_full = traffic.bytes_per_second >= FULL * traffic.bandwidth_cap
        remedy += (
            " only with more bandwidth, which is full as well"
            if is_full
            else ". More bandwidth does not"
        )
    rate = _rate_of_cap(traffic.bytes_per_second, traffic.bandwidth_cap)
    return (
        f"{_cap_sentence(evidence, format_iops, cap, traffic.ios_per_second)} ({rate}). {remedy}."
    )


def _bandwidth(evidence: Evidence) -> str:
    traffic, cap = evidence.traffic, evidence.traffic.bandwidth_cap or 0.0
    rate = (
        f"{traffic.ios_per_second:,.0f}{f' of {traffic.iops_cap:,.0f}' if traffic.iops_cap else ''}"
        " I/Os per second"
    )
    remedy = (
        f"More bandwidth or {'reading' if evidence.direction == 'read' else 'writing'} less helps."
    )
    remedy += " More IOPS do not." if traffic.iops_cap else ""
    sentence = _cap_sentence(evidence, format_rate, cap, traffic.bytes_per_second)
    return f"{sentence} ({rate}). {remedy}{_wasted_bytes(evidence)}"


def _cap_sentence(
    evidence: Evidence, format_cap: Callable[[float], str], in_force: float, rate: float
) -> str:
    """Return the cap, whether it was full, for how long, and the size of the I/Os."""
    cap = f"The {format_cap(evidence.base_cap or in_force)} cap on {evidence.direction}s"
    cap += evidence.of_disk
    cap += _changed_cap(evidence, format_cap(in_force), in_force)
    share, size = format_percent(evidence.share), evidence.traffic.bytes_per_io
    ios = (
        f"with {evidence.direction}s of {format_bytes(size)}"
        if size
        else f"without {evidence.direction}s"
    )
    if rate >= FULL * in_force:
        return f"{cap} was full for {share} of the time {ios}"
    used = format_percent(rate / in_force)
    return (
        f"{cap} held the program back for {share} of the time. The program used {used} of the cap"
        f" {ios}"
    )


def _changed_cap(evidence: Evidence, amount: str, in_force: float) -> str:
    """Return the cap's average in parentheses if it differs from the requested value; else ""."""
    base = evidence.base_cap
    if not base or 1 / CHANGED <= in_force / base <= CHANGED:
        return ""
    cause = "with burst credits" if in_force > base else "because reads and writes share it"
    return f" (on average {amount} {cause})"


def _rate_of_cap(rate: float, cap: float | None) -> str:
    return f"{format_rate(rate)} of {format_rate(cap)}" if cap else format_rate(rate)


def _wasted_bytes(evidence: Evidence) -> str:
    """Return the amplification and its remedy if the disk delivered much more than requested."""
    ratio = amplification(evidence.record).per_distinct_byte
    if evidence.direction == "write" or ratio is None or ratio < WASTEFUL:
        return ""
    return (
        f" The disk delivered {ratio:.3g} bytes for each byte that the program requested."
        " A smaller read-ahead, MADV_RANDOM or sequential reading avoids this."
    )


def _memory_limit(record: Record, name: str = "MemoryMax") -> str:
    limit = (record.cage.requested or {}).get(name)
    return f"{name} of {format_bytes(limit)}" if isinstance(limit, int) else "memory limit"


def _memory(evidence: Evidence) -> str:
    waits = "Throttling and reclaim" if is_throttled(evidence.record) else "Reclaiming memory"
    reclaim = f"{waits} took {format_percent(evidence.time_share('waited_memory'))} of that time."
    costs = f"{reread_sentence(evidence)} {reclaim}" if evidence.reread_share else reclaim
    name = "MemoryHigh" if is_throttled(evidence.record) else "MemoryMax"
    held = (
        f"The {_memory_limit(evidence.record, name)} held the program back for"
        f" {format_percent(evidence.share)} of the time."
    )
    if name == "MemoryHigh":
        held += " Above it the kernel throttles the program, but does not kill it."
    return f"{held} {costs} More memory helps."


def _device(evidence: Evidence) -> str:
    latency_us = mean_latency_us(evidence.record, evidence.direction)
    return _busy_disk(evidence) if latency_us is None else _slow_volume(evidence, latency_us)


def _slow_volume(evidence: Evidence, latency_us: float) -> str:
    """Return the sentence for a simulated volume, which is busy while a request takes its time."""
    reads = f"{evidence.direction}s"
    held = (
        f"The latency of {_the(evidence, 'volume')} held the program back for"
        f" {format_percent(evidence.share)} of the time:"
        f" {evidence.traffic.ios_per_second:,.0f} {reads} per second, each of"
        f" {latency_us / 1000:.3g} ms, below every cap."
    )
    return (
        f"{held} More {reads} at once, larger {reads} or a volume with a lower latency help. Higher"
        " caps do not."
    )


def _the(evidence: Evidence, what: str) -> str:
    return f"the {what}" if evidence.disk is None else f"the {evidence.disk} {what}"


def _busy_disk(evidence: Evidence) -> str:
    traffic, is_capped = evidence.traffic, bool(requested_caps(evidence.record))
    rates = (
        f"{format_rate(traffic.bytes_per_second)}, {traffic.ios_per_second:,.0f} I/Os per second"
    )
    disk, share = _the(evidence, "disk").capitalize(), format_percent(evidence.share)
    busy = f"{disk} itself was busy for {share} of the time ({rates})"
    remedy = f"A faster disk or fewer {evidence.direction}s help."
    return (
        f"{busy}, below every cap. {remedy} Higher caps do not."
        if is_capped
        else f"{busy}, without any cap. {remedy}"
    )


def _cpu(evidence: Evidence) -> str:
    share = format_percent(evidence.share)
    if evidence.time_share("throttled") >= WAITING:
        quota = (evidence.record.cage.requested or {}).get("CPUQuota")
        named = f"The CPUQuota of {quota} %" if quota else "A CPU quota"
        return (
            f"{named} held the program back for {share} of the time. More CPU helps. A faster disk"
            " does not."
        )
    slack = ", and no cap was full" if requested_caps(evidence.record) else ""
    busy = f"For {share} of the time, the program computed or waited for a CPU"
    emulated = (
        " QEMU emulates the CPU here: a real one needs a fraction of this time."
        if evidence.record.emulated
        else ""
    )
    return (
        f"{busy} ({evidence.time_share('cpu'):.2f} CPUs busy){slack}. A faster disk does not"
        f" help.{emulated}"
    )


def _none(evidence: Evidence) -> str:
    waited, traffic = evidence.time_share("waited_io"), evidence.traffic
    if waited < DISK_WAITING or not traffic.ios:
        memory = format_percent(evidence.time_share("waited_memory"))
        waits = (
            f"It waited for the disk {format_percent(waited)} of the time and for memory {memory}"
        )
        return (
            f"No limit held the program back. {waits}, and kept {evidence.time_share('cpu'):.2f}"
            " CPUs busy."
        )
    milliseconds = 1000 * (total("waited_io", evidence.held_windows) or 0.0) / traffic.ios
    return (
        f"No cap was full. The program waited for the disk {format_percent(waited)} of the time,"
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
