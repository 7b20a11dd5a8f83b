"""Verdicts on limits: in force, held, and leaky."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pagecage.model.cage import (
    HORIZON_SECONDS,
    IO_MAX_KEY,
    IO_STAT_KEY,
    MEMORY_EVENT,
    MEMORY_FILE,
    SHARED_PROPERTIES,
    Cage,
    TokenBucket,
    expected_read_back,
)
from pagecage.model.record import Record
from pagecage.model.record_sections import Row
from pagecage.units import format_bytes, format_rate, format_seconds
from pagecage.verdicts.counters import (
    cpu_seconds,
    difference,
    disk_views,
    final_counter,
    io_and_seconds,
    io_difference,
    measured_seconds,
)
from pagecage.verdicts.verdict import LimitVerdict
from pagecage.verdicts.volume_account import rate_changes, volume_account


def is_io_cap(name: str) -> bool:
    """Return whether a property caps I/O. A prediction can change no other property."""
    return name in IO_STAT_KEY


def requested_caps(record: Record) -> dict[str, float]:
    """Return the requested I/O caps by property; with burst credits, the base rates."""
    requested = record.cage.requested or {}
    caps = {name: requested.get(name) for name in IO_STAT_KEY}
    return {name: cap for name, cap in caps.items() if isinstance(cap, (int, float)) and cap}


def cap_changes(record: Record) -> Sequence[Row]:
    """Return the changes of the caps while the trial ran, in order; empty without burst credits.

    A change is {"t": CLOCK_MONOTONIC seconds, property: cap}.
    """
    return (record.cage.credits or {}).get("changes") or rate_changes(record)


def caps_between(record: Record, start: float, end: float) -> dict[str, float]:
    """Return the average of each cap between two moments of CLOCK_MONOTONIC.

    It is the mean over the stretches between changes; the requested cap holds until the first.
    """
    averages = {}
    for name, base in requested_caps(record).items():
        pieces, since, cap = [], start, base
        for change in cap_changes(record):
            if name not in change or change["t"] >= end:
                continue
            if change["t"] > since:
                pieces.append((change["t"] - since, cap))
                since = change["t"]
            cap = float(change[name])
        pieces.append((end - since, cap))
        seconds = sum(length for length, _ in pieces)
        total = sum(length * cap for length, cap in pieces)
        averages[name] = total / seconds if seconds else base
    return averages


def measured_caps(record: Record) -> dict[str, float]:
    """Return the average of each cap in the measured part; the requested caps if it never began."""
    within = record.measured
    if not within:
        return requested_caps(record)
    return caps_between(record, within.start_monotonic_seconds, within.end_monotonic_seconds)


def cap_change_count(record: Record, name: str) -> int:
    """Return how many times the cap of one property changed within the measured part."""
    if not (within := record.measured):
        return 0
    start, end = within.start_monotonic_seconds, within.end_monotonic_seconds
    return sum(name in one and start < one["t"] < end for one in cap_changes(record))


def drained_after_seconds(record: Record) -> float | None:
    """Return the seconds after `go` at which a cap first fell to its base; None if none did."""
    if not record.measured:
        return None
    start, base = record.measured.start_monotonic_seconds, requested_caps(record)
    above_base: set[str] = set()
    for change in cap_changes(record):
        for name in change.keys() & base.keys():
            if change[name] > base[name]:
                above_base.add(name)
            elif name in above_base and change["t"] >= start:
                return float(change["t"] - start)
    return None


@dataclass(frozen=True)
class CapBucket:
    """The bucket of a cap when the trial began; reads and writes share it if it has both."""

    kind: str
    properties: tuple[str, ...]
    bucket: TokenBucket


def cap_buckets(record: Record) -> list[CapBucket]:
    """Return the buckets that decided the caps while the trial ran."""
    return [
        CapBucket(
            one["kind"],
            tuple(one["properties"]),
            TokenBucket(one["base"], one["rate"], one["capacity"], one["credits_at_start"]),
        )
        for one in (record.cage.credits or {}).get("buckets") or ()
    ]


@dataclass(frozen=True)
class SharedLimit:
    """A limit that reads and writes share at the provider, with the I/O of both.

    `was_split` is whether io.max was divided between reads and writes while the trial ran.
    `least_seconds` is the time that the provider would have needed, and `seconds` the time taken.
    """

    kind: str
    properties: tuple[str, ...]
    base: float
    least_seconds: float
    seconds: float
    was_split: bool

    @property
    def used(self) -> float:
        """The I/O of both, as a share of what the provider would have allowed."""
        return self.least_seconds / self.seconds


def shared_limits(record: Record) -> Iterator[SharedLimit]:
    """Yield each shared limit of a trial that both read and wrote.

    Older records have no bucket for a shared limit, because pagecage did not yet divide it. Their
    buckets follow from the caps.
    """
    seconds, caps = measured_seconds(record), requested_caps(record)
    if not seconds or not (record.cage.accounting or {}).get("combined"):
        return
    buckets = [one for one in cap_buckets(record) if len(one.properties) > 1]
    split = {one.kind for one in buckets}
    for kind, both in SHARED_PROPERTIES.items():
        if kind not in split and all(prop in caps for prop in both):
            base = min(caps[prop] for prop in both)
            buckets.append(CapBucket(kind, both, TokenBucket(base, base, 0.0, 0.0)))
    for one in buckets:
        moved = [io_difference(record, IO_STAT_KEY[prop]) or 0.0 for prop in one.properties]
        if all(moved):
            least, was_split = one.bucket.least_seconds(sum(moved)), one.kind in split
            base = one.bucket.base
            yield SharedLimit(one.kind, one.properties, base, least, seconds, was_split)


def amount(name: str, value: float) -> str:
    """Format a property's value in its own unit."""
    if name in MEMORY_FILE:
        return format_bytes(value)
    if name == "CPUQuota":
        return f"{value:.0f} % of one CPU"
    return format_rate(value) if "Bandwidth" in name else f"{value:.0f} I/Os per second"


