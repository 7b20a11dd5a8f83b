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
from pagecage.verdicts.limits import requested_caps, shared_limits
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


def _remarks(evidence: Evidence) -> Iterator[str]:
    """Yield the further causes and remarks, in the order of the diagnosis."""
    yield from _second_limit(evidence)
    yield from _merged_requests(evidence)
    yield from _drained_credits(evidence)
    yield from _shared_limit(evidence)
    is_capped = evidence.binding.verdict in ("iops", "bandwidth")
    if "MemoryMax" in evidence.requested and is_capped and evidence.reread_share >= REREAD:
        yield f"{reread_sentence(evidence)} More memory helps as well."
    yield from _throttled_as_well(evidence)
    yield from _sequential_reading(evidence)
    yield from _busy_load(evidence)


def _second_limit(evidence: Evidence) -> Iterator[str]:
    """Yield the limit that held the program back for most of the remaining time."""
    shares = {**evidence.binding.shares, evidence.binding.verdict: 0.0}
    name = max(shares, key=lambda n: shares[n])
    if shares[name] >= WORTH_NAMING:
        yield _SECOND_LIMITS[name].format(f"{format_percent(shares[name])} of the time")


def _merged_requests(evidence: Evidence) -> Iterator[str]:
    """Yield the size of the disk's requests if the kernel merged I/Os after io.max counted them.

    It explains why iostat shows fewer requests than the cap counts.
    """
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


def _drained_credits(evidence: Evidence) -> Iterator[str]:
    if (evidence.record.cage.burst or {}).get("start") == "drained":
        yield (
            "The trial began without burst credits. They refill while the program uses less than"
            " the base rate."
        )
    elif evidence.drained_seconds is not None:
        yield (
            f"Burst credits ran out after {format_seconds(evidence.drained_seconds)}. Then only the"
            " base rate was left."
        )


def _shared_limit(evidence: Evidence) -> Iterator[str]:
    """Yield how far reads and writes together used a limit that they share at the provider."""
    most = max(shared_limits(evidence.record), key=lambda limit: limit.used, default=None)
    if most is None:
        return
    amount = format_iops(most.base) if most.kind == "iops" else format_rate(most.base)
    if most.used > SHARED_GRACE:
        yield (
            f"Reads and writes together used {most.used:.2f} times the limit of {amount} that they"
            " share at the provider."
        )
    elif most.was_split and most.used >= 1 / SHARED_GRACE:
        yield f"Reads and writes shared the limit of {amount} and together used all of it."


def is_throttled(record: Record) -> bool:
    """Return whether memory.high throttled a trial, and memory.max was met less often."""
    high, most = (
        difference(record, "cgroup", "memory.events", MEMORY_EVENT[name]) or 0
        for name in ("MemoryHigh", "MemoryMax")
    )
    return "MemoryHigh" in (record.cage.requested or {}) and high > most


def _throttled_as_well(evidence: Evidence) -> Iterator[str]:
    """Yield that memory.high throttled the program, if another limit held it back for longer."""
    waited = stalled_seconds(evidence.record, "memory") or 0.0
    share = waited / (measured_seconds(evidence.record) or 1.0)
    is_second = evidence.binding.verdict != "memory" and is_throttled(evidence.record)
    if is_second and share >= WORTH_NAMING:
        yield (
            f"The MemoryHigh of {format_bytes(evidence.requested['MemoryHigh'])} throttled the"
            f" program: it waited for memory {format_percent(share)} of the time."
        )


def reread_sentence(evidence: Evidence) -> str:
    """Return the share of the bytes read that had been in memory before, as a sentence."""
    return f"{format_percent(evidence.reread_share)} of the bytes read had been in memory before."


