"""Rules that decide whether a proven cache state lasted until `go` and through the measured part.

They are pure functions of a record's `cache`. The agent uses them for a trial's outcome, and the
verdict on the cache state applies them again (docs/METHODOLOGY.md, "Cache states").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pagecage.model.json_codec import JsonView
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
MOMENTS = ("start", "go", "end")
_READERS = frozenset({"pcread", "pcscan", "pcscan-c", "pcscan-python", "pcprefault"})
"""Workloads whose `distinct_bytes` are bytes of the trial's files that they read, as their checksum
proves. For other workloads it counts bytes written, allocated, or only hinted
(workloads/README.md)."""


@dataclass(frozen=True)
class CacheCheck:
    """Page cache figures at one moment. None means that this kernel does not report the figure.

    `resident_bytes` of the trial's files are in the page cache. The slice is charged for
    `charged_bytes` of page cache, has read `read_bytes` from the trial's disk, and has lost
    `reclaimed_bytes` to reclaim; cgroup v1 does not count them. It has met its memory limit
    `limit_hits` times. `host_reclaimed_bytes` were reclaimed from any cgroup because the host was
    short of memory.
    """

    resident_bytes: int
    charged_bytes: int | None = None
    read_bytes: int | None = None
    reclaimed_bytes: int | None = None
    host_reclaimed_bytes: int | None = None
    limit_hits: int | None = None


@dataclass(frozen=True)
class _Evidence:
    proven_bytes: int
    after_step: bool
    tolerance_bytes: int
    lag_bytes: int
    evicted_bytes: int
    came_bytes: int | None
    least_resident_bytes: int | None
    requested_bytes: int | None


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


def broken_reason(cache: JsonView, requested_bytes: int | None = None) -> str | None:
    """Return why the proven state did not last; None if it did, by the checks so far."""
    start, go, end = (
        CacheCheck(**found) if (found := cache.get(moment)) else None for moment in MOMENTS
    )
    rules = _RULES.get(cache.get("requested", "any"))
    if rules is None or start is None:
        return None
    step = cache.get("step") if cache["requested"] == "cold" else None
    evidence, (at_start, at_go, at_end) = (
        _Evidence(
            proven_bytes=step["resident_bytes_after"] if step else cache["resident_bytes_before"],
            after_step=bool(step),
            tolerance_bytes=tolerance_bytes(cache["file_bytes"]),
            lag_bytes=cache.get("charge_lag_bytes", 0),
            evicted_bytes=cache.get("evicted_bytes", 0),
            came_bytes=cache.get("came_bytes"),
            least_resident_bytes=cache.get("least_resident_bytes"),
            requested_bytes=requested_bytes,
        ),
        rules,
    )
    reason = at_start(evidence, start)
    if go is not None and reason is None:
        reason = at_go(evidence, start, go)
    if go is not None and end is not None and reason is None:
        reason = at_end(evidence, start, go, end)
    return reason


def _cold_at_start(evidence: _Evidence, start: CacheCheck) -> str | None:
    """Check that no bytes arrived since the proof.

    After a setup step, its read-ahead may still arrive.
    """
    foreign = start.resident_bytes - evidence.proven_bytes
    if foreign <= (evidence.tolerance_bytes if evidence.after_step else 0):
        return None
    return (
        f"before the program started, another process had read {format_bytes(foreign)} of the files"
    )


def _cold_at_go(evidence: _Evidence, start: CacheCheck, go: CacheCheck) -> str | None:
    """Check that the bytes that arrived since the start are charged to, or read by, the slice.

    If the slice has read nothing at all, none of them are its own.
    """
    charged, read = (_growth(start, go, key) for key in ("charged_bytes", "read_bytes"))
    if charged is None and read is None:
        return None
    own, spare = max(charged or 0, read or 0), evidence.tolerance_bytes + evidence.lag_bytes
    foreign = go.resident_bytes - start.resident_bytes
    if foreign <= (0 if read == 0 else own + spare):
        return None
    return f"before `go`, another process had read {format_bytes(foreign)} of the files"


def _cold_at_end(
    evidence: _Evidence, start: CacheCheck, _go: CacheCheck, end: CacheCheck
) -> str | None:
    read = _growth(start, end, "read_bytes")
    if foreign := _charged_elsewhere(evidence, start, end):
        return (
            f"another process has read {format_bytes(foreign)} of the files, since it is charged"
            " for these pages"
        )
    if read is None:
        return None
    if (came := evidence.came_bytes) is not None and came - read > evidence.tolerance_bytes:
        if (
            sum(_growth(start, end, key) or 0 for key in ("charged_bytes", "reclaimed_bytes"))
            >= came - evidence.tolerance_bytes - evidence.lag_bytes
        ):
            return _lost_counts(came, read)
        return f"{format_bytes(came)} of the files entered the page cache: {_read_elsewhere(read)}"
    missing = (evidence.requested_bytes or 0) - start.resident_bytes
    if missing - read > evidence.tolerance_bytes:
        absent = f"{format_bytes(missing)} that the workload read were not in the page cache"
        return f"{absent}: {_read_elsewhere(read)}"
    return None


def _read_elsewhere(read: int) -> str:
    return (
        f"the slice read only {format_bytes(read)} from the disk, so another process read the rest"
    )


def _lost_counts(came: int, read: int) -> str:
    """Return the sentence for pages that the slice itself brought in, without reads in io.stat.

    blk_cgroup_bio_start() queues a CPU's counters and then marks them as queued. After a flush
    between these two steps no later flush finds them (block/blk-cgroup.c, Linux 6.12).
    """
    return (
        f"{format_bytes(came)} of the files entered the page cache, charged to the slice, but its"
        f" io.stat shows only {format_bytes(read)}: the kernel has lost counts of reads"
    )


def _charged_elsewhere(evidence: _Evidence, start: CacheCheck, end: CacheCheck) -> int:
    """Return the bytes that became resident and are charged to another cgroup.

    Returns 0 if unknown or tolerable. A page stays charged to the cgroup that brought it in
    (cgroup-v2.rst, "Memory Ownership").
    """
    if start.charged_bytes is None or end.charged_bytes is None:
        return 0
    before = max(0, start.resident_bytes - start.charged_bytes)
    foreign = end.resident_bytes - end.charged_bytes - before
    return foreign if foreign > evidence.tolerance_bytes + evidence.lag_bytes else 0


def _resident_at_start(evidence: _Evidence, start: CacheCheck) -> str | None:
    return _missing_reason(
        evidence, evidence.proven_bytes - start.resident_bytes, "before the program started"
    )


def _resident_at_go(evidence: _Evidence, start: CacheCheck, go: CacheCheck) -> str | None:
    """Check that no bytes left but those that the workload or its slice's limit dropped."""
    own = evidence.evicted_bytes + min(
        _growth(start, go, "reclaimed_bytes") or 0, start.charged_bytes or 0
    )
    return _missing_reason(evidence, evidence.proven_bytes - go.resident_bytes - own, "before `go`")