def calibration_of(record: Record, name: str) -> Row:
    return (record.cage.calibration or {}).get(name) or {}


_SWAPPED = "memory.swap.current"


def observed_use(record: Record, name: str) -> float | None:
    """Return the trial's use of a property, in its unit."""
    if name in MEMORY_EVENT or name == "MemorySwapMax":
        used = final_counter(record, "memory.peak" if name in MEMORY_EVENT else _SWAPPED)
        return None if used is None else float(used)
    if name == "CPUQuota":
        used, seconds = cpu_seconds(record), measured_seconds(record)
        return None if used is None or not seconds else 100 * used / seconds
    account = volume_account(record)
    by_account = account.rate(name) if account else None
    moved = io_and_seconds(record, IO_STAT_KEY[name]) if by_account is None else None
    return moved[0] / moved[1] if moved else by_account


def format_use(name: str, observed: float | None) -> str:
    return (
        "the trial's use is not known"
        if observed is None
        else f"the trial reached {amount(name, observed)}"
    )


def format_cap(record: Record, name: str, cap: float) -> str:
    """Return the cap, and its average if credits or the other direction changed it."""
    in_force = measured_caps(record).get(name, cap)
    if in_force == cap:
        return amount(name, cap)
    cause = "with burst credits" if in_force > cap else "because reads and writes share it"
    return f"{amount(name, cap)} (on average {amount(name, in_force)} {cause})"


FIRST_SLICE_SECONDS = 0.1
"""The first slice of blk-throttle has no limit (block/blk-throttle.c, DFL_THROTL_SLICE = HZ/10)."""
GRACE = 1.03
"""Deep-queue direct I/O was seen 1.4 % above its cap over 6 s. Up to twice that is not a leak."""
CHARGE_BATCH_PAGES = 64
"""Each CPU charges memory in batches of 64 pages (mm/memcontrol.c, MEMCG_CHARGE_BATCH)."""
REACHED = 0.9
"""From this share of a cap on, the trial itself has reached it."""
CALIBRATION_REACHED = 0.8
"""A calibration that reached less than this share of its cap proves nothing."""
UNREQUESTED_NEAR = 0.6
"""From this share on, which a throttled reader reaches, an unrequested limit may have held it."""
LIMIT_FILE = {
    **MEMORY_FILE,
    **{name: f"io.max.{key}" for name, key in IO_MAX_KEY.items()},
    "CPUQuota": "cpu.max",
}


def judge_limits(record: Record) -> tuple[LimitVerdict, ...]:
    """Return a verdict on each requested property and each limit that only an ancestor imposes."""
    found = []
    for disk, view in ((None, record), *disk_views(record).items()):
        requested = view.cage.requested or {}
        verdicts = [_judge(view, name, cap) for name, cap in requested.items()]
        verdicts += _unrequested(view, set(requested))
        found += [replace(verdict, disk=disk) for verdict in verdicts]
    return tuple(found)


