"""I/O limits that name a device, as Docker, Compose and systemd have them: one device's become the cage's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagecage.imports.imported import Carried, Lost, Picks
from pagecage.units import exact_size

BANDWIDTH = ("IOReadBandwidthMax", "IOWriteBandwidthMax")


@dataclass(frozen=True)
class BlockLimit:
    """One limit of one device: the systemd property it amounts to, bytes or I/Os a second, and what was written."""

    key: str
    device: str
    rate: int
    said: str


def of_one_device(limits: Sequence[BlockLimit], picks: Picks) -> tuple[tuple[Carried, ...], tuple[Lost, ...]]:
    """The limits of the single device, or of the one picked; a cage has one disk, so the others are lost.

    A later limit of the same kind replaces an earlier one. A rate of 0 means no limit, to Docker as to the kernel.
    """
    limits = [limit for limit in limits if limit.rate > 0]
    devices = list(dict.fromkeys(limit.device for limit in limits))
    if not devices:
        return (), ()
    chosen = picks.choose("limited device", devices)
    kept: Mapping[str, BlockLimit] = {limit.key: limit for limit in limits if limit.device == chosen}
    carried = tuple(Carried(key, _value(limit), limit.said) for key, limit in kept.items())
    others = tuple(
        Lost(limit.said, f"a cage limits one disk, and {chosen} was taken")
        for limit in limits
        if limit.device != chosen
    )
    return carried, others


def _value(limit: BlockLimit) -> str | int:
    return exact_size(limit.rate) if limit.key in BANDWIDTH else limit.rate
