"""Rules by which a proven cache state is held to have lasted until `go`, and to be what the measured part found.

Pure functions of what a record keeps under `cache`. The agent decides a trial's outcome by them, and the verdict on the
cache state applies them again (docs/METHODOLOGY.md, "Cache states").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pagecage.units import MIB, PAGE_BYTES, format_bytes

TOLERANCE_BYTES = MIB
"""Bytes that may lack their explanation. An honest trial lacks none: io.stat and cachestat(2) agreed to the page in all
stored trials. A MiB leaves room for read-ahead that is under way while the two are asked in turn, and for single pages
that a machine reclaims ahead of need."""
TOLERANCE_SHARE = 0.01
"""The same as a share of the files: so much less to read is below what repeats of a trial differ by."""
CHARGE_LAG_PAGES = 128
"""Pages a CPU by which memory.stat may be behind: 64 wait on the CPU, 64 more for the next flush (mm/memcontrol.c,
MEMCG_CHARGE_BATCH)."""
MOMENTS = ("start", "go", "end")
_READERS = frozenset({"pcread", "pcscan", "pcscan-c", "pcscan-python", "pcprefault"})
"""Workloads whose `distinct_bytes` are bytes of the trial's files that went through their hands, as their checksum
shows. Others count by it what they wrote, took, or only announced (workloads/README.md)."""


@dataclass(frozen=True)
class CacheCheck:
    """The trial's files, its slice and the host at one moment; None is what this kernel does not tell.

    `charged_bytes` is the page cache that the slice is charged for; `read_bytes` what it has read from the trial's disk
    since it was made; `reclaimed_bytes` what reclaim has taken from it; `host_reclaimed_bytes` what reclaim has taken
    from any cgroup because the host was short of memory.
    """

    resident_bytes: int
    charged_bytes: int | None = None
    read_bytes: int | None = None
    reclaimed_bytes: int | None = None
    host_reclaimed_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The look as a record keeps it."""
        return asdict(self)


@dataclass(frozen=True)
class _Evidence:
    """Input of the rules. `proven_bytes` were resident when the state was proven, or when the step before ended."""

    proven_bytes: int
    after_step: bool
    tolerance_bytes: int
    lag_bytes: int
    evicted_bytes: int
    came_bytes: int | None
    least_resident_bytes: int | None
    asked_bytes: int | None


def charge_lag_bytes(cpus: int) -> int:
    """By how much the charge in memory.stat may be behind on a host with so many CPUs."""
    return CHARGE_LAG_PAGES * PAGE_BYTES * cpus


def tolerance_bytes(file_bytes: int) -> int:
    """Number of bytes that may remain unexplained."""
    return max(TOLERANCE_BYTES, round(TOLERANCE_SHARE * file_bytes))


def asked_bytes(program: str | None, end: Mapping[str, Any]) -> int | None:
    """Distinct bytes of the trial's files that a workload read, by its `end` line; None where it does not tell."""
    told = end.get("distinct_bytes")
    is_told = program in _READERS and end.get("checksum") is not None and isinstance(told, int)
    return told if is_told else None


def why_broken(cache: Mapping[str, Any], asked: int | None = None) -> str | None:
    """Why the state that was proven did not last, by the looks that were taken so far; None where it did.

    `asked` are the distinct bytes of the files that the workload had in hand (`asked_bytes`).
    """
    start, go, end = (_look(cache, moment) for moment in MOMENTS)
    rules = _RULES.get(cache.get("requested", "any"))
    if rules is None or start is None:
        return None
    evidence, (at_start, at_go, at_end) = _evidence(cache, asked), rules
    why = at_start(evidence, start)
    if go is not None and why is None:
        why = at_go(evidence, start, go)
    if go is not None and end is not None and why is None:
        why = at_end(evidence, start, go, end)
    return why


def _look(cache: Mapping[str, Any], moment: str) -> CacheCheck | None:
    found = cache.get(moment)
    return CacheCheck(**found) if found else None


def _evidence(cache: Mapping[str, Any], asked: int | None) -> _Evidence:
    step = cache.get("step") if cache["requested"] == "cold" else None
    return _Evidence(
        proven_bytes=step["resident_bytes_after"] if step else cache["resident_bytes_before"], after_step=bool(step),
        tolerance_bytes=tolerance_bytes(cache["file_bytes"]), lag_bytes=cache.get("charge_lag_bytes", 0),
        evicted_bytes=cache.get("evicted_bytes", 0), came_bytes=cache.get("came_bytes"),
        least_resident_bytes=cache.get("least_resident_bytes"), asked_bytes=asked,
    )  # fmt: skip


