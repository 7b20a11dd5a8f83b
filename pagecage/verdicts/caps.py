"""The caps in force at each moment, and the use that a trial made of its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.model.cage import IO_STAT_KEY, MEMORY_EVENT, MEMORY_FILE, SHARED_PROPERTIES
from pagecage.model.rate_limits import TokenBucket
from pagecage.model.record import Record
from pagecage.units import format_bytes, format_rate
from pagecage.verdicts.counters import (
    cpu_seconds,
    final_counter,
    io_and_seconds,
    io_difference,
    measured_seconds,
)
from pagecage.verdicts.volume_account import rate_changes, use_by_account

CapChange = Mapping[str, Any]


def is_io_cap(name: str) -> bool:
    """Return whether a property caps I/O. A prediction can change no other property."""
    return name in IO_STAT_KEY


def requested_caps(record: Record) -> dict[str, float]:
    """Return the requested I/O caps by property; with burst credits, the base rates."""
    requested = record.cage.requested or {}
    caps = {name: requested.get(name) for name in IO_STAT_KEY}
    return {name: cap for name, cap in caps.items() if isinstance(cap, int | float) and cap}


def cap_changes(record: Record) -> Sequence[CapChange]:
    """Return the changes of the caps while the trial ran, in order; empty without burst credits.

    A change is {"t": CLOCK_MONOTONIC seconds, property: cap}.
    """
    return (record.cage.credits or {}).get("changes") or rate_changes(record)


def credits_error(record: Record, name: str) -> str | None:
    """Return the error that ended the rewriting of one property's cap early; None without one."""
    credits_section = record.cage.credits or {}
    has_bucket = any(
        name in bucket["properties"] for bucket in credits_section.get("buckets") or ()
    )
    return credits_section.get("error") if has_bucket else None


def caps_between(record: Record, start: float, end: float) -> dict[str, float]:
    """Return the average of each cap between two moments of CLOCK_MONOTONIC."""
    changes = cap_changes(record)
    return {
        name: _average(cap, name, changes, start, end)
        for name, cap in requested_caps(record).items()
    }


def measured_caps(record: Record) -> dict[str, float]:
    """Return the average of each cap in the measured part; the requested caps if it never began."""
    if not record.measured:
        return requested_caps(record)
    start = record.measured.start_monotonic_seconds
    return caps_between(record, start, start + record.measured.seconds)


def cap_change_count(record: Record, name: str) -> int:
    """Return how many times the cap of one property changed within the measured part."""
    if not record.measured:
        return 0
    start = record.measured.start_monotonic_seconds
    end = start + record.measured.seconds
    return sum(name in change and start < change["t"] < end for change in cap_changes(record))


def _average(
    base: float, name: str, changes: Sequence[CapChange], start: float, end: float
) -> float:
    pieces = list(_constant_pieces(base, name, changes, start, end))
    seconds = sum(length for length, _ in pieces)
    return sum(length * cap for length, cap in pieces) / seconds if seconds else base


def _constant_pieces(
    base: float, name: str, changes: Sequence[CapChange], start: float, end: float
) -> Iterator[tuple[float, float]]:
    """Yield the length in seconds and the cap of each stretch in which the cap was constant."""
    since, cap = start, base
    for change in changes:
        if name not in change or change["t"] >= end:
            continue
        if change["t"] > since:
            yield change["t"] - since, cap
            since = change["t"]
        cap = float(change[name])
    yield end - since, cap


def drained_after_seconds(record: Record) -> float | None:
    """Return the seconds after `go` at which a cap first fell to its base for lack of credits.

    None if no cap did.
    """
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
class SharedLimit:
    """A limit that reads and writes share at the provider, with the I/O of both.

    `was_split` is whether io.max was divided between reads and writes while the trial ran.
    `least_seconds` is the time that the provider would have needed, and `seconds` the time taken.
    """

    kind: str
    properties: tuple[str, ...]
    base: float
    moved: float
    least_seconds: float
    seconds: float
    was_split: bool

    @property
    def used(self) -> float:
        """The I/O of both, as a share of what the provider would have allowed."""
        return self.least_seconds / self.seconds


