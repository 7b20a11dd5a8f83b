"""Meters of a volume: one per limit and layer, with the I/O that the provider counts against it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pagecage.cloud.profile import LimitProfile
from pagecage.cloud.volume_limits import FULLNESS, LimitLayer
from pagecage.model.cage import IoAccounting
from pagecage.model.rate_limits import TokenBucket
from pagecage.verdicts.io_demand import DemandWindow, IoDemand

Count = Literal["fewest", "expected", "most"]
"""Bounds of what the provider may count for the same requests, and the expected number."""
_DIRECTIONS = {"read": ("rios", "rbytes"), "write": ("wios", "wbytes")}
LIMITS = {"IOPS": "iops", "bandwidth": "bandwidth"}
"""Limits by name, with the quantities of a profile."""
Scope = tuple[str, ...]
"""The directions that a limit counts together."""


def scopes(*, combined: bool) -> tuple[Scope, ...]:
    """Return the scope of each limit; if `combined`, reads and writes share it."""
    each = tuple(_DIRECTIONS)
    return (each,) if combined else tuple((one,) for one in each)


@dataclass(frozen=True)
class IoMeter:
    """One limit of one layer. `limit` is `IOPS` or `bandwidth`, `by` the layer's name.

    The bucket is as full as at the start.
    """

    limit: str
    by: str
    scope: Scope
    bucket: TokenBucket


def io_meters(profile: LimitProfile, *, combined: bool) -> tuple[IoMeter, ...]:
    """Return the meters of a profile; if `combined`, reads and writes share each limit."""
    return tuple(
        IoMeter(limit, layer.by, scope, _bucket(layer, profile.start))
        for limit, quantity in LIMITS.items()
        for scope in scopes(combined=combined)
        for layer in getattr(profile.limits, f"{scope[0]}_{quantity}")
    )


def _bucket(layer: LimitLayer, start: str) -> TokenBucket:
    """Return a layer's bucket. A burst without end is a plain limit."""
    rate = float(layer.burst or 0) if layer.bursts else 0.0
    if layer.credits is None or not rate:
        base = rate or float(layer.base)
        return TokenBucket(base, base, 0.0, 0.0)
    capacity = float(layer.credits)
    return TokenBucket(float(layer.base), rate, capacity, float(FULLNESS[start]) * capacity)


def counted(
    limit: str,
    scope: Scope,
    window: DemandWindow,
    demand: IoDemand,
    rules: IoAccounting,
    count: Count,
) -> float:
    """Return what the provider counts of a window's I/O against a limit, in I/Os or bytes."""
    keys = [_DIRECTIONS[direction] for direction in scope]
    if limit == "bandwidth":
        return sum(window.moved[size_key] for _, size_key in keys)
    return sum(
        _operations(window.moved[ios_key], window.moved[size_key], demand, rules, count)
        for ios_key, size_key in keys
    )


def _operations(
    ios: float, size_bytes: float, demand: IoDemand, rules: IoAccounting, count: Count
) -> float:
    """Return the number of operations that the provider counts.

    The kernel merges neighbours before a request reaches the volume. The fewest are those after
    merging at the provider; if it is unknown whether it merges, it may. The most are those before
    merging in the kernel, each split so unfavourably as the largest request allows.
    """
    if not ios:
        return 0.0
    merged = ios * demand.unmerged_share
    unit = rules.io_size_bytes
    if unit is None:
        return ios if count == "most" else merged
    by_size = size_bytes / unit
    if count == "fewest":
        return by_size if rules.merged in (True, None) else max(merged, by_size)
    largest = demand.largest_request_bytes
    more = math.inf if largest is None else math.ceil(largest / unit) - 1
    most = ios + min(by_size, ios * more)
    # An average of exactly one unit must not become two by rounding.
    return most if count == "most" else min(most, merged * math.ceil(by_size / merged - 1e-6))