def _cold_at_start(evidence: _Evidence, start: CacheCheck) -> str | None:
    """Nothing of the trial has run since the proof, or since the step before, which may still have read ahead."""
    foreign = start.resident_bytes - evidence.proven_bytes
    if foreign <= (evidence.tolerance_bytes if evidence.after_step else 0):
        return None
    return f"before the program started another process had read {format_bytes(foreign)} of the files"


def _cold_at_go(evidence: _Evidence, start: CacheCheck, go: CacheCheck) -> str | None:
    """Pages that arrived since the start belong to the trial as far as its slice is charged for them or has read them.

    Where the slice has read nothing at all, none of it is.
    """
    charged, read = (_grown(start, go, key) for key in ("charged_bytes", "read_bytes"))
    if charged is None and read is None:
        return None
    own, spare = max(charged or 0, read or 0), evidence.tolerance_bytes + evidence.lag_bytes
    foreign = go.resident_bytes - start.resident_bytes
    if foreign <= (0 if read == 0 else own + spare):
        return None
    return f"before `go` another process had read {format_bytes(foreign)} of the files"


def _cold_at_end(evidence: _Evidence, start: CacheCheck, _go: CacheCheck, end: CacheCheck) -> str | None:
    read = _grown(start, end, "read_bytes")
    if foreign := _charged_elsewhere(evidence, start, end):
        return f"another process has read {format_bytes(foreign)} of the files, as it is charged for these pages"
    if read is None:
        return None
    told = f"the disk delivered {format_bytes(read)} to the slice, and another process read the rest"
    if (came := evidence.came_bytes) is not None and came - read > evidence.tolerance_bytes:
        return f"{format_bytes(came)} of the files came into the page cache: {told}"
    missing = (evidence.asked_bytes or 0) - start.resident_bytes
    if missing - read > evidence.tolerance_bytes:
        return f"{format_bytes(missing)} that it asked for were not in the page cache: {told}"
    return None


def _charged_elsewhere(evidence: _Evidence, start: CacheCheck, end: CacheCheck) -> int:
    """Resident bytes beyond those at the start that are charged to no process of the trial; 0 where that is not known.

    A page is charged to the cgroup that brought it in, and stays so (cgroup-v2.rst, "Memory Ownership").
    """
    if start.charged_bytes is None or end.charged_bytes is None:
        return 0
    before = max(0, start.resident_bytes - start.charged_bytes)
    foreign = end.resident_bytes - end.charged_bytes - before
    return foreign if foreign > evidence.tolerance_bytes + evidence.lag_bytes else 0


def _resident_at_start(evidence: _Evidence, start: CacheCheck) -> str | None:
    return _gone(evidence, evidence.proven_bytes - start.resident_bytes, "before the program started")


def _resident_at_go(evidence: _Evidence, start: CacheCheck, go: CacheCheck) -> str | None:
    """A workload may drop pages itself and say so; its own limit may, where its own slice loaded the files."""
    own = evidence.evicted_bytes + min(_grown(start, go, "reclaimed_bytes") or 0, start.charged_bytes or 0)
    return _gone(evidence, evidence.proven_bytes - go.resident_bytes - own, "before `go`")


def _gone(evidence: _Evidence, missing: int, when: str) -> str | None:
    """A machine that reclaims ahead of need (DAMON) takes a few pages of anything, and counts no reclaim."""
    what = f"{format_bytes(missing)} of the files left the page cache {when}"
    told = f"{what}: another process dropped them, or memory ran short"
    return told if missing > evidence.tolerance_bytes else None


def _resident_at_end(evidence: _Evidence, _start: CacheCheck, go: CacheCheck, end: CacheCheck) -> str | None:
    """Bytes that had to be read again, less those that reclaim accounts for.

    Reads alone show nothing: direct ones leave a resident file as it is. So pages must have been seen to go; or the
    slice is charged for new ones, which are the files' where the workload reads nothing else.
    """
    least = evidence.least_resident_bytes
    seen = go.resident_bytes - (end.resident_bytes if least is None else min(least, end.resident_bytes))
    reclaimed = _grown(go, end, "reclaimed_bytes") or 0
    charged = (_grown(go, end, "charged_bytes") or 0) + reclaimed if evidence.asked_bytes is not None else 0
    by_reclaim = (_grown(go, end, "host_reclaimed_bytes") or 0) + min(reclaimed, go.charged_bytes or 0)
    gone_before = evidence.proven_bytes - go.resident_bytes
    again = min(_grown(go, end, "read_bytes") or 0, max(seen, charged)) - by_reclaim - gone_before
    if again <= evidence.tolerance_bytes:
        return None
    return f"{format_bytes(again)} of the files had to be read again: another process dropped them from the page cache"


def _grown(before: CacheCheck, after: CacheCheck, key: str) -> int | None:
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
