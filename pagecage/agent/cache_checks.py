"""Checks of a trial's files after the proof of their cache state: at start, at `go`, at the end.

`pagecage.model.cache_proof` judges them. Each costs one cachestat(2) per file and three reads from
/proc and /sys.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pagecage.agent.caged import Caged
from pagecage.agent.system import procfs
from pagecage.agent.system.cgroup_files import read_counters
from pagecage.agent.system.disk_extents import on_disk_bytes
from pagecage.agent.system.page_cache import resident_bytes, uptodate_bytes
from pagecage.agent.trial_run import Ending, Measured, NotPrepared, TrialRun
from pagecage.model.cache_proof import (
    CacheCheck,
    broken_reason,
    charge_lag_bytes,
    requested_bytes,
    tolerance_bytes,
)
from pagecage.model.record_sections import MeasuredInterval
from pagecage.units import kernel_page_bytes

_HOST_RECLAIM = ("pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive")
"""Counters of /proc/vmstat that leave out what a cgroup's own limit reclaims (mm/vmscan.c,
shrink_inactive_list)."""


class CacheChecks:
    """The checks of one trial, kept in its record under `cache`.

    None for state `any`, or without files.
    """

    def __init__(self, run: TrialRun, caged: Caged) -> None:
        self._cache, self._caged = run.sections["cache"], caged
        self._is_wanted = bool(caged.files) and run.trial.cache != "any"
        self._at_start: tuple[tuple[int, int], ...] = ()

    def at_start(self) -> None:
        """Check before the workload runs. Raises NotPrepared if the proven state is gone."""
        if not self._is_wanted:
            return
        self._cache["charge_lag_bytes"] = charge_lag_bytes(os.cpu_count() or 1, kernel_page_bytes())
        self._at_start = tuple(
            (resident_bytes(path), _modified_ns(path)) for path in self._caged.files
        )
        self._cache["start"] = self._check(
            sum(resident for resident, _ in self._at_start)
        ).to_json()
        self._require()

    def at_go(self, evicted_bytes: int = 0) -> None:
        """Check while the workload waits for `go`, after it dropped `evicted_bytes` itself.

        Raises NotPrepared.
        """
        if not self._is_wanted:
            return
        if evicted_bytes:
            self._cache["evicted_bytes"] = evicted_bytes
        self._cache["go"] = self._check(sum(map(resident_bytes, self._caged.files))).to_json()
        self._require()

    def go_is_start(self) -> None:
        """Use the check at start for `go`, if the measured part begins with the launch."""
        if self._is_wanted:
            self._cache["go"] = dict(self._cache["start"])

    def at_end(self, interval: MeasuredInterval) -> None:
        """Check after the measured part; `confirmed` judges it."""
        if not self._is_wanted:
            return
        resident = tuple(map(resident_bytes, self._caged.files))
        end = self._check(sum(resident))
        came = sum(
            max(0, now - then) for now, (then, _) in zip(resident, self._at_start, strict=True)
        )
        read = (end.read_bytes or 0) - (self._cache["start"]["read_bytes"] or 0)
        if came - read > tolerance_bytes(self._cache["file_bytes"]):
            came = self._came_from_disk()
        least = _least_resident_bytes(self._caged, interval)
        self._cache |= {"end": end.to_json(), "came_bytes": came, "least_resident_bytes": least}

    def _require(self) -> None:
        if reason := broken_reason(self._cache):
            raise NotPrepared(reason)

    def _check(self, total_bytes: int) -> CacheCheck:
        """Read the trial's counters after the residency, so that they cover all resident pages."""
        processes, vmstat = self._caged.context.processes, procfs.read_vmstat() or {}
        cgroup, found = processes.cgroup, {}
        if cgroup is not None:
            found = read_counters(cgroup, "memory.stat", "memory.events")
        memory, events = found.get("memory.stat") or {}, found.get("memory.events") or {}
        reclaimed = memory.get("pgsteal")
        page_bytes = kernel_page_bytes()
        by_host = [vmstat[key] for key in _HOST_RECLAIM if key in vmstat]
        return CacheCheck(
            resident_bytes=total_bytes,
            charged_bytes=memory.get("file"),
            read_bytes=processes.read_bytes(self._caged.disk.maj_min),
            reclaimed_bytes=None if reclaimed is None else reclaimed * page_bytes,
            host_reclaimed_bytes=sum(by_host) * page_bytes if by_host else None,
            limit_hits=events.get("max"),
        )

    def _came_from_disk(self) -> int:
        """Return the bytes that entered the page cache since the start and must come from the disk.

        Left out are pages on their way, since io.stat counts a request when it leaves the cap; what
        a file holds without the disk (holes, preallocated or compressed extents); and a file that
        was written meanwhile.
        """
        came = 0
        for path, (before, modified_ns) in zip(self._caged.files, self._at_start, strict=True):
            with suppress(OSError):  # gone meanwhile, or not readable
                if _modified_ns(path) == modified_ns:
                    came += min(max(0, uptodate_bytes(path) - before), on_disk_bytes(path))
        return came


def confirmed(run: TrialRun, measured: Measured, ending: Ending) -> Ending:
    """Return `not_prepared` if another process filled or emptied the cache behind an answer."""
    read = requested_bytes(run.trial.workload.program, measured.end)
    if ending.has_answer and (reason := broken_reason(run.sections["cache"], read)):
        return Ending("not_prepared", reason)
    return ending


def _modified_ns(path: Path) -> int:
    """Return the modification time in ns since 1970, or -1 if the file is gone."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return -1


def _least_resident_bytes(caged: Caged, interval: MeasuredInterval) -> int | None:
    """Return the fewest resident bytes that the sampler saw in the measured part.

    Returns None if it saw nothing.
    """
    begin = interval.start_monotonic_seconds
    rows = (row for row in caged.sampler.rows() if row["t"] >= begin)
    resident = [row["resident_pages"] for row in rows if row["resident_pages"] is not None]
    return min(resident) * kernel_page_bytes() if resident else None
