"""The sentences of a diagnosis that follow the limit: further causes and remarks."""

from __future__ import annotations

from collections.abc import Iterator

from pagecage.model.cage import MEMORY_EVENT
from pagecage.model.record import Record
from pagecage.model.trial_counters import SECTOR_BYTES
from pagecage.units import format_bytes, format_rate, format_seconds
from pagecage.verdicts.caps import SharedLimit, shared_limits
from pagecage.verdicts.counters import (
    difference,
    io_difference,
    measured_seconds,
    stalled_seconds,
)
from pagecage.verdicts.evidence import Evidence, format_iops, format_percent

WORTH_NAMING = 0.15
"""Least share of the time for which a second limit is named."""
SHARED_GRACE = 1.03
"""Reads and writes exceeded a shared limit if they used more than this multiple of it."""
MERGED = 1.1
"""Least ratio of counted I/Os to requests for which merging is mentioned; iostat varies as much."""
REREAD = 0.25
"""Least share of the bytes read that were read again, from which on memory is a second cause."""
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
