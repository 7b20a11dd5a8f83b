"""Which I/O caps were in force when: those that the cage asked for, or what its burst credits made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.model.cage import IO_STAT_KEY, SHARED_PROPERTIES
from pagecage.model.rate_limits import TokenBucket
from pagecage.model.record import Record
from pagecage.verdicts.counters import io_difference, measured_seconds

Change = Mapping[str, Any]


def is_io_cap(name: str) -> bool:
    """Whether a property caps I/O, which alone is what a prediction knows how to change."""
    return name in IO_STAT_KEY


def requested_caps(record: Record) -> dict[str, float]:
    """The I/O caps that the cage asks for, by property; with burst credits these are the base."""
    asked = record.cage.get("requested") or {}
    return {name: asked[name] for name in IO_STAT_KEY if isinstance(asked.get(name), int | float) and asked[name]}


def changes(record: Record) -> Sequence[Change]:
    """Each rewriting of io.max by burst credits: {"t": CLOCK_MONOTONIC, property: cap}, in order; none without."""
    return (record.cage.get("credits") or {}).get("changes") or ()


def credits_error(record: Record, name: str) -> str | None:
    """Why the credits of one property's bucket ended early; None where they did not, or it has none."""
    played = record.cage.get("credits") or {}
    has_bucket = any(name in bucket["properties"] for bucket in played.get("buckets") or ())
    return played.get("error") if has_bucket else None


def caps_between(record: Record, start: float, end: float) -> dict[str, float]:
    """The caps in force between two moments of CLOCK_MONOTONIC, each averaged over the time."""
    rewritten = changes(record)
    return {name: _average(cap, name, rewritten, start, end) for name, cap in requested_caps(record).items()}


def measured_caps(record: Record) -> dict[str, float]:
    """The same for the measured part; what was asked for where it never began."""
    if not record.measured:
        return requested_caps(record)
    start = record.measured["start_monotonic_seconds"]
    return caps_between(record, start, start + record.measured["seconds"])


def rewritings(record: Record, name: str) -> int:
    """How often the cap of one property was rewritten within the measured part."""
    if not record.measured:
        return 0
    start = record.measured["start_monotonic_seconds"]
    end = start + record.measured["seconds"]
    return sum(name in change and start < change["t"] < end for change in changes(record))


def _average(base: float, name: str, rewritten: Sequence[Change], start: float, end: float) -> float:
    pieces = list(_pieces(base, name, rewritten, start, end))
    seconds = sum(length for length, _ in pieces)
    return sum(length * cap for length, cap in pieces) / seconds if seconds else base


def _pieces(
    base: float, name: str, rewritten: Sequence[Change], start: float, end: float
) -> Iterator[tuple[float, float]]:
    """Stretches of constant cap: their length in seconds and the cap."""
    since, cap = start, base
    for change in rewritten:
        if name not in change or change["t"] >= end:
            continue
        if change["t"] > since:
            yield change["t"] - since, cap
            since = change["t"]
        cap = float(change[name])
    yield end - since, cap


def drained_after_seconds(record: Record) -> float | None:
    """When, after `go`, a cap first fell to its base for want of credits; None where none did."""
    if not record.measured:
        return None
    start, base = record.measured["start_monotonic_seconds"], requested_caps(record)
    above: set[str] = set()
    for change in changes(record):
        for name in change.keys() & base.keys():
            if change[name] > base[name]:
                above.add(name)
            elif name in above and change["t"] >= start:
                return float(change["t"] - start)
    return None


@dataclass(frozen=True)
class SharedLimit:
    """A limit with what went through both ways. `was_split`: io.max was divided between them while they ran.

    `least_seconds` is the time in which the provider would have let it through, of the `seconds` that it took.
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
        """What both took, as a share of what the provider would have let through."""
        return self.least_seconds / self.seconds


def shared_limits(record: Record) -> Iterator[SharedLimit]:
    """Each shared limit of a trial in which both directions were used."""
    seconds = measured_seconds(record)
    if not seconds or not (record.cage.get("accounting") or {}).get("combined"):
        return
    for kind, bucket, properties, was_split in _buckets(record):
        moved = [io_difference(record, IO_STAT_KEY[prop]) or 0.0 for prop in properties]
        if all(moved):
            least = bucket.least_seconds(sum(moved))
            yield SharedLimit(kind, properties, bucket.base, sum(moved), least, seconds, was_split)


def bucket_of(about: Mapping[str, Any]) -> TokenBucket:
    """A bucket as it stood when the trial began, from what a record tells of it."""
    return TokenBucket(about["base"], about["rate"], about["capacity"], about["credits_at_start"])


def _buckets(record: Record) -> Iterator[tuple[str, TokenBucket, tuple[str, ...], bool]]:
    """From what was played; from the caps themselves where a trial was made before limits were split."""
    played = [one for one in (record.cage.get("credits") or {}).get("buckets") or () if len(one["properties"]) > 1]
    for one in played:
        yield one["kind"], bucket_of(one), tuple(one["properties"]), True
    caps, known = requested_caps(record), {one["kind"] for one in played}
    for kind, both in SHARED_PROPERTIES.items():
        if kind not in known and all(prop in caps for prop in both):
            base = min(caps[prop] for prop in both)
            yield kind, TokenBucket(base, base, 0.0, 0.0), both, False