def _missing_reason(evidence: _Evidence, missing: int, when: str) -> str | None:
    if missing <= evidence.tolerance_bytes:
        return None
    missing_text = f"{format_bytes(missing)} of the files left the page cache {when}"
    return f"{missing_text}: another process dropped them, or memory ran short"


def _resident_at_end(
    evidence: _Evidence, _start: CacheCheck, go: CacheCheck, end: CacheCheck
) -> str | None:
    """Check that no bytes had to be read again, other than those that reclaim accounts for.

    Reads alone prove nothing, because direct reads leave the page cache unchanged. Either residency
    must have dropped, or the slice must be charged for new pages while the workload reads only
    these files.
    """
    if reclaim_is_unknown(vars(go), vars(end)):
        return None
    least = evidence.least_resident_bytes
    dropped = go.resident_bytes - (
        end.resident_bytes if least is None else min(least, end.resident_bytes)
    )
    reclaimed = _growth(go, end, "reclaimed_bytes") or 0
    charged = (
        (_growth(go, end, "charged_bytes") or 0) + reclaimed
        if evidence.requested_bytes is not None
        else 0
    )
    by_reclaim = (_growth(go, end, "host_reclaimed_bytes") or 0) + min(
        reclaimed, go.charged_bytes or 0
    )
    gone_before = evidence.proven_bytes - go.resident_bytes
    again = (
        min(_growth(go, end, "read_bytes") or 0, max(dropped, charged)) - by_reclaim - gone_before
    )
    if again <= evidence.tolerance_bytes:
        return None
    return (
        f"{format_bytes(again)} of the files had to be read again: another process dropped them"
        " from the page cache"
    )


def reclaim_is_unknown(before: JsonView, after: JsonView) -> bool:
    """Return whether the limit reclaimed pages without a count, as cgroup v1 does."""
    hits = (after.get("limit_hits") or 0) - (before.get("limit_hits") or 0)
    return hits > 0 and after.get("reclaimed_bytes") is None


def _growth(before: CacheCheck, after: CacheCheck, key: str) -> int | None:
    first, last = getattr(before, key), getattr(after, key)
    return None if first is None or last is None else last - first


_Rules = tuple[
    Callable[[_Evidence, CacheCheck], str | None],
    Callable[[_Evidence, CacheCheck, CacheCheck], str | None],
    Callable[[_Evidence, CacheCheck, CacheCheck, CacheCheck], str | None],
]
_RULES: Mapping[str, _Rules] = {
    "cold": (_cold_at_start, _cold_at_go, _cold_at_end),
    "resident": (_resident_at_start, _resident_at_go, _resident_at_end),
}
