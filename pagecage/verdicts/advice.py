"""The first sentences of a diagnosis: the limit, its figures, and the changes that would help."""

from __future__ import annotations

from collections.abc import Callable

from pagecage.model.record import Record
from pagecage.units import format_bytes, format_rate
from pagecage.verdicts.amplification import amplification
from pagecage.verdicts.caps import requested_caps
from pagecage.verdicts.counters import final_counter
from pagecage.verdicts.evidence import Evidence, format_iops, format_percent
from pagecage.verdicts.remarks import is_throttled, remarks, reread_sentence
from pagecage.verdicts.traffic import total
from pagecage.verdicts.volume_account import mean_latency_us
from pagecage.verdicts.window_limit import DISK_WAITING, WAITING

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
        f"The latency of the volume held the program back for {format_percent(evidence.share)} of"
        f" the time: {evidence.traffic.ios_per_second:,.0f} {reads} per second, each of"
        f" {latency_us / 1000:.3g} ms, below every cap."
    )
    return (
        f"{held} More {reads} at once, larger {reads} or a volume with a lower latency help. Higher"
        " caps do not."
    )


def _busy_disk(evidence: Evidence) -> str:
    traffic, is_capped = evidence.traffic, bool(requested_caps(evidence.record))
    rates = (
        f"{format_rate(traffic.bytes_per_second)}, {traffic.ios_per_second:,.0f} I/Os per second"
    )
    busy = f"The disk itself was busy for {format_percent(evidence.share)} of the time ({rates})"
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
