"""Rules that decide whether a proven cache state lasted until `go` and through the measured part.

They are pure functions of a record's `cache`. The agent uses them for a trial's outcome, and the
verdict on the cache state applies them again (docs/METHODOLOGY.md, "Cache states").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pagecage.model.json_codec import JsonView
from pagecage.model.record_sections import CacheCheck, CacheEvidence
from pagecage.units import MIB, format_bytes

TOLERANCE_BYTES = MIB
"""Bytes that may remain unexplained. In all stored trials io.stat and cachestat(2) agreed to the
page. One MiB allows for read-ahead in progress between the two reads, and for single pages that
proactive reclaim takes."""
TOLERANCE_SHARE = 0.01
"""The same as a share of the files' size. It is less than the difference between repeats of a
trial."""
CHARGE_LAG_PAGES = 128
"""Pages per CPU by which memory.stat may lag behind: 64 wait on the CPU, 64 more for the next flush
(mm/memcontrol.c, MEMCG_CHARGE_BATCH)."""
_READERS = frozenset({"pcread", "pcscan", "pcscan-c", "pcscan-python", "pcprefault"})
"""Workloads whose `distinct_bytes` are bytes of the trial's files that they read, as their checksum
proves. For other workloads it counts bytes written, allocated, or only hinted
(workloads/README.md)."""


def charge_lag_bytes(cpus: int, page_bytes: int) -> int:
    """Return the bytes by which memory.stat may lag behind on a host with `cpus` CPUs."""
    return CHARGE_LAG_PAGES * page_bytes * cpus


def tolerance_bytes(file_bytes: int) -> int:
    """Return the number of bytes that may remain unexplained."""
    return max(TOLERANCE_BYTES, round(TOLERANCE_SHARE * file_bytes))


def requested_bytes(program: str | None, end: JsonView) -> int | None:
    """Return the distinct bytes of its files that a workload read, by its `end` line, or None."""
    count = end.get("distinct_bytes")
    is_known = program in _READERS and end.get("checksum") is not None and isinstance(count, int)
    return count if is_known else None


def broken_reason(cache: CacheEvidence, requested_bytes: int | None = None) -> str | None:
    """Return why the proven state did not last; None if it did, by the checks so far."""
    rules, start, go, end = _RULES.get(cache.requested or "any"), cache.start, cache.go, cache.end
    if rules is None or start is None:
        return None
    at_start, at_go, at_end = rules
    reason = at_start(cache, start)
    if go is not None and reason is None:
        reason = at_go(cache, start, go)
        if end is not None and reason is None:
            reason = at_end(cache, start, go, end, requested_bytes)
    return reason


def _proven_bytes(cache: CacheEvidence) -> int:
    """Return the resident bytes of the proven state: of a cold one, what a setup step left."""
    if cache.requested == "cold" and cache.step:
        return int(cache.step["resident_bytes_after"])
    return cache.resident_bytes_before or 0


def _spare_bytes(cache: CacheEvidence) -> int:
    return tolerance_bytes(cache.file_bytes or 0)


def _charged_spare_bytes(cache: CacheEvidence) -> int:
    """Return the bytes that may remain unexplained by a charge, which may lag behind."""
    return _spare_bytes(cache) + (cache.charge_lag_bytes or 0)


def _cold_at_start(cache: CacheEvidence, start: CacheCheck) -> str | None:
    """Check that no bytes arrived since the proof but a setup step's late read-ahead."""
    foreign = start.resident_bytes - _proven_bytes(cache)
    if foreign <= (_spare_bytes(cache) if cache.step else 0):
        return None
    return (
        f"before the program started, another process had read {format_bytes(foreign)} of the files"
    )


def _cold_at_go(cache: CacheEvidence, start: CacheCheck, go: CacheCheck) -> str | None:
    """Check that what arrived since the start is charged to, or read by, the slice."""
    charged, read = (go.since(start, key) for key in ("charged_bytes", "read_bytes"))
    if charged is None and read is None:
        return None
    own, foreign = max(charged or 0, read or 0), go.resident_bytes - start.resident_bytes
    if foreign <= (0 if read == 0 else own + _charged_spare_bytes(cache)):
        return None
    return f"before `go`, another process had read {format_bytes(foreign)} of the files"


