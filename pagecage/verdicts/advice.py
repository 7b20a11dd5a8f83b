"""The sentence that a person can forward: what was full, with what, what would help and what would not."""

from __future__ import annotations

from collections.abc import Callable

from pagecage.model.record import Record
from pagecage.units import format_bytes, format_rate, format_seconds
from pagecage.verdicts.amplification import amplification
from pagecage.verdicts.binding import DISK_WAITING
from pagecage.verdicts.caps import SharedLimit, requested_caps, shared_limits
from pagecage.verdicts.counters import SECTOR_BYTES, difference, io_difference, last_known
from pagecage.verdicts.evidence import Evidence, percent
from pagecage.verdicts.traffic import Traffic, total

FULL = 0.9
"""From this share of a cap upwards it is called full; below, the program was held by it and did not fill it."""
WASTEFUL = 1.5
"""Device bytes for each distinct byte asked for, from which on reading less is advised."""
ANOTHER = 0.15
"""A second limit is named from this share of the time."""
_BY_LIMITS = ("bandwidth", "iops", "memory")
_IN_WORDS = {
    "bandwidth": "a bandwidth cap", "iops": "an IOPS cap", "memory": "the memory limit", "device": "the disk itself",
    "cpu": "computing", "none": "several things in turn",
}  # fmt: skip


def sentence_of(case: Evidence) -> str:
    """What held, what helps, what else took time, the provider's ways, what reading in order would take."""
    remarks = (merged(case), drained(case), together(case), short_of_memory(case))
    parts = (_TOLD[case.binding.verdict](case), _another(case), *remarks, _in_order(case))
    return " ".join(part for part in parts if part)


def _iops(case: Evidence) -> str:
    went, cap = case.traffic, case.traffic.iops_cap or 0.0
    with_what = f"{_size(went)} {case.direction}s ({_beside(went.bytes_per_second, went.bandwidth_cap)})"
    helps = f"more IOPS or larger {case.direction}s help"
    if went.bandwidth_cap is not None:
        full = went.bytes_per_second >= FULL * went.bandwidth_cap
        helps = f"{helps} only with more bandwidth, which is full too" if full else f"{helps}, more bandwidth does not"
    return f"{_held(case, _count, cap, went.ios_per_second)} with {with_what}: {helps}."


def _bandwidth(case: Evidence) -> str:
    went, cap = case.traffic, case.traffic.bandwidth_cap or 0.0
    beside = f" of {went.iops_cap:,.0f}" if went.iops_cap else ""
    with_what = f"{_size(went)} {case.direction}s ({went.ios_per_second:,.0f}{beside} I/Os a second)"
    not_so = ", more IOPS do not" if went.iops_cap else ""
    helps = f"more bandwidth or {'reading' if case.direction == 'read' else 'writing'} less helps{not_so}"
    return f"{_held(case, format_rate, cap, went.bytes_per_second)} with {with_what}: {helps}.{_wasted(case)}"


def _count(ios_per_second: float) -> str:
    return f"{ios_per_second:,.0f} IOPS"


def _held(case: Evidence, text: Callable[[float], str], in_force: float, rate: float) -> str:
    """Which cap, for how long, and whether it was full; "97 % of the time the 5,000 IOPS cap on reads was full"."""
    state = "was full" if rate >= FULL * in_force else f"held it ({percent(rate / in_force)} of it used)"
    cap = f"{text(case.base_cap or in_force)} cap on {case.direction}s{why_changed(case, text(in_force), in_force)}"
    return f"{percent(case.share)} of the time the {cap} {state}"


def _size(went: Traffic) -> str:
    return format_bytes(went.bytes_per_io) if went.bytes_per_io else "no"


def _beside(rate: float, cap: float | None) -> str:
    return f"{format_rate(rate)} of {format_rate(cap)}" if cap else format_rate(rate)


def _wasted(case: Evidence) -> str:
    """How much of what the disk delivered was not asked for, where that is much."""
    times = amplification(case.record).per_distinct_byte
    if case.direction == "write" or times is None or times < WASTEFUL:
        return ""
    told = f" The disk delivered {times:.3g} bytes for each that was asked for"
    return f"{told}: a smaller read-ahead, MADV_RANDOM or reading in order save them."


def killed(record: Record) -> str | None:
    """The sentence for a trial that was killed for want of memory; None where none was."""
    kills = last_known(record, "memory.events", "oom_kill")
    return f"It was killed: it needs more memory than {_memory_max(record)}. Only more memory helps." if kills else None


def _memory_max(record: Record) -> str:
    limit = (record.cage.get("requested") or {}).get("MemoryMax")
    return f"MemoryMax of {format_bytes(limit)}" if isinstance(limit, int) else "the memory limit"


def _memory(case: Evidence) -> str:
    cost = read_before(case) if case.read_again else ""
    reclaim = f"{percent(case.of_time('waited_memory'))} of it went into reclaim"
    told = " and ".join(part for part in (cost, reclaim) if part)
    return f"{percent(case.share)} of the time {_memory_max(case.record)} held it ({told}): more memory helps."


def _device(case: Evidence) -> str:
    went = case.traffic
    rates = f"{format_rate(went.bytes_per_second)}, {went.ios_per_second:,.0f} I/Os a second"
    below = "below every cap" if requested_caps(case.record) else "without any cap"
    busy = f"{percent(case.share)} of the time the disk itself was busy {below} ({rates})"
    return f"{busy}: a faster disk or fewer {case.direction}s help, higher caps do not."


