"""Which limit held the trial back, moment by moment.

Achieved / cap alone does not tell: a synchronous reader held by a cap reaches 0.6 to 0.98 of it, because it
waits out a slice and then computes for a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.model.cage import IO_STAT_KEY
from pagecage.model.record import Record
from pagecage.units import PAGE_BYTES
from pagecage.verdicts.counters import last_known
from pagecage.verdicts.verdict import BindingVerdict
from pagecage.verdicts.windows import Window, windows

NEAR_CAP = 0.6
"""The lowest share of its cap that a throttled synchronous reader was seen to reach."""
FULL_CAP = 0.95
"""From here on a cap holds whatever pressure tells: a program that awaits asynchronous reads (io_uring, libaio) does
not count as waiting for I/O."""
WAITING = 0.1
"""Share of a window in which some task waited: below it, nothing was waited for worth naming."""
REFAULT_SHARE = 0.1
"""Pages that were read again, of all pages read: from here on the memory limit costs reads."""
RECLAIMING = 0.5
"""Share of a window spent in reclaim. A caged reader in order, which is not slowed much, was seen at 0.3."""
DISK_BUSY = 0.9
DISK_WAITING = 0.5
"""The disk binds when it is hardly ever idle and the reader mostly waits for it."""
CPU_BUSY = 0.8
"""CPUs used or waited for: one thread that would compute nearly all the time."""
NAMES = ("bandwidth", "iops", "memory", "device", "cpu", "none")


@dataclass(frozen=True)
class BindingLimit:
    """What held one window: one of NAMES, and for a cap its systemd property, which tells reads from writes."""

    name: str
    property: str | None = None


def judge_binding_limit(record: Record, series: Sequence[Mapping[str, Any]]) -> BindingVerdict:
    """The limit that held most of the measured time, and the share of time of each."""
    kills = last_known(record, "memory.events", "oom_kill")
    if kills:
        return BindingVerdict(
            "memory", f"The memory limit ended it ({kills} OOM kill{'s' * (kills > 1)}).", {"memory": 1.0}
        )
    cut = windows(record, series)
    if not cut:
        return BindingVerdict("none", "Not known: the measured part did not end.", {})
    found = [(bound(window, record.cage.get("requested") or {}), window.seconds) for window in cut]
    shares = _shares([(one.name, seconds) for one, seconds in found])
    name = max(NAMES, key=lambda n: shares.get(n, 0.0))
    caps = _shares([(one.property, seconds) for one, seconds in found])
    return BindingVerdict(name, _sentence(name, shares, cut), shares, caps)


def _shares(named: Sequence[tuple[str | None, float]]) -> dict[str, float]:
    """The share of the time of each name, in the order of NAMES and of the properties; None counts as time alone."""
    total = sum(seconds for _, seconds in named)
    shares = {name: sum(s for n, s in named if n == name) / total for name in (*NAMES, *IO_STAT_KEY)}
    return {name: share for name, share in shares.items() if share}


def bound(window: Window, requested: Mapping[str, Any]) -> BindingLimit:
    """What held one window, by the first rule that applies: a cap, memory, the device, the CPU."""
    closeness, prop = _nearest_cap(window)
    if closeness >= FULL_CAP or (closeness >= NEAR_CAP and _share(window.waited_io, window) >= WAITING):
        return BindingLimit("bandwidth" if "Bandwidth" in prop else "iops", prop)
    if "MemoryMax" in requested and _reclaims(window):
        return BindingLimit("memory")
    if _share(window.disk_busy, window) >= DISK_BUSY and _share(window.waited_io, window) >= DISK_WAITING:
        return BindingLimit("device")
    computing = _share(window.cpu, window) + _share(window.waited_cpu, window)
    if _share(window.throttled, window) >= WAITING or computing >= CPU_BUSY:
        return BindingLimit("cpu")
    return BindingLimit("none")


def _share(value: float | None, window: Window) -> float:
    return 0.0 if value is None else value / window.seconds


def _nearest_cap(window: Window) -> tuple[float, str]:
    """How near the window came to the cap that it came closest to, and that cap's property."""
    near = ((window.moved[IO_STAT_KEY[prop]] / window.seconds / cap, prop) for prop, cap in window.caps.items())
    return max(near, default=(0.0, ""))


def _reclaims(window: Window) -> bool:
    """The limit is met, and that costs: pages are read again, or tasks wait for memory."""
    if not window.limit_hits:
        return False
    read_again = (window.refault_pages or 0) * PAGE_BYTES / max(window.moved["rbytes"], 1)
    return read_again >= REFAULT_SHARE or _share(window.waited_memory, window) >= RECLAIMING


def _sentence(name: str, shares: Mapping[str, float], cut: Sequence[Window]) -> str:
    seconds = sum(window.seconds for window in cut)

    def share(key: str) -> float:
        return 100 * sum(getattr(window, key) or 0 for window in cut) / seconds

    what = "No limit held it" if name == "none" else f"{name} held it"
    waits = f"{share('waited_io'):.0f} % waiting for the disk, {share('waited_memory'):.0f} % for memory"
    held = f"{what} for {100 * shares.get(name, 0):.0f} % of {seconds:.1f} s in {len(cut)} window{'s' * (len(cut) > 1)}"
    return f"{held}: {waits}, {share('cpu') / 100:.2f} CPUs busy."
