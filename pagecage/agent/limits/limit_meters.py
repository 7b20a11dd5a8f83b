"""Meters of burst credits and of limits that reads and writes share, used by IoMaxController."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pagecage.model.cage import IO_STAT_KEY, SHARED_PROPERTIES, Cage, CreditBucket, enforced_limit
from pagecage.model.rate_limits import HORIZON_SECONDS, TokenBucket, filled, less_debt, split

Used = Mapping[str, float]


@dataclass
class LimitMeter:
    """One bucket, the keys of io.stat that drain it, and the limits in force.

    `counters` maps each systemd property that the meter sets to its io.stat key: two entries if
    reads and writes share the limit. Without a burst the bucket has no capacity. `caps` are limits
    by property.
    """

    kind: str
    counters: dict[str, str]
    bucket: TokenBucket
    caps: dict[str, int] = field(default_factory=dict)
    _recent: deque[tuple[float, Used]] = field(default_factory=deque)

    @property
    def bursts(self) -> bool:
        """True if the burst rate exceeds the base."""
        return self.bucket.rate > self.bucket.base

    def charge(self, moved: Mapping[str, float], seconds: float) -> None:
        """Charge the I/O since the last call, by io.stat key."""
        used = {prop: moved.get(key, 0.0) for prop, key in self.counters.items()}
        self.bucket = self.bucket.after(sum(used.values()), seconds)
        self._recent.append((seconds, used))
        while sum(length for length, _ in self._recent) - self._recent[0][0] >= HORIZON_SECONDS:
            self._recent.popleft()
        if (
            not self.bursts and not self._is_mixed
        ):  # io.max alone limits one direction; its initial grace is not a debt
            self.bucket = filled(self.bucket.base, self.bucket.rate, 0.0, "drained")

    @property
    def _is_mixed(self) -> bool:
        """True if both directions were used within the last HORIZON_SECONDS."""
        return len(self.counters) > 1 and all(
            any(used[p] for _, used in self._recent) for p in self.counters
        )

    def wanted(self) -> dict[str, int]:
        """Return the limit of each property to be set now."""
        cap = self.bucket.cap
        if not self._is_mixed:
            caps = dict.fromkeys(self.counters, cap)
        else:
            limit = less_debt(cap, max(0.0, -self.bucket.credits), HORIZON_SECONDS)
            caps = split(limit, {prop: self._rate(prop) for prop in self.counters})
        return {prop: self._rounded(prop, one) for prop, one in caps.items()}

    def _rounded(self, prop: str, cap: int) -> int:
        """Return the limit as the kernel enforces it, so that the record is exact.

        The base as requested.
        """
        return max(int(enforced_limit(prop, cap)), min(cap, int(self.bucket.base)))

    def _rate(self, prop: str) -> float:
        """Return the recent use per second.

        A shorter period would show only blk-throttle's slices.
        """
        seconds = sum(length for length, _ in self._recent)
        return sum(used[prop] for _, used in self._recent) / seconds if seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the bucket for the record."""
        return {
            "kind": self.kind,
            "properties": sorted(self.counters),
            "base": self.bucket.base,
            "rate": self.bucket.rate,
            "capacity": self.bucket.capacity,
            "credits_at_start": self.bucket.credits,
        }


def meters(cage: Cage) -> Iterator[LimitMeter]:
    """Yield the meters of a cage: one per shared limit, and one per direction that can burst."""
    for kind, properties in SHARED_PROPERTIES.items():
        bucket = getattr(cage.burst, kind) if cage.burst else None
        present = {prop: IO_STAT_KEY[prop] for prop in properties if prop in cage.properties}
        if shares(cage, kind):
            yield _meter(cage, kind, present, bucket)
        else:
            bursting = {
                p: key for p, key in present.items() if bucket and cage.properties[p] < bucket.rate
            }
            yield from (_meter(cage, kind, {prop: key}, bucket) for prop, key in bursting.items())


def shares(cage: Cage, kind: str) -> bool:
    """Return whether reads and writes share the cage's limit of `kind`, iops or bandwidth."""
    caps = {cage.properties.get(prop) for prop in SHARED_PROPERTIES[kind]}
    return (
        bool(cage.accounting and cage.accounting.combined) and len(caps) == 1 and None not in caps
    )


def shares_all(cage: Cage) -> bool:
    """Return whether the cage has I/O limits and reads and writes share all of them."""
    kinds = [
        kind
        for kind, properties in SHARED_PROPERTIES.items()
        if cage.properties.keys() & set(properties)
    ]
    return bool(kinds) and all(shares(cage, kind) for kind in kinds)


def _meter(
    cage: Cage, kind: str, counters: dict[str, str], bucket: CreditBucket | None
) -> LimitMeter:
    base = min(cage.properties[prop] for prop in counters)
    if bucket is None or cage.burst is None or bucket.rate <= base:
        return LimitMeter(
            kind, counters, TokenBucket(base, base, 0.0, 0.0), dict.fromkeys(counters, base)
        )
    return LimitMeter(kind, counters, filled(base, bucket.rate, bucket.credits, cage.burst.start))
