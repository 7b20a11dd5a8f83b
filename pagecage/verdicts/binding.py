"""The limit that held the trial back, decided window by window."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pagecage.model.cage import DATA_DISK, IO_STAT_KEY
from pagecage.model.record import Record
from pagecage.verdicts.counters import final_counter
from pagecage.verdicts.verdict import BindingVerdict
from pagecage.verdicts.window_limit import (
    NAMES,
    BindingLimit,
    Window,
    binding_limit,
    cap_name,
    full_caps,
)

_IN_WORDS = {
    "bandwidth": "a bandwidth cap",
    "iops": "an IOPS cap",
    "memory": "the memory limit",
    "device": "the disk itself",
    "cpu": "the CPU",
    "none": "no limit",
}


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
    found = [({binding_limit(window, requested).name}, window.seconds) for window in windows]
    shares = _shares(found, NAMES)
    name = max(NAMES, key=lambda n: shares.get(n, 0.0))
    held = [
        ({cap_name(limit) for limit in full_caps(window)}, window.seconds) for window in windows
    ]
    caps = _shares(held, cap_names(windows))
    return BindingVerdict(name, _sentence(name, shares, windows), shares, caps)


def cap_names(windows: Sequence[Window]) -> list[str]:
    """Return the names of the caps of all disks, those of the data's disk first."""
    disks = windows[0].by_disk if windows else (DATA_DISK,)
    limits = (BindingLimit("", prop, disk) for disk in disks for prop in IO_STAT_KEY)
    return [name for limit in limits if (name := cap_name(limit))]


def _shares(
    named: Sequence[tuple[Collection[str | None], float]], names: Sequence[str]
) -> dict[str, float]:
    """Return each name's share of the time, without names that have none."""
    total = sum(seconds for _, seconds in named)
    shares = {name: sum(s for found, s in named if name in found) / total for name in names}
    return {name: share for name, share in shares.items() if share}


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
