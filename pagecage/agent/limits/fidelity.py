"""Fidelity of a trial to the provider's I/O accounting and latency.

io.max counts bios after splitting and before merging (submit_bio_noacct in block/blk-core.c),
counts reads and writes separately, and adds no latency. Providers differ in each of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagecage.agent.limits.limit_meters import shares_all
from pagecage.agent.system.block_device import Disk, read_queue_settings
from pagecage.agent.system.kernel_text import parse_meminfo, read_text
from pagecage.agent.system.settings import QueueSettingsJournal
from pagecage.errors import HostError
from pagecage.model.cage import Cage, IoAccounting, LatencyFloor
from pagecage.model.requirements import may_rewrite_io_max
from pagecage.model.trial import Trial
from pagecage.units import KIB, MIB, format_bytes

_SPARE_BYTES = 256 * MIB
SLOW = 1.5
"""A made disk is too slow if a read takes this many times the requested latency."""


@dataclass(frozen=True)
class Fidelity:
    """Fidelity in one `aspect`: `io_size`, `merged`, `combined` or `latency`.

    `state` is `exact`, `stricter` or `looser` than at the provider, or `absent`.
    """

    aspect: str
    state: str
    reason: str

    def to_json(self) -> dict[str, str]:
        """Return the entry in a record's cage."""
        return asdict(self)


