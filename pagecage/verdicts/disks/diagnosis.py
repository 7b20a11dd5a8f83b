"""The limit of a trial with several disks: its disk, and other caps that were full as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.model.cage import DATA_DISK
from pagecage.model.record import Record
from pagecage.units import format_rate
from pagecage.verdicts.advice import FULL
from pagecage.verdicts.disks.views import on_disk
from pagecage.verdicts.evidence import format_iops, format_percent
from pagecage.verdicts.remarks import WORTH_NAMING
from pagecage.verdicts.traffic import traffic
from pagecage.verdicts.window_limit import BindingLimit, Window, binding_limit, full_caps


@dataclass(frozen=True)
class HeldWindows:
    """The windows in which a limit of one disk held the program back, and their share of the time.

    The windows are those of that disk.
    """

    limit: BindingLimit
    windows: Sequence[Window]
    share: float


def record_of(record: Record, disk: str) -> Record:
    """Return the record as seen from a disk."""
    return record if disk == DATA_DISK else on_disk(record, disk)


def _held_by(
    windows: Sequence[Window], limits: Sequence[Sequence[BindingLimit]]
) -> list[HeldWindows]:
    """Return each limit with its windows, the longest first; a window may have several limits."""
    total = sum(one.seconds for one in windows)
    found = []
    for limit in dict.fromkeys(limit for one in limits for limit in one):
        held = [window for window, ones in zip(windows, limits, strict=True) if limit in ones]
        share = sum(one.seconds for one in held) / total
        found.append(HeldWindows(limit, [one.by_disk[limit.disk] for one in held], share))
    return sorted(found, key=lambda one: one.share, reverse=True)


def caps_that_held(windows: Sequence[Window]) -> list[HeldWindows]:
    """Return the caps of all disks that held the program back, the longest first."""
    return _held_by(windows, [full_caps(window) for window in windows])


def disk_limit(
    windows: Sequence[Window], name: str, requested: Mapping[str, Any]
) -> HeldWindows | None:
    """Return the limit of this kind that held for the longest time.

    None if the kind is not one of disks (iops, bandwidth, device).
    """
    found = caps_that_held(windows)
    if name == "device":
        found = _held_by(windows, [[binding_limit(window, requested)] for window in windows])
    return next((one for one in found if one.limit.name == name), None)


def other_caps(windows: Sequence[Window], named: str | None) -> Iterator[str]:
    """Yield a sentence per cap of another disk than the one named that held as well."""
    for held in caps_that_held(windows):
        if held.limit.disk != named and held.share >= WORTH_NAMING:
            yield _sentence(held)


def _sentence(held: HeldWindows) -> str:
    prop, disk = held.limit.property or "", held.limit.disk
    direction = "write" if "Write" in prop else "read"
    moved = traffic(direction, held.windows)
    if "IOPS" in prop:
        cap, rate = moved.iops_cap or 0.0, moved.ios_per_second
        amount = format_iops(cap)
    else:
        cap, rate = moved.bandwidth_cap or 0.0, moved.bytes_per_second
        amount = format_rate(cap)
    verb = "was full" if rate >= FULL * cap else "held the program back"
    where = f"{direction}s {'to' if direction == 'write' else 'from'} the {disk} disk"
    return f"The {amount} cap on {where} {verb} for {format_percent(held.share)} as well."
