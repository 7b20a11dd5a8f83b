"""Which I/O caps were in force when: those that the cage asked for, or what its burst credits made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pagecage.cage import IO_STAT_KEY
from pagecage.record import Record

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
