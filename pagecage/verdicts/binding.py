"""The limit that held the trial back, decided window by window.

The achieved rate alone does not decide. A synchronous reader that a cap holds back reaches 0.6 to
0.98 of the cap, because it waits for the next slice and then computes for a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.model.cage import IO_STAT_KEY
from pagecage.model.record import Record
from pagecage.units import PAGE_BYTES
from pagecage.verdicts.counters import final_counter
from pagecage.verdicts.verdict import BindingVerdict
from pagecage.verdicts.windows import Window

NEAR_CAP = 0.6
"""Least share of its cap that a throttled synchronous reader was seen to reach."""
FULL_CAP = 0.95
"""From this share on, a cap holds the program back whatever the pressure figures are.

Pressure does not count a program that awaits asynchronous reads (io_uring, libaio) as waiting.
"""
WAITING = 0.1
"""Least share of a window in which a task must wait for the wait to count."""
REFAULT_SHARE = 0.1
"""Least share of the pages read that are read again when the memory limit costs reads."""
RECLAIMING = 0.5
"""Share of a window spent in reclaim. A sequential reader that is hardly slowed was seen at 0.3."""
DISK_BUSY = 0.9
DISK_WAITING = 0.5
"""The disk binds if it is nearly always busy and the reader mostly waits for it."""
CPU_BUSY = 0.8
"""CPUs used or waited for: one thread that would compute nearly all the time."""
NAMES = ("bandwidth", "iops", "memory", "device", "cpu", "none")
_IN_WORDS = {
    "bandwidth": "a bandwidth cap",
    "iops": "an IOPS cap",
    "memory": "the memory limit",
    "device": "the disk itself",
    "cpu": "the CPU",
    "none": "no limit",
}


@dataclass(frozen=True)
class BindingLimit:
    """The limit that held one window back: one of NAMES, and for a cap its systemd property."""

    name: str
    property: str | None = None


def judge_binding_limit(record: Record, windows: Sequence[Window]) -> BindingVerdict:
    """Return the limit that held the program back for most of the measured time."""
    kills = final_counter(record, "memory.events", "oom_kill")
    if kills:
        sentence = f"The memory limit ended the trial ({kills} OOM kill{'s' * (kills > 1)})."
        return BindingVerdict("memory", sentence, {"memory": 1.0})
    if not windows:
        return BindingVerdict(
            "none", "The limit is not known, because the measured part did not end.", {}
        )
    requested = record.cage.requested or {}
    found = [(binding_limit(window, requested), window.seconds) for window in windows]
    shares = _shares([(limit.name, seconds) for limit, seconds in found])
    name = max(NAMES, key=lambda n: shares.get(n, 0.0))
    caps = _shares([(limit.property, seconds) for limit, seconds in found])
    return BindingVerdict(name, _sentence(name, shares, windows), shares, caps)


def _shares(named: Sequence[tuple[str | None, float]]) -> dict[str, float]:
    """Return each name's share of the time; None adds to the time and has no share."""
    total = sum(seconds for _, seconds in named)
    shares = {
        name: sum(s for n, s in named if n == name) / total for name in (*NAMES, *IO_STAT_KEY)
    }
    return {name: share for name, share in shares.items() if share}


def binding_limit(window: Window, requested: Mapping[str, Any]) -> BindingLimit:
    """Return the limit of one window, by the first rule that applies: cap, memory, device, CPU."""
    closeness, prop = _nearest_cap(window)
    if closeness >= FULL_CAP or (
        closeness >= NEAR_CAP and _share(window.waited_io, window) >= WAITING
    ):
        return BindingLimit("bandwidth" if "Bandwidth" in prop else "iops", prop)
    if "MemoryMax" in requested and _suffers_from_reclaim(window):
        return BindingLimit("memory")
    if (
        _share(window.disk_busy, window) >= DISK_BUSY
        and _share(window.waited_io, window) >= DISK_WAITING
    ):
        return BindingLimit("device")
    computing = _share(window.cpu, window) + _share(window.waited_cpu, window)
    if _share(window.throttled, window) >= WAITING or computing >= CPU_BUSY:
        return BindingLimit("cpu")
    return BindingLimit("none")


def _share(value: float | None, window: Window) -> float:
    return 0.0 if value is None else value / window.seconds


def _nearest_cap(window: Window) -> tuple[float, str]:
    """Return the largest used share of any cap, and that cap's property."""
    used = (
        (window.moved[IO_STAT_KEY[prop]] / window.seconds / cap, prop)
        for prop, cap in window.caps.items()
    )
    return max(used, default=(0.0, ""))


def _suffers_from_reclaim(window: Window) -> bool:
    """Return whether the memory limit was met at a cost: pages read again, or tasks that waited."""
    if not window.limit_hits:
        return False
    reread_share = (window.refault_pages or 0) * PAGE_BYTES / max(window.moved["rbytes"], 1)
    return reread_share >= REFAULT_SHARE or _share(window.waited_memory, window) >= RECLAIMING


def _sentence(name: str, shares: Mapping[str, float], windows: Sequence[Window]) -> str:
    seconds = sum(window.seconds for window in windows)

    def percent(figure: str) -> float:
        return 100 * sum(getattr(window, figure) or 0 for window in windows) / seconds

    counted = f"{seconds:.1f} s (in {len(windows)} window{'s' * (len(windows) > 1)})"
    waits = (
        f"for the disk {percent('waited_io'):.0f} % of the time and for memory"
        f" {percent('waited_memory'):.0f} %"
    )
    return (
        f"For {100 * shares.get(name, 0):.0f} % of {counted}, {_IN_WORDS[name]} held the program"
        f" back. It waited {waits}, and kept {percent('cpu') / 100:.2f} CPUs busy."
    )