def count_as_provider(
    accounting: IoAccounting, disk: Disk, journal: QueueSettingsJournal, not_shared_reason: str = ""
) -> list[Fidelity]:
    """Make the disk split requests at the provider's I/O size; return the fidelity of each aspect.

    The caller restores the setting from the journal. `not_shared_reason` is empty if the trial's
    io.max is divided between reads and writes (agent/limits/limit_meters.py).
    """
    found = []
    if accounting.io_size_bytes:
        found.append(_split_at(accounting.io_size_bytes // KIB, disk, journal))
    if accounting.merged:
        found.append(
            merged(accounting.io_size_bytes, read_queue_settings(disk).get("read_ahead_kb"))
        )
    if accounting.combined:
        found.append(combined(not_shared_reason))
    return found


def _split_at(wanted_kb: int, disk: Disk, journal: QueueSettingsJournal) -> Fidelity:
    settings = read_queue_settings(disk)
    largest = int(settings.get("max_hw_sectors_kb") or wanted_kb)
    try:
        journal.set(disk, "max_sectors_kb", str(min(wanted_kb, largest)))
        obstacle = f"the disk takes no more than {largest} KiB" if largest < wanted_kb else ""
    except HostError as error:
        obstacle = error.message
    now = read_queue_settings(disk).get("max_sectors_kb")
    return io_size(wanted_kb, int(now) if now else None, settings.get("max_sectors_kb"), obstacle)


def io_size(wanted_kb: int, now_kb: int | None, before_kb: str | None, obstacle: str) -> Fidelity:
    """Return the fidelity of counting large I/Os.

    The disk splits requests at `now_kb`, and the provider counts by `wanted_kb`.
    """
    if now_kb is None:
        return Fidelity(
            "io_size",
            "absent",
            f"the size at which this disk splits its requests is unknown ({obstacle})",
        )
    if now_kb == wanted_kb:
        was = "" if str(now_kb) == before_kb else f", which was {before_kb}"
        reason = (
            f"requests are split at {now_kb} KiB (max_sectors_kb{was}), so io.max counts as the"
            " provider does"
        )
        return Fidelity("io_size", "exact", reason)
    here, there = -(-wanted_kb // now_kb), -(-now_kb // wanted_kb)
    if now_kb < wanted_kb:
        state, effect = (
            "stricter",
            f"{wanted_kb} KiB count {here} times here and once at the provider",
        )
    else:
        state, effect = "looser", f"{now_kb} KiB count once here and {there} times at the provider"
    return Fidelity("io_size", state, f"requests are split at {now_kb} KiB: {effect} ({obstacle})")


def merged(io_size_bytes: int | None, read_ahead_kb: str | None) -> Fidelity:
    """Return the fidelity to a provider that merges adjacent I/Os before it counts.

    io.max does not merge, which affects sequential reads with a small read-ahead window.
    """
    size_kb = (io_size_bytes or 0) // KIB
    if size_kb and read_ahead_kb and int(read_ahead_kb) >= size_kb:
        reason = (
            "io.max counts before adjacent I/Os are merged, but read-ahead requests"
            f" {read_ahead_kb} KiB at once"
        )
        return Fidelity("merged", "exact", reason)
    window = (
        f", so sequential reads with a window of {read_ahead_kb} KiB cost more I/Os here"
        if read_ahead_kb
        else ""
    )
    return Fidelity(
        "merged",
        "stricter",
        f"the provider merges adjacent I/Os before it counts, io.max does not{window}",
    )


def combined(not_shared_reason: str) -> Fidelity:
    """Return the fidelity to a limit that reads and writes share."""
    if not_shared_reason:
        reason = (
            "reads and writes share one limit at the provider; io.max allows each of them the full"
            " limit"
        )
        return Fidelity("combined", "looser", f"{reason} ({not_shared_reason})")
    reason = (
        "reads and writes share one limit: io.max is divided between them by use, ten times a"
        " second"
    )
    return Fidelity("combined", "exact", reason)


def not_shared_reason(cage: Cage, facts: Mapping[str, Any]) -> str:
    """Return why io.max is not divided between reads and writes; empty if it is."""
    if not shares_all(cage):
        return "the cage does not have the same limit for both"
    return (
        ""
        if may_rewrite_io_max(facts)
        else f"kernel {facts['kernel']} may hang when io.max is rewritten"
    )


def latency_floor_us(cage: Cage) -> int | None:
    """Return the latency of a disk made for a cage: that of reads, else of writes.

    Returns None without either.
    """
    return (cage.latency.read_us or cage.latency.write_us) if cage.latency else None


def no_floor_reason(
    trial: Trial, is_pagecage_guest: bool, meminfo: Path = Path("/proc/meminfo")
) -> str:
    """Return why no disk with a latency can be made for a trial; empty if it can.

    The disk is in memory (null_blk), so memory must hold the files twice: on the disk and in the
    page cache.
    """
    if not trial.datasets:
        return (
            "the program's files are not made by pagecage, so they cannot be put on a disk made for"
            " the trial"
        )
    if not is_pagecage_guest:
        return "a disk with a latency is made only in a guest that pagecage made (HOST=vm)"
    available = parse_meminfo(read_text(meminfo) or "").get("MemAvailable", 0) * KIB
    wanted = 2 * trial.dataset_bytes + _SPARE_BYTES
    if available < wanted:
        return (
            f"a disk in memory would need {format_bytes(wanted)} of memory, and"
            f" {format_bytes(available)} are available"
        )
    return ""


def latency(
    wanted: LatencyFloor, made_us: int | None, measured_us: float | None, obstacle: str
) -> Fidelity:
    """Return the fidelity of the latency.

    `made_us` is that of the disk made for the trial; None without one.
    """
    asked = " and ".join(
        f"{us / 1000:g} ms a {direction}"
        for direction, us in (("read", wanted.read_us), ("write", wanted.write_us))
        if us
    )
    if made_us is None:
        return Fidelity(
            "latency", "absent", f"io.max adds no latency; {asked} are missing here: {obstacle}"
        )
    seen = f"; a direct read of one page takes {measured_us / 1000:.3g} ms" if measured_us else ""
    is_slow = measured_us is not None and measured_us > SLOW * made_us
    different = [us for us in (wanted.read_us, wanted.write_us) if us is not None and us != made_us]
    state = (
        "stricter"
        if is_slow or (different and max(different) < made_us)
        else "looser"
        if different
        else "exact"
    )
    reason = (
        f"the disk made for the trial takes {made_us / 1000:g} ms for every I/O, of {asked}{seen}"
    )
    return Fidelity("latency", state, reason)
