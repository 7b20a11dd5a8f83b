"""Looks at a trial's files between the proof of their cache state and the end: before the start, at `go`, at the end.

`pagecage.model.cache_proof` judges them. Each costs one cachestat(2) per file and three reads from /proc and /sys.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pagecage.agent.system import procfs
from pagecage.agent.system.disk_extents import on_disk_bytes
from pagecage.agent.system.kernel_text import parse_flat_keyed, parse_nested_keyed, read_text
from pagecage.agent.system.page_cache import resident_bytes, uptodate_bytes
from pagecage.agent.trial_run import NotPrepared, TrialRun
from pagecage.model.cache_proof import CacheCheck, asked_bytes, charge_lag_bytes, tolerance_bytes, why_broken
from pagecage.units import PAGE_BYTES

_HOST_RECLAIM = ("pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive")
"""Counters of /proc/vmstat that leave out what a cgroup's own limit reclaims (mm/vmscan.c, shrink_inactive_list)."""


def look_at_start(attempt: TrialRun) -> None:
    """Look before anything of the workload runs. Raises NotPrepared where the proven state is gone."""
    if not attempt.datasets or attempt.trial.cache == "any":
        return
    attempt.cache["charge_lag_bytes"] = charge_lag_bytes(os.cpu_count() or 1)
    attempt.files_at_start = tuple((resident_bytes(path), _modified_ns(path)) for path in attempt.datasets)
    attempt.cache["start"] = _look(attempt, sum(resident for resident, _ in attempt.files_at_start)).to_json()
    _require(attempt)


def look_at_go(attempt: TrialRun, evicted_bytes: int = 0) -> None:
    """Look when the workload stands at its gate, having dropped so much itself. Raises NotPrepared likewise."""
    if "start" not in attempt.cache:
        return
    if evicted_bytes:
        attempt.cache["evicted_bytes"] = evicted_bytes
    attempt.cache["go"] = _look(attempt, sum(map(resident_bytes, attempt.datasets))).to_json()
    _require(attempt)


def go_at_start(attempt: TrialRun) -> None:
    """Take the look at the start for that at `go`, where the measured part begins with the workload's start."""
    if "start" in attempt.cache:
        attempt.cache["go"] = dict(attempt.cache["start"])


def look_at_end(attempt: TrialRun) -> None:
    """Look when the measured part is over; `hold_to_state` judges what is found."""
    if "go" not in attempt.cache or "after" not in attempt.counters:
        return
    resident = tuple(map(resident_bytes, attempt.datasets))
    end = _look(attempt, sum(resident))
    came = sum(max(0, now - then) for now, (then, _) in zip(resident, attempt.files_at_start, strict=True))
    read = (end.read_bytes or 0) - (attempt.cache["start"]["read_bytes"] or 0)
    if came - read > tolerance_bytes(attempt.cache["file_bytes"]):
        came = _came_from_disk(attempt)
    attempt.cache |= {"end": end.to_json(), "came_bytes": came, "least_resident_bytes": _least_resident_bytes(attempt)}


def hold_to_state(attempt: TrialRun) -> None:
    """Make an answer that rests on a cache which another process filled or emptied `not_prepared`."""
    assert attempt.conversation is not None
    asked = asked_bytes(attempt.trial.workload.program, attempt.conversation.end)
    if attempt.has_answer and (why := why_broken(attempt.cache, asked)):
        attempt.outcome, attempt.error = "not_prepared", why


def _require(attempt: TrialRun) -> None:
    if why := why_broken(attempt.cache):
        raise NotPrepared(why)


def _look(attempt: TrialRun, total_bytes: int) -> CacheCheck:
    """The slice's counters are read after the residency, so that whatever it shows has been counted."""
    assert attempt.cgroup is not None
    memory = parse_flat_keyed(read_text(attempt.cgroup / "memory.stat") or "")
    io, vmstat = read_text(attempt.cgroup / "io.stat"), procfs.read_vmstat() or {}
    reclaimed, by_host = memory.get("pgsteal"), [vmstat[key] for key in _HOST_RECLAIM if key in vmstat]
    return CacheCheck(
        resident_bytes=total_bytes, charged_bytes=memory.get("file"),
        read_bytes=None if io is None else parse_nested_keyed(io).get(attempt.disk.maj_min, {}).get("rbytes", 0),
        reclaimed_bytes=None if reclaimed is None else reclaimed * PAGE_BYTES,
        host_reclaimed_bytes=sum(by_host) * PAGE_BYTES if by_host else None,
    )  # fmt: skip


def _came_from_disk(attempt: TrialRun) -> int:
    """Bytes that entered the page cache since the start and can only have come from the disk, summed over the files.

    Not pages that are still on their way, since io.stat counts a request as it leaves the cap; nor what a file holds
    without the disk (holes, preallocated or compressed extents); nor a file that was written meanwhile.
    """
    came = 0
    for path, (before, modified_ns) in zip(attempt.datasets, attempt.files_at_start, strict=True):
        with suppress(OSError):  # gone meanwhile, or another's
            if _modified_ns(path) == modified_ns:
                came += min(max(0, uptodate_bytes(path) - before), on_disk_bytes(path))
    return came


def _modified_ns(path: Path) -> int:
    """When a file was last written, in ns since 1970; -1 where it is gone."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return -1


def _least_resident_bytes(attempt: TrialRun) -> int | None:
    """The least that the sampler saw of all files together in the measured part; None where it saw nothing."""
    begin = (attempt.measured or {}).get("start_monotonic_seconds", 0.0)
    rows = attempt.sampler.rows() if attempt.sampler else ()
    seen = [row["resident_pages"] for row in rows if row["t"] >= begin and row["resident_pages"] is not None]
    return min(seen) * PAGE_BYTES if seen else None
