"""A token bucket as cloud volumes have it: what is used above the base drains it, what is left of the base refills it.

AWS describes it so for gp2 ("I/O credits"), Azure for its credit-based bursting; QEMU's throttling is its mirror image,
a bucket that leaks at the base and is full where this one is empty (docs/throttle.txt).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

FILL = {"full": 1.0, "half": 0.5, "drained": 0.0}
"""How full a bucket is when a trial begins, by the name that a cage gives it."""
HORIZON_SECONDS = 0.5
"""For how long a cap must be coverable by what is left: five slices of blk-throttle."""
STEP = 1.25
"""Caps between base and burst differ by this factor at least, so that io.max is not rewritten for every I/O."""


@dataclass(frozen=True)
class TokenBucket:
    """`base` and `rate` a second, `capacity` and `credits` in the same unit: I/Os or bytes.

    `credits` below zero are what went through before the cap could be lowered; they are paid back first. Without any
    capacity, and with a rate no higher than the base, it is a plain limit.
    """

    base: float
    rate: float
    capacity: float
    credits: float

    def after(self, used: float, seconds: float) -> TokenBucket:
        """The bucket some time later, in which so much was used."""
        return replace(self, credits=min(self.capacity, self.credits + self.base * seconds - used))

    @property
    def cap(self) -> int:
        """The cap to put in force now: the burst rate while credits cover it, then by steps down to the base."""
        covered = self.base + max(0.0, self.credits) / HORIZON_SECONDS
        if covered >= self.rate:
            return round(self.rate)
        return round(self.base * STEP ** math.floor(math.log(covered / self.base, STEP)))

    def least_seconds(self, amount: float) -> float:
        """The least time in which so much can go through from now on."""
        left = max(0.0, self.credits)
        if self.rate <= self.base:
            return amount / self.base
        burst_seconds = left / (self.rate - self.base)
        if amount <= self.rate * burst_seconds:
            return amount / self.rate
        return (amount - left) / self.base


def filled(base: float, rate: float, capacity: float, start: str) -> TokenBucket:
    """A bucket as a trial finds it: `full`, `half` or `drained`."""
    return TokenBucket(base, rate, capacity, FILL[start] * capacity)


HEADROOM = 1.25
"""What a direction used is left to it with so much more, so that it can grow."""
PARTS = 16
"""A share is a whole number of such parts of the limit, so that io.max is not rewritten for every I/O."""


def split(limit: float, used: Mapping[str, float]) -> dict[str, int]:
    """The cap of each direction, in the limit's unit, from what each used a second of late.

    Both caps come to more than the limit only while less than the limit is used; what a direction that wakes up takes
    until the next split is paid back (`less_debt`).
    """
    total = sum(used.values())
    return {name: _cap(limit, (total - own) / limit) for name, own in used.items()}


def less_debt(limit: float, debt: float, horizon_seconds: float) -> float:
    """The limit while what went through above it is paid back over the horizon; half of it at least."""
    return _share(limit, 1 - debt / horizon_seconds / limit)


def _cap(limit: float, others_share: float) -> int:
    return max(1, int(_share(limit, 1 - HEADROOM * others_share)))


def _share(limit: float, wanted: float) -> float:
    """Half of the limit or more, in whole parts."""
    return limit * max(PARTS // 2, min(PARTS, round(PARTS * wanted))) / PARTS
