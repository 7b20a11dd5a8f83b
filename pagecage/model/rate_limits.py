"""Token buckets of cloud volumes, and limits that reads and writes share.

Use above the base drains a bucket, and unused base refills it. AWS documents this for gp2 ("I/O
credits") and Azure for its credit-based bursting. QEMU's throttling is the inverse: a bucket that
leaks at the base and is full when this one is empty (docs/throttle.txt).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

FILL = {"full": 1.0, "half": 0.5, "drained": 0.0}
"""Level of a bucket at a trial's start, by its name in a cage."""
HORIZON_SECONDS = 0.5
"""A limit is set only if the credits cover it for this long: five slices of blk-throttle."""
STEP = 1.25
"""Limits between base and burst differ by this factor or more, so that io.max is not rewritten for
every I/O."""


@dataclass(frozen=True)
class TokenBucket:
    """A bucket: `base` and `rate` per second, `capacity` and `credits`, in I/Os or in bytes.

    Negative `credits` are I/O that was admitted before the limit was lowered; they are paid back
    first. A bucket without capacity, whose rate does not exceed the base, is a plain limit.
    """

    base: float
    rate: float
    capacity: float
    credits: float

    def after(self, used: float, seconds: float) -> TokenBucket:
        """Return the bucket after `seconds` in which `used` was consumed."""
        return replace(self, credits=min(self.capacity, self.credits + self.base * seconds - used))

    @property
    def cap(self) -> int:
        """The limit to set now: the burst rate while credits last, then steps down to the base."""
        covered = self.base + max(0.0, self.credits) / HORIZON_SECONDS
        if covered >= self.rate:
            return round(self.rate)
        return round(self.base * STEP ** math.floor(math.log(covered / self.base, STEP)))

    def least_seconds(self, amount: float) -> float:
        """Return the least time in seconds in which `amount` can be transferred from now on."""
        left = max(0.0, self.credits)
        if self.rate <= self.base:
            return amount / self.base
        burst_seconds = left / (self.rate - self.base)
        if amount <= self.rate * burst_seconds:
            return amount / self.rate
        return (amount - left) / self.base


def filled(base: float, rate: float, capacity: float, start: str) -> TokenBucket:
    """Return a bucket at a trial's start: `full`, `half` or `drained`."""
    return TokenBucket(base, rate, capacity, FILL[start] * capacity)


HEADROOM = 1.25
"""A direction keeps its recent use times this factor, so that it can grow."""
PARTS = 16
"""Shares are multiples of 1/PARTS of the limit, so that io.max is not rewritten for every I/O."""


def split(limit: float, used: Mapping[str, float]) -> dict[str, int]:
    """Return each direction's limit, in the shared limit's unit, from its recent use per second.

    The sum exceeds the shared limit only while less than the limit is used. A direction that
    becomes active may exceed it until the next split; that debt is paid back (`less_debt`).
    """
    total = sum(used.values())
    return {name: _cap(limit, (total - own) / limit) for name, own in used.items()}


def less_debt(limit: float, debt: float, horizon_seconds: float) -> float:
    """Return the limit reduced so that the debt is paid back within the horizon.

    At least half of the limit.
    """
    return _share(limit, 1 - debt / horizon_seconds / limit)


def _cap(limit: float, others_share: float) -> int:
    return max(1, int(_share(limit, 1 - HEADROOM * others_share)))


def _share(limit: float, wanted: float) -> float:
    """Return the wanted share of the limit in multiples of 1/PARTS, at least half."""
    return limit * max(PARTS // 2, min(PARTS, round(PARTS * wanted))) / PARTS