def shared_limits(record: Record) -> Iterator[SharedLimit]:
    """Yield each shared limit of a trial that both read and wrote."""
    seconds = measured_seconds(record)
    if not seconds or not (record.cage.accounting or {}).get("combined"):
        return
    for kind, bucket, properties, was_split in _shared_buckets(record):
        moved = [io_difference(record, IO_STAT_KEY[prop]) or 0.0 for prop in properties]
        if all(moved):
            least = bucket.least_seconds(sum(moved))
            yield SharedLimit(kind, properties, bucket.base, sum(moved), least, seconds, was_split)


def bucket_of(section: Mapping[str, Any]) -> TokenBucket:
    """Return a bucket as it was when the trial began, from its section of the record."""
    return TokenBucket(
        section["base"], section["rate"], section["capacity"], section["credits_at_start"]
    )


def _shared_buckets(record: Record) -> Iterator[tuple[str, TokenBucket, tuple[str, ...], bool]]:
    """Yield kind, bucket, properties and `was_split` of each shared limit.

    Older records have no bucket for a shared limit, because pagecage did not yet divide it. Their
    buckets follow from the caps.
    """
    buckets = (record.cage.credits or {}).get("buckets") or ()
    shared = [bucket for bucket in buckets if len(bucket["properties"]) > 1]
    for bucket in shared:
        yield bucket["kind"], bucket_of(bucket), tuple(bucket["properties"]), True
    caps, known = requested_caps(record), {bucket["kind"] for bucket in shared}
    for kind, both in SHARED_PROPERTIES.items():
        if kind not in known and all(prop in caps for prop in both):
            base = min(caps[prop] for prop in both)
            yield kind, TokenBucket(base, base, 0.0, 0.0), both, False


def amount(name: str, value: float) -> str:
    """Format a property's value in its own unit."""
    if name in MEMORY_FILE:
        return format_bytes(value)
    if name == "CPUQuota":
        return f"{value:.0f} % of one CPU"
    return format_rate(value) if "Bandwidth" in name else f"{value:.0f} I/Os per second"


def calibration_of(record: Record, name: str) -> Mapping[str, Any]:
    """Return the calibration's result for a property; empty without one."""
    return (record.cage.calibration or {}).get(name) or {}


def cap_in_force(record: Record, name: str, cap: float) -> float:
    """Return the cap's average over the measured part; burst credits may change it."""
    return measured_caps(record).get(name, cap)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def observed_use(record: Record, name: str) -> float | None:
    """Return the trial's use of a property, in its unit."""
    if name == "MemorySwapMax":
        return _number(final_counter(record, "memory.swap.current"))
    if name in MEMORY_EVENT:
        return _number(final_counter(record, "memory.peak"))
    if name == "CPUQuota":
        used, seconds = cpu_seconds(record), measured_seconds(record)
        return None if used is None or not seconds else 100 * used / seconds
    by_account = use_by_account(record, name)
    if by_account is not None:
        return by_account
    moved = io_and_seconds(record, IO_STAT_KEY[name])
    return None if moved is None else moved[0] / moved[1]


def format_use(name: str, observed: float | None) -> str:
    """Return the trial's use as a clause."""
    return (
        "the trial's use is not known"
        if observed is None
        else f"the trial reached {amount(name, observed)}"
    )


def format_cap(record: Record, name: str, cap: float) -> str:
    """Return the cap, and its average if credits or the other direction changed it."""
    in_force = cap_in_force(record, name, cap)
    if in_force == cap:
        return amount(name, cap)
    cause = "with burst credits" if in_force > cap else "because reads and writes share it"
    return f"{amount(name, cap)} (on average {amount(name, in_force)} {cause})"
