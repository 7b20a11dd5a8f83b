"""Demands of trials, made by hand."""

from __future__ import annotations

from typing import Any

from pagecage.verdicts.io_demand import DemandWindow, IoDemand


def window(
    *, reads: float = 0, kib: float = 4, writes: float = 0, own: float = 0.1, **more: Any
) -> DemandWindow:
    """A window of so many reads and writes of `kib` KiB, and of `own` seconds of its own time.

    `disk` are the seconds that its requests took, each waited for.
    """
    disk = more.pop("disk", 0.0)
    moved = {
        "rios": reads,
        "rbytes": reads * kib * 1024,
        "wios": writes,
        "wbytes": writes * kib * 1024,
    }
    timed = {"requests": reads + writes, "queued_seconds": disk} if disk else {}
    return DemandWindow(moved, own + disk, more.pop("capped", False), own, disk, 0.0, **timed)


def demand(*windows: DemandWindow, **more: Any) -> IoDemand:
    """A demand of these windows."""
    return IoDemand(windows, **more)
