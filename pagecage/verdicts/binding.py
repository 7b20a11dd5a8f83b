"""Which limit held the trial back, moment by moment.

Achieved / cap alone does not tell: a synchronous reader held by a cap reaches 0.6 to 0.98 of it, because it
waits out a slice and then computes for a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pagecage.record import Record
from pagecage.units import PAGE_BYTES
from pagecage.verdicts.readings import last_known
from pagecage.verdicts.verdict import BindingVerdict
from pagecage.verdicts.windows import Window, windows

NEAR_CAP = 0.6
"""The lowest share of its cap that a throttled synchronous reader was seen to reach."""
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
_CAPS = (
    ("bandwidth", "IOReadBandwidthMax", "rbytes"), ("bandwidth", "IOWriteBandwidthMax", "wbytes"),
    ("iops", "IOReadIOPSMax", "rios"), ("iops", "IOWriteIOPSMax", "wios"),
)  # fmt: skip


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
    requested = record.cage.get("requested") or {}
    shares = _shares([(binding(window, requested), window.seconds) for window in cut])
    name = max(NAMES, key=lambda n: shares.get(n, 0.0))
    return BindingVerdict(name, _sentence(name, shares, cut), shares)


def _shares(named: Sequence[tuple[str, float]]) -> dict[str, float]:
    total = sum(seconds for _, seconds in named)
    shares = {name: sum(s for n, s in named if n == name) / total for name in NAMES}
    return {name: share for name, share in shares.items() if share}


def binding(window: Window, requested: Mapping[str, Any]) -> str:
    """The one name for one window, by the first rule that applies: a cap, memory, the device, the CPU."""
    cap = _nearest_cap(window, requested)
    if cap and _share(window.waited_io, window) >= WAITING:
        return cap
    if "MemoryMax" in requested and _reclaims(window):
        return "memory"
    if _share(window.disk_busy, window) >= DISK_BUSY and _share(window.waited_io, window) >= DISK_WAITING:
        return "device"
    computing = _share(window.cpu, window) + _share(window.waited_cpu, window)
    if _share(window.throttled, window) >= WAITING or computing >= CPU_BUSY:
        return "cpu"
    return "none"


def _share(value: float | None, window: Window) -> float:
    return 0.0 if value is None else value / window.seconds


def _nearest_cap(window: Window, requested: Mapping[str, Any]) -> str | None:
    """The cap that the window's rate came closest to, if it came near enough."""
    found = []
    for name, prop, key in _CAPS:
        cap = requested.get(prop)
        if isinstance(cap, int | float) and cap:
            found.append((window.moved[key] / window.seconds / cap, name))
    closeness, name = max(found, default=(0.0, ""))
    return name if closeness >= NEAR_CAP else None


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