def _cpu(case: Evidence) -> str:
    if case.of_time("throttled") >= 0.1:
        quota = (case.record.cage.get("requested") or {}).get("CPUQuota")
        named = f"CPUQuota of {quota} %" if quota else "a CPU quota"
        return f"{percent(case.share)} of the time {named} held it: more CPU helps, a faster disk does not."
    translated = " Instructions are translated here: a real CPU needs a fraction of it." if case.record.emulated else ""
    busy = f"it computed or waited for a CPU ({case.of_time('cpu'):.2f} CPUs busy)"
    slack = " and no cap was full" if requested_caps(case.record) else ""
    return f"{percent(case.share)} of the time {busy}{slack}: a faster disk does not help.{translated}"


def _none(case: Evidence) -> str:
    waited, went = case.of_time("waited_io"), case.traffic
    if waited < DISK_WAITING or not went.ios:
        rest = f"{percent(waited)} waiting for the disk, {percent(case.of_time('waited_memory'))} for memory"
        return f"No limit held it: {rest}, {case.of_time('cpu'):.2f} CPUs busy."
    each = (total("waited_io", case.held) or 0.0) / went.ios
    waits = f"No cap was full: {percent(waited)} of the time went into waiting for the disk, "
    waits += f"{1000 * each:.3g} ms a {case.direction}"
    return f"{waits}. Several {case.direction}s at once or a disk that answers sooner help, higher caps do not."


_TOLD: dict[str, Callable[[Evidence], str]] = {
    "iops": _iops, "bandwidth": _bandwidth, "memory": _memory, "device": _device, "cpu": _cpu, "none": _none,
}  # fmt: skip


def _another(case: Evidence) -> str:
    """The limit that held most of the rest."""
    others = {name: share for name, share in case.binding.shares.items() if name != case.binding.verdict}
    name = max(others, key=lambda n: others[n], default="none")
    if others.get(name, 0.0) < ANOTHER:
        return ""
    return f"Another {percent(others[name])} of the time went to {_IN_WORDS[name]}."


def _in_order(case: Evidence) -> str:
    """What the fix would give, where reading is what the time went into."""
    if case.in_order_seconds is None or case.direction != "read" or case.binding.verdict not in _BY_LIMITS:
        return ""
    limit, size = (case.record.cage.get("requested") or {}).get("MemoryMax"), case.record.cache["file_bytes"]
    short = f", but {format_bytes(limit)} of memory do not hold them" if isinstance(limit, int) and limit < size else ""
    return f"Reading the files once sequentially would take about {format_seconds(case.in_order_seconds)}{short}."


TOGETHER = 1.03
"""Reads and writes above this share of a common limit went past it; less is the grace that every limit has."""
MERGED = 1.1
"""So many I/Os counted for each that the disk got are worth saying; iostat's figures differ by as much."""
CHANGED = 1.02
"""A cap whose average is off by more from what the cage asks for was changed by credits or by sharing."""
AGAIN = 0.25
"""From this share of the bytes read on, what was in memory before is a second cause beside a cap."""
_KEYS = {"read": ("reads", "sectors_read", "rios"), "write": ("writes", "sectors_written", "wios")}


def why_changed(case: Evidence, amount: str, in_force: float) -> str:
    """In brackets what was in force on average, where that is not what the cage asks for; empty elsewhere."""
    base = case.base_cap
    if not base or 1 / CHANGED <= in_force / base <= CHANGED:
        return ""
    return f" ({amount} with its credits)" if in_force > base else f" ({amount} beside the other direction)"


def drained(case: Evidence) -> str:
    """When credits ran out, or that there were none to begin with."""
    burst = case.record.cage.get("burst") or {}
    if burst.get("start") == "drained":
        return "Its burst credits were gone before it began; what it leaves of the base comes back as credits."
    if case.drained_seconds is None:
        return ""
    return f"Its burst credits ran out after {format_seconds(case.drained_seconds)}; only the base was left then."


def together(case: Evidence) -> str:
    """That reads and writes shared a limit, or what they took of one that they would share at the provider."""
    most = max(shared_limits(case.record), key=lambda one: one.used, default=None)
    if most is None or (most.was_split and most.used < 1 / TOGETHER):
        return ""
    if most.was_split and most.used <= TOGETHER:
        return f"Reads and writes shared the {_named(most)}, which both together filled."
    if most.used <= TOGETHER:
        return ""
    return f"Reads and writes together came to {most.used:.2f} of the {_named(most)} that they share at the provider."


def _named(limit: SharedLimit) -> str:
    return f"{limit.base:,.0f} IOPS" if limit.kind == "iops" else format_rate(limit.base)


def merged(case: Evidence) -> str:
    """What iostat shows where neighbours are merged after io.max has counted them."""
    requests, sectors, ios = _KEYS[case.direction]
    found, moved, counted = (
        difference(case.record, "device", requests), difference(case.record, "device", sectors),
        io_difference(case.record, ios),
    )  # fmt: skip
    if case.binding.verdict not in ("iops", "bandwidth") or not (found and moved and counted):
        return ""
    if counted < MERGED * found:
        return ""
    size = format_bytes(moved * SECTOR_BYTES / found)
    return (
        f"The kernel counts before it merges neighbours: the disk got {size} a request ({counted / found:.2f} to one)."
    )


def short_of_memory(case: Evidence) -> str:
    """That a cap is full of what had been read before, and had to leave memory."""
    limited = "MemoryMax" in (case.record.cage.get("requested") or {})
    if not limited or case.binding.verdict not in ("iops", "bandwidth") or case.read_again < AGAIN:
        return ""
    return f"{read_before(case)}: more memory helps as well."


def read_before(case: Evidence) -> str:
    """How much of what was read had been read before, in words."""
    return f"{percent(case.read_again)} of the bytes read had been in memory before"