def _cold_at_end(
    cache: CacheEvidence,
    start: CacheCheck,
    _go: CacheCheck,
    end: CacheCheck,
    requested_bytes: int | None,
) -> str | None:
    read = end.since(start, "read_bytes")
    if foreign := _charged_elsewhere(cache, start, end):
        return (
            f"another process has read {format_bytes(foreign)} of the files, since it is charged"
            " for these pages"
        )
    if read is None:
        return None
    if (came := cache.came_bytes) is not None and came - read > _spare_bytes(cache):
        own = (end.since(start, key) or 0 for key in ("charged_bytes", "reclaimed_bytes"))
        if sum(own) >= came - _charged_spare_bytes(cache):
            # blk_cgroup_bio_start() queues a CPU's counters and then marks them as queued. After a
            # flush between these two steps no later flush finds them (block/blk-cgroup.c, 6.12).
            return (
                f"{format_bytes(came)} of the files entered the page cache, charged to the slice,"
                f" but its io.stat shows only {format_bytes(read)}: the kernel has lost counts of"
                " reads"
            )
        return f"{format_bytes(came)} of the files entered the page cache: {_read_elsewhere(read)}"
    missing = (requested_bytes or 0) - start.resident_bytes
    if missing - read > _spare_bytes(cache):
        absent = f"{format_bytes(missing)} that the workload read were not in the page cache"
        return f"{absent}: {_read_elsewhere(read)}"
    return None


def _read_elsewhere(read: int) -> str:
    return (
        f"the slice read only {format_bytes(read)} from the disk, so another process read the rest"
    )


def _charged_elsewhere(cache: CacheEvidence, start: CacheCheck, end: CacheCheck) -> int:
    """Return the bytes that became resident for another cgroup; 0 if tolerable or unknown."""
    if start.charged_bytes is None or end.charged_bytes is None:
        return 0
    before = max(0, start.resident_bytes - start.charged_bytes)
    foreign = end.resident_bytes - end.charged_bytes - before
    return foreign if foreign > _charged_spare_bytes(cache) else 0


def _resident_at_start(cache: CacheEvidence, start: CacheCheck) -> str | None:
    return _missing_reason(
        cache, _proven_bytes(cache) - start.resident_bytes, "before the program started"
    )


def _resident_at_go(cache: CacheEvidence, start: CacheCheck, go: CacheCheck) -> str | None:
    """Check that no bytes left but those that the workload or its slice's limit dropped."""
    by_limit = min(go.since(start, "reclaimed_bytes") or 0, start.charged_bytes or 0)
    own = (cache.evicted_bytes or 0) + by_limit
    return _missing_reason(cache, _proven_bytes(cache) - go.resident_bytes - own, "before `go`")


def _missing_reason(cache: CacheEvidence, missing: int, when: str) -> str | None:
    if missing <= _spare_bytes(cache):
        return None
    missing_text = f"{format_bytes(missing)} of the files left the page cache {when}"
    return f"{missing_text}: another process dropped them, or memory ran short"


def _resident_at_end(
    cache: CacheEvidence,
    _start: CacheCheck,
    go: CacheCheck,
    end: CacheCheck,
    requested_bytes: int | None,
) -> str | None:
    """Check that no bytes had to be read again, other than those that reclaim accounts for.

    Direct reads leave the cache unchanged: residency must have dropped, or the charge grown.
    """
    if reclaim_is_unknown(go, end):
        return None
    least = cache.least_resident_bytes
    least = end.resident_bytes if least is None else min(least, end.resident_bytes)
    dropped, reclaimed = go.resident_bytes - least, end.since(go, "reclaimed_bytes") or 0
    charged = (
        (end.since(go, "charged_bytes") or 0) + reclaimed if requested_bytes is not None else 0
    )
    by_host = end.since(go, "host_reclaimed_bytes") or 0
    by_limit = min(reclaimed, go.charged_bytes or 0)
    gone_before = _proven_bytes(cache) - go.resident_bytes
    read_again = min(end.since(go, "read_bytes") or 0, max(dropped, charged))
    again = read_again - by_host - by_limit - gone_before
    if again <= _spare_bytes(cache):
        return None
    return (
        f"{format_bytes(again)} of the files had to be read again: another process dropped them"
        " from the page cache"
    )


def reclaim_is_unknown(before: CacheCheck, after: CacheCheck) -> bool:
    """Return whether the limit reclaimed pages without a count, as cgroup v1 does."""
    hits = (after.limit_hits or 0) - (before.limit_hits or 0)
    return hits > 0 and after.reclaimed_bytes is None


_Rules = tuple[
    Callable[[CacheEvidence, CacheCheck], str | None],
    Callable[[CacheEvidence, CacheCheck, CacheCheck], str | None],
    Callable[[CacheEvidence, CacheCheck, CacheCheck, CacheCheck, int | None], str | None],
]
_RULES: Mapping[str, _Rules] = {
    "cold": (_cold_at_start, _cold_at_go, _cold_at_end),
    "resident": (_resident_at_start, _resident_at_go, _resident_at_end),
}