def _judge(record: Record, name: str, cap: Any) -> LimitVerdict:
    if not isinstance(cap, int):
        return LimitVerdict("not_applicable", f"The cage does not limit {name} ({cap}).", name)
    if not record.cage.read_back and not record.measured:
        return LimitVerdict(
            "not_applicable", "The trial ended before the slice's limits were read back.", name, cap
        )
    observed, calibrated = observed_use(record, name), calibration_of(record, name).get("observed")
    leak = next(filter(None, (leak(record, name, cap) for leak in _LEAKS)), None)
    word, reason = ("leaky", leak) if leak else _proof(record, name, cap)
    return LimitVerdict(word, reason, name, cap, observed, calibrated)


def _wrong_read_back(record: Record, name: str, cap: int) -> str | None:
    """Return a sentence if the kernel, or QEMU, holds another value than requested."""
    external = record.cage.external
    if external and name in IO_MAX_KEY:
        held = external["read_back"].get(name)
        wrong = f"{external['by']} holds {name} = {held or 'nothing'} instead of {cap}."
        return None if held == cap else wrong
    expected = expected_read_back(Cage("", {name: cap}), record.page_bytes)[LIMIT_FILE[name]]
    held = (record.cage.read_back or {}).get(LIMIT_FILE[name])
    if held == expected:
        return None
    return f"The kernel holds {LIMIT_FILE[name]} = {held or 'nothing'} instead of {expected}."


def _left_behind(record: Record, name: str, _cap: int) -> str | None:
    error = (record.cage.credits or {}).get("error")
    if not error or not any(name in one.properties for one in cap_buckets(record)):
        return None
    return f"The cap did not follow its credits: {error}."


def limit_value(text: str | None) -> float | None:
    """Return the number in a limit file; None for `max`. For cpu.max it is percent of one CPU."""
    words = (text or "max").split()
    if not words or words[0] == "max":
        return None
    return 100 * float(words[0]) / float(words[1]) if len(words) > 1 else float(words[0])


def _ancestor_limits(record: Record, name: str) -> Iterator[tuple[str, float]]:
    for cgroup, files in (record.cage.ancestors or {}).items():
        value = limit_value(files.get(LIMIT_FILE[name]))
        if value is not None:
            yield cgroup, value


def _tighter_ancestor(record: Record, name: str, cap: float) -> str | None:
    limits = _ancestor_limits(record, name)
    cgroup, value = min(limits, key=lambda pair: pair[1], default=("", cap))
    if value >= cap:
        return None
    return (
        f"The ancestor {cgroup} allows only {amount(name, value)}, less than the"
        f" {amount(name, cap)} requested."
    )


def _unrequested(record: Record, requested: set[str]) -> Iterator[LimitVerdict]:
    """Yield a verdict on each limit that only an ancestor has: leaky if the trial came near it."""
    moments = (record.cage.ancestors or {}, record.cage.ancestors_after or {})
    for name in LIMIT_FILE.keys() - requested:
        for cgroup, value in _ancestor_limits(record, name):
            counted = [moment.get(cgroup, {}).get("memory.hits") for moment in moments]
            before, after = counted if name == "MemoryMax" else (None, None)
            hits = None if before is None or after is None else int(after) - int(before)
            observed = observed_use(record, name)
            is_near = bool(hits) or (0 < (observed or 0) >= UNREQUESTED_NEAR * value)
            limit = (
                f"The ancestor {cgroup} imposes {amount(name, value)}, which the cage does not"
                " request"
            )
            use = format_use(name, observed) if hits is None else f"it was met {hits} times"
            word = "leaky" if is_near else "not_applicable"
            yield LimitVerdict(word, f"{limit}; {use}.", name, None, observed)


def _allowed(record: Record, name: str, cap: float) -> float:
    """Return the most that a kept limit lets through: a slice at full speed for each change."""
    if name == "MemoryHigh":
        return math.inf  # the kernel throttles above it and lets memory grow (cgroup-v2.rst)
    if name in MEMORY_FILE:
        return 0 if cap == 0 else cap * GRACE + CHARGE_BATCH_PAGES * record.page_bytes
    key = IO_STAT_KEY.get(name)
    seconds = (io_and_seconds(record, key) or (0, None))[1] if key else measured_seconds(record)
    slices = (1 + cap_change_count(record, name)) * FIRST_SLICE_SECONDS / (seconds or 1)
    return measured_caps(record).get(name, cap) * (1 + slices) * GRACE


