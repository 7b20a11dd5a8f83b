"""Limits that reads and writes share at the provider: how much of one both took together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pagecage.cage import BOTH_WAYS, IO_STAT_KEY
from pagecage.record import Record
from pagecage.token_bucket import TokenBucket
from pagecage.verdicts.caps import requested_caps
from pagecage.verdicts.readings import io_difference, measured_seconds


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
    for kind, both in BOTH_WAYS.items():
        if kind not in known and all(prop in caps for prop in both):
            base = min(caps[prop] for prop in both)
            yield kind, TokenBucket(base, base, 0.0, 0.0), both, False
