"""What of a cloud's ways a trial carried, and what it could not: a state and a sentence each, for the record.

io.max counts bios after they are split and before they are merged (submit_bio_noacct in block/blk-core.c), reads and
writes apart, and adds no time to any of them; providers do otherwise.
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
"""A made disk that takes this many times its latency for a read is slower than what was asked for."""


@dataclass(frozen=True)
class Fidelity:
    """One of `io_size merged combined latency`. `state` is `exact`, `stricter` or `looser` than there, or `absent`."""

    aspect: str
    state: str
    reason: str

    def to_json(self) -> dict[str, str]:
        """Its entry in a record's cage."""
        return asdict(self)


def count_as_provider(
    accounting: IoAccounting, disk: Disk, journal: QueueSettingsJournal, why_not_shared: str = ""
) -> list[Fidelity]:
    """Have the disk split requests where the provider counts another I/O, and say how nearly io.max counts as it does.

    The setting is journalled; whoever calls this has it put back. `why_not_shared` is empty where the trial's io.max is
    divided between reads and writes that share a limit (agent/meters.py).
    """
    found = []
    if accounting.io_size_bytes:
        found.append(_split_at(accounting.io_size_bytes // KIB, disk, journal))
    if accounting.merged:
        found.append(merged(accounting.io_size_bytes, read_queue_settings(disk).get("read_ahead_kb")))
    if accounting.combined:
        found.append(combined(why_not_shared))
    return found


def _split_at(wanted_kb: int, disk: Disk, journal: QueueSettingsJournal) -> Fidelity:
    settings = read_queue_settings(disk)
    largest = int(settings.get("max_hw_sectors_kb") or wanted_kb)
    try:
        journal.set(disk, "max_sectors_kb", str(min(wanted_kb, largest)))
        why_not = f"the disk takes no more than {largest} KiB" if largest < wanted_kb else ""
    except HostError as error:
        why_not = error.message
    now = read_queue_settings(disk).get("max_sectors_kb")
    return io_size(wanted_kb, int(now) if now else None, settings.get("max_sectors_kb"), why_not)


def io_size(wanted_kb: int, now_kb: int | None, before_kb: str | None, why_not: str) -> Fidelity:
    """How io.max counts large I/Os on a disk that splits them at `now_kb`, where the provider counts by `wanted_kb`."""
    if now_kb is None:
        return Fidelity("io_size", "absent", f"it is not known where this disk splits its requests ({why_not})")
    if now_kb == wanted_kb:
        was = "" if str(now_kb) == before_kb else f", which was {before_kb}"
        because = (
            f"requests are split at {now_kb} KiB (max_sectors_kb{was}), so that io.max counts what the provider does"
        )
        return Fidelity("io_size", "exact", because)
    here, there = -(-wanted_kb // now_kb), -(-now_kb // wanted_kb)
    if now_kb < wanted_kb:
        told = f"{wanted_kb} KiB count {here} times here and once at the provider"
        return Fidelity("io_size", "stricter", f"requests are split at {now_kb} KiB: {told} ({why_not})")
    told = f"{now_kb} KiB count once here and {there} times at the provider"
    return Fidelity("io_size", "looser", f"requests are split at {now_kb} KiB: {told} ({why_not})")


def merged(io_size_bytes: int | None, read_ahead_kb: str | None) -> Fidelity:
    """The provider merges neighbours before it counts; io.max does not, which reads in order by small windows feel."""
    size_kb = (io_size_bytes or 0) // KIB
    if size_kb and read_ahead_kb and int(read_ahead_kb) >= size_kb:
        because = f"neighbours are not merged before io.max counts, but read-ahead asks for {read_ahead_kb} KiB at once"
        return Fidelity("merged", "exact", because)
    window = (
        f", so that reading in order by windows of {read_ahead_kb} KiB costs more I/Os here" if read_ahead_kb else ""
    )
    return Fidelity("merged", "stricter", f"the provider merges neighbours before it counts, io.max does not{window}")


def combined(why_not_shared: str) -> Fidelity:
    """One limit for reads and writes: io.max is divided between them, or gives each of them the whole."""
    if why_not_shared:
        because = "reads and writes share one limit at the provider; io.max gives each of them the whole of it"
        return Fidelity("combined", "looser", f"{because} ({why_not_shared})")
    because = "reads and writes share one limit: io.max is divided between them ten times a second, by what each uses"
    return Fidelity("combined", "exact", because)


def why_not_shared(cage: Cage, facts: Mapping[str, Any]) -> str:
    """Why io.max is not divided between reads and writes that share a limit; empty where it is."""
    if not shares_all(cage):
        return "the cage does not limit both alike"
    return "" if may_rewrite_io_max(facts) else f"kernel {facts['kernel']} may hang when io.max is rewritten"


def floor_us(cage: Cage) -> int | None:
    """The latency of a disk made for a cage: that of reads, or of writes where it tells no other; None for none."""
    return (cage.latency.read_us or cage.latency.write_us) if cage.latency else None


def why_no_floor(trial: Trial, is_ours: bool, meminfo: Path = Path("/proc/meminfo")) -> str:
    """Why no disk with a latency is made for a trial; empty where one can be. `is_ours`: a guest made by pagecage.

    The disk lies in memory (null_blk), so it must hold the files, and the page cache them once more.
    """
    if not trial.datasets:
        return "the program's files are not made by pagecage, so that they lie on no disk made for it"
    if not is_ours:
        return "a disk with a latency is made only in a guest that pagecage made (HOST=vm)"
    available = parse_meminfo(read_text(meminfo) or "").get("MemAvailable", 0) * KIB
    wanted = 2 * trial.dataset_bytes + _SPARE_BYTES
    if available < wanted:
        return f"a disk in memory would need {format_bytes(wanted)} of memory, and {format_bytes(available)} are left"
    return ""


def latency(wanted: LatencyFloor, made_us: int | None, measured_us: float | None, why_not: str) -> Fidelity:
    """Whether an I/O takes its least time: `made_us` is that of a disk made for it, None where there is none."""
    asked = " and ".join(
        f"{us / 1000:g} ms a {way}" for way, us in (("read", wanted.read_us), ("write", wanted.write_us)) if us
    )
    if made_us is None:
        return Fidelity("latency", "absent", f"io.max adds no time to an I/O; {asked} are missing here: {why_not}")
    seen = f"; a direct read of one page takes {measured_us / 1000:.3g} ms" if measured_us else ""
    is_slow = measured_us is not None and measured_us > SLOW * made_us
    off = [us for us in (wanted.read_us, wanted.write_us) if us is not None and us != made_us]
    state = "stricter" if is_slow or (off and max(off) < made_us) else "looser" if off else "exact"
    because = f"the disk made for it takes {made_us / 1000:g} ms for every I/O, of {asked}{seen}"
    return Fidelity("latency", state, because)