def _overrun(record: Record, name: str, cap: float) -> str | None:
    observed, calibration = observed_use(record, name), calibration_of(record, name)
    if name in IO_MAX_KEY and (account := volume_account(record)):
        if overrun := account.overrun(name):
            return overrun
    elif observed is not None and observed > _allowed(record, name, cap):
        return (
            f"The trial reached {amount(name, observed)}, above the limit of"
            f" {format_cap(record, name, cap)}."
        )
    driven = calibration.get("observed")
    if calibration.get("held") is not False or driven is None:
        return None
    if driven <= (calibration.get("allowed") or cap):
        return None
    return f"Calibration reached {amount(name, driven)}, above the limit of {amount(name, cap)}."


_DIRTY = ("file_dirty", "file_writeback")
_BUFFERED_BYTES = 1 << 20
"""Fewer bytes that wait to be written are metadata or a log of the program's."""


def _buffered_writes(record: Record, name: str, _cap: int) -> str | None:
    """Return a sentence if writes through the page cache escaped a limit of cgroup v1.

    There the kernel's flusher writes them for no cgroup. Those that it wrote during the trial count
    as other processes' (verdict `host_quiet`).
    """
    files = (record.cage.counter_files or {}).get("io.stat") or ("",)
    if "Write" not in name or "blkio." not in files[0] or record.cage.external:
        return None
    waiting = sum(difference(record, "cgroup", "memory.stat", key) or 0 for key in _DIRTY)
    if waiting <= _BUFFERED_BYTES:
        return None
    return (
        f"{format_bytes(waiting)} were written through the page cache, and cgroup v1 does not hold"
        " such writes to a limit."
    )


def _shared_overrun(record: Record, name: str, _cap: int) -> str | None:
    """Return a sentence if reads and writes exceeded their divided limit by over the horizon."""
    for limit in shared_limits(record):
        tolerated = (limit.seconds + HORIZON_SECONDS + FIRST_SLICE_SECONDS) * GRACE
        if limit.was_split and name in limit.properties and limit.least_seconds > tolerated:
            used = f"{format_seconds(limit.least_seconds)} of it in {format_seconds(limit.seconds)}"
            return (
                f"Reads and writes share the limit of {amount(name, limit.base)} and used {used}."
            )
    return None


_LEAKS = (
    *(_wrong_read_back, _left_behind, _tighter_ancestor),
    *(_overrun, _buffered_writes, _shared_overrun),
)
"""Checks of a limit, each of which returns a sentence about a leak, or None. The first counts."""


def _proof(record: Record, name: str, cap: float) -> tuple[str, str]:
    """Return `enforced` or `never_reached` and the reason, for a limit that was kept."""
    if name == "MemorySwapMax" and cap == 0:
        return (
            "enforced",
            "Swap is off: memory.swap.max reads back 0, which needs no further proof.",
        )
    calibration = calibration_of(record, name)
    driven = calibration.get("observed")
    if calibration.get("held") and driven is not None and driven >= CALIBRATION_REACHED * cap:
        what = "throttled at" if name == "MemoryHigh" else "held to"
        held = f"was {what} {amount(name, driven)}; the limit is {amount(name, cap)}"
        return "enforced", f"Calibration ({calibration.get('method')}) {held}."
    evidence = _reached(record, name, cap)
    if evidence:
        return "enforced", evidence
    error = calibration.get("error")
    missing = error or ("it stayed below the cap" if calibration else "there was none")
    return (
        "never_reached",
        f"Nothing reached {amount(name, cap)}: {format_use(name, observed_use(record, name))}, and"
        f" calibration did not prove it ({missing}).",
    )


def _reached(record: Record, name: str, cap: float) -> str | None:
    if name in IO_MAX_KEY and (account := volume_account(record)):
        return account.reached(name)
    observed = observed_use(record, name)
    if name in MEMORY_EVENT:
        is_max = name == "MemoryMax"
        kills = final_counter(record, "memory.events", "oom_kill") or 0 if is_max else 0
        hits = final_counter(record, "memory.events", MEMORY_EVENT[name]) or 0
        if not kills and not hits:
            return None
        met = f"{'reclaimed' if is_max else 'throttled'} {hits} times at the limit"
        events = f"{kills} OOM kill{'s' * (kills > 1)}" if kills else met
        most = "" if observed is None else f", peak {format_bytes(observed)} of {format_bytes(cap)}"
        return f"The trial reached the limit: {events}{most}."
    if name == "CPUQuota":
        throttled = difference(record, "cgroup", "cpu.stat", "throttled_usec") or 0
        return f"The trial was throttled for {throttled / 1e6:.2f} s." if throttled else None
    if observed is not None and cap and observed >= REACHED * measured_caps(record).get(name, cap):
        return f"The trial reached {amount(name, observed)} of {format_cap(record, name, cap)}."
    return None
