"""The use that a trial made of a limit, and the cap that was in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.model.cage import IO_STAT_KEY, MEMORY_FILE
from pagecage.model.record import Record
from pagecage.units import format_bytes, format_rate
from pagecage.verdicts.caps import measured_caps
from pagecage.verdicts.counters import cpu_seconds, final_counter, io_and_seconds, measured_seconds
from pagecage.verdicts.volume_account import use_by_account


def amount(name: str, value: float) -> str:
    """Format a property's value in its own unit."""
    if name in MEMORY_FILE:
        return format_bytes(value)
    if name == "CPUQuota":
        return f"{value:.0f} % of one CPU"
    return format_rate(value) if "Bandwidth" in name else f"{value:.0f} I/Os per second"


def calibration_of(record: Record, name: str) -> Mapping[str, Any]:
    """Return the calibration's result for a property; empty without one."""
    return (record.cage.calibration or {}).get(name) or {}


def cap_in_force(record: Record, name: str, cap: float) -> float:
    """Return the cap's average over the measured part; burst credits may change it."""
    return measured_caps(record).get(name, cap)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def observed_use(record: Record, name: str) -> float | None:
    """Return the trial's use of a property, in its unit."""
    if name == "MemorySwapMax":
        return _number(final_counter(record, "memory.swap.current"))
    if name == "MemoryMax":
        return _number(final_counter(record, "memory.peak"))
    if name == "CPUQuota":
        used, seconds = cpu_seconds(record), measured_seconds(record)
        return None if used is None or not seconds else 100 * used / seconds
    by_account = use_by_account(record, name)
    if by_account is not None:
        return by_account
    moved = io_and_seconds(record, IO_STAT_KEY[name])
    return None if moved is None else moved[0] / moved[1]


def format_use(name: str, observed: float | None) -> str:
    """Return the trial's use as a clause."""
    return (
        "the trial's use is not known"
        if observed is None
        else f"the trial reached {amount(name, observed)}"
    )


def format_cap(record: Record, name: str, cap: float) -> str:
    """Return the cap, and its average if credits or the other direction changed it."""
    in_force = cap_in_force(record, name, cap)
    if in_force == cap:
        return amount(name, cap)
    cause = "with burst credits" if in_force > cap else "because reads and writes share it"
    return f"{amount(name, cap)} (on average {amount(name, in_force)} {cause})"