def _sequential_reading(evidence: Evidence) -> Iterator[str]:
    """Yield the time of one sequential pass if a read limit held the program back."""
    seconds, size = evidence.sequential_seconds, evidence.record.cache.file_bytes
    is_read = evidence.direction == "read" and evidence.binding.verdict in _READ_LIMITS
    if seconds is None or not is_read:
        return
    limit, memory = evidence.requested.get("MemoryMax"), ""
    if isinstance(limit, int) and size is not None and limit < size:
        memory = f", but they do not fit into {format_bytes(limit)} of memory"
    yield (
        f"Reading the files once, sequentially, would take about {format_seconds(seconds)}{memory}."
    )


def _busy_load(evidence: Evidence) -> Iterator[str]:
    """Yield that a service's load used its CPUs, so that it may be what limits the figures."""
    load, seconds = evidence.record.load, measured_seconds(evidence.record)
    if not load.cpus or load.cpu_seconds is None or not seconds:
        return
    share = load.cpu_seconds / (seconds * len(load.cpus))
    if share >= BUSY_LOAD:
        yield (
            f"The load used {format_percent(min(share, 1.0))} of its CPU, so that the load itself"
            " may have held the server's figures down."
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
    return " ".join((limit, *_remarks(evidence)))


def oom_kill_sentence(record: Record) -> str | None:
    """Return the diagnosis of a trial that the OOM killer ended; None if it did not."""
    if not final_counter(record, "memory.events", "oom_kill"):
        return None
    return (
        "The OOM killer ended the program: it needs more memory than the"
        f" {_memory_limit(record)}. Only more memory helps."
    )


def _iops(evidence: Evidence) -> str:
    traffic, cap = evidence.traffic, evidence.traffic.bandwidth_cap
    rate, remedy = format_rate(traffic.bytes_per_second), ""
    if cap is not None:
        is_full = traffic.bytes_per_second >= FULL * cap
        full = " only with more bandwidth, which is full as well"
        remedy = full if is_full else ". More bandwidth does not"
    of_cap = f" of {format_rate(cap)}" if cap else ""
    return (
        f"{_cap_sentence(evidence, format_iops, traffic.iops_cap or 0.0, traffic.ios_per_second)}"
        f" ({rate}{of_cap}). More IOPS or larger {evidence.direction}s help{remedy}."
    )


def _bandwidth(evidence: Evidence) -> str:
    """Return the cap, and the amplification if the disk delivered much more than requested."""
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


def _cap_sentence(
    evidence: Evidence, format_cap: Callable[[float], str], in_force: float, rate: float
) -> str:
    """Return the cap, its average if it was changed, whether it was full, and the I/Os' size."""
    base, kind, share = evidence.base_cap, evidence.direction, format_percent(evidence.share)
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
        f" {format_percent(rate / in_force)} of the cap {ios}"
    )


def _memory_limit(record: Record, name: str = "MemoryMax") -> str:
    limit = (record.cage.requested or {}).get(name)
    return f"{name} of {format_bytes(limit)}" if isinstance(limit, int) else "memory limit"


def _memory(evidence: Evidence) -> str:
    is_high = is_throttled(evidence.record)
    limit = _memory_limit(evidence.record, "MemoryHigh" if is_high else "MemoryMax")
    kills = " Above it the kernel throttles the program, but does not kill it." if is_high else ""
    reread = f" {reread_sentence(evidence)}" if evidence.reread_share else ""
    return (
        f"The {limit} held the program back for {format_percent(evidence.share)} of the time."
        f"{kills}{reread} {'Throttling and reclaim' if is_high else 'Reclaiming memory'} took"
        f" {format_percent(evidence.time_share('waited_memory'))} of that time. More memory helps."
    )


def _device(evidence: Evidence) -> str:
    """Return how long a disk was busy; a simulated volume is while a request takes its time."""
    traffic, share = evidence.traffic, format_percent(evidence.share)
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
    share = format_percent(evidence.share)
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
            f"No limit held the program back. It waited for the disk {format_percent(waited)} of"
            f" the time and for memory {format_percent(evidence.time_share('waited_memory'))}, and"
            f" kept {evidence.time_share('cpu'):.2f} CPUs busy."
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
