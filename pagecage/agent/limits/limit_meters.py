"""What the rewriting of io.max goes by: buckets of burst credits, and limits that reads and writes share."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pagecage.model.cage import BOTH_WAYS, IO_STAT_KEY, Cage, CreditBucket, let_through
from pagecage.model.rate_limits import HORIZON_SECONDS, TokenBucket, filled, less_debt, split

Used = Mapping[str, float]


@dataclass
class LimitMeter:
    """One bucket, the io.stat keys that drain it by the systemd properties that it sets, and the caps in force.

    `counters` holds both directions where they share the limit. Without a burst the bucket has no capacity.
    """

    kind: str
    counters: dict[str, str]
    bucket: TokenBucket
    caps: dict[str, int] = field(default_factory=dict)
    _late: deque[tuple[float, Used]] = field(default_factory=deque)

    @property
    def bursts(self) -> bool:
        """Whether there is more than the base to be had."""
        return self.bucket.rate > self.bucket.base

    def charge(self, moved: Mapping[str, float], seconds: float) -> None:
        """Take what went through, by io.stat key, in the time since the last call."""
        used = {prop: moved.get(key, 0.0) for prop, key in self.counters.items()}
        self.bucket = self.bucket.after(sum(used.values()), seconds)
        self._late.append((seconds, used))
        while sum(length for length, _ in self._late) - self._late[0][0] >= HORIZON_SECONDS:
            self._late.popleft()
        if not self.bursts and not self._is_mixed:  # io.max alone holds one direction, with a grace that is no debt
            self.bucket = filled(self.bucket.base, self.bucket.rate, 0.0, "drained")

    @property
    def _is_mixed(self) -> bool:
        """Whether both directions were used of late."""
        return len(self.counters) > 1 and all(any(used[p] for _, used in self._late) for p in self.counters)

    def wanted(self) -> dict[str, int]:
        """The cap of each property that is to be in force now."""
        cap = self.bucket.cap
        if not self._is_mixed:
            caps = dict.fromkeys(self.counters, cap)
        else:
            limit = less_debt(cap, max(0.0, -self.bucket.credits), HORIZON_SECONDS)
            caps = split(limit, {prop: self._rate(prop) for prop in self.counters})
        return {prop: self._as_let_through(prop, one) for prop, one in caps.items()}

    def _as_let_through(self, prop: str, cap: int) -> int:
        """The cap as the kernel keeps it, since more would be told than is given; the base as it was asked for."""
        return max(int(let_through(prop, cap)), min(cap, int(self.bucket.base)))

    def _rate(self, prop: str) -> float:
        """What it used a second of late; a shorter look sees only blk-throttle's slices."""
        seconds = sum(length for length, _ in self._late)
        return sum(used[prop] for _, used in self._late) / seconds if seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """What the bucket is, as it stands in a record."""
        return {
            "kind": self.kind, "properties": sorted(self.counters), "base": self.bucket.base, "rate": self.bucket.rate,
            "capacity": self.bucket.capacity, "credits_at_start": self.bucket.credits,
        }  # fmt: skip


def meters(cage: Cage) -> Iterator[LimitMeter]:
    """The meters of a cage: one for both directions where the provider combines them, else one each that bursts."""
    for kind, properties in BOTH_WAYS.items():
        bucket = getattr(cage.burst, kind) if cage.burst else None
        present = {prop: IO_STAT_KEY[prop] for prop in properties if prop in cage.properties}
        if shares(cage, kind):
            yield _meter(cage, kind, present, bucket)
        else:
            bursting = {p: key for p, key in present.items() if bucket and cage.properties[p] < bucket.rate}
            yield from (_meter(cage, kind, {prop: key}, bucket) for prop, key in bursting.items())


def shares(cage: Cage, kind: str) -> bool:
    """Whether reads and writes share one limit of this kind (`iops` or `bandwidth`), and the cage has it for both."""
    caps = {cage.properties.get(prop) for prop in BOTH_WAYS[kind]}
    return bool(cage.accounting and cage.accounting.combined) and len(caps) == 1 and None not in caps


def shares_all(cage: Cage) -> bool:
    """Whether every I/O cap of the cage is one that reads and writes share."""
    kinds = [kind for kind, properties in BOTH_WAYS.items() if cage.properties.keys() & set(properties)]
    return bool(kinds) and all(shares(cage, kind) for kind in kinds)


def _meter(cage: Cage, kind: str, counters: dict[str, str], bucket: CreditBucket | None) -> LimitMeter:
    base = min(cage.properties[prop] for prop in counters)
    if bucket is None or cage.burst is None or bucket.rate <= base:
        return LimitMeter(kind, counters, TokenBucket(base, base, 0.0, 0.0), dict.fromkeys(counters, base))
    return LimitMeter(kind, counters, filled(base, bucket.rate, bucket.credits, cage.burst.start))
