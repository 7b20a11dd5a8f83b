"""One limit for reads and writes together, which io.max has not: how it is split between them, from what each used.

Whoever uses less than half leaves the rest to the other; where both want more, each has half. A provider takes requests
as they come, and so serves a deeper queue more often: how deep the queues were there, nobody knows here.
"""

from __future__ import annotations

from collections.abc import Mapping

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
