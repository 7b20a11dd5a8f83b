"""Limits that did not hold for a whole trial: changed after their proof, or exceeded at times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pagecage.model.cage import IO_MAX_KEY, IO_STAT_KEY
from pagecage.model.record import Record
from pagecage.units import KIB, MIB
from pagecage.verdicts.caps import amount, cap_changes
from pagecage.verdicts.disks.views import disk_views
from pagecage.verdicts.limits import FIRST_SLICE_SECONDS, GRACE, LIMIT_FILE
from pagecage.verdicts.verdict import LimitVerdict
from pagecage.verdicts.volume_account import volume_account
from pagecage.verdicts.window_limit import Window

LARGE_REQUESTS = {"Bandwidth": 8 * MIB, "IOPS": 64}
"""I/O that a short window may count beyond its cap: two requests of 4 MiB, which are let go whole,
or a batch of small ones."""
_AHEAD_WINDOWS = 4
"""Windows of read-ahead that cgroup v1 may count at once: two, each doubled (`_batch`)."""
Rows = Sequence[Mapping[str, Any]]


def watched(
    limits: Sequence[LimitVerdict], record: Record, series: Rows, windows: Sequence[Window]
) -> tuple[LimitVerdict, ...]:
    """Return the verdicts, `leaky` for each limit that was changed or exceeded meanwhile."""
    views: dict[str | None, Record] = {None: record}
    views.update(disk_views(record).items())
    found = []
    for limit in limits:
        reason = None
        if limit.cap is not None and limit.verdict in ("enforced", "never_reached"):
            view = views[limit.disk]
            seen = [window.others[limit.disk] for window in windows] if limit.disk else windows
            reason = _changed(view, limit, series) or _exceeded(view, limit, seen)
        found.append(replace(limit, verdict="leaky", reason=reason) if reason else limit)
    return tuple(found)


def _changed(record: Record, limit: LimitVerdict, series: Rows) -> str | None:
    """Return a sentence if the kernel held another value after the proof."""
    file, cage = LIMIT_FILE[limit.property], record.cage
    expected = (cage.expected or {}).get(file)
    if expected is None or limit.disk or _is_rewritten(record, limit.property):
        return None
    for when, value in (*_sampled(record, file, series), *_at_end(record, file)):
        if value != expected:
            return f"The kernel held {file} = {value} instead of {expected} {when}."
    return _tightened(record, file, limit, series)


def _is_rewritten(record: Record, name: str) -> bool:
    """Return whether pagecage itself changes the property's cap while the trial runs."""
    buckets = (record.cage.credits or {}).get("buckets") or ()
    return any(name in bucket["properties"] for bucket in buckets) or any(
        name in change for change in cap_changes(record)
    )


def _sampled(record: Record, file: str, series: Rows) -> Iterator[tuple[str, str]]:
    """Yield the sampled values of a limit up to the end of the measured part, and their times.

    The sampler writes a limit when it sees another value than before. Limits that a container
    engine holds are in a cgroup of its own, which is not sampled.
    """
    if record.measured is None or record.cage.driver_cgroup:
        return
    begin, end = record.measured.start_monotonic_seconds, record.measured.end_monotonic_seconds
    for row in series:
        value = row.get("limits", {}).get(file)
        if value is not None and row["t"] <= end:
            yield f"{row['t'] - begin:.1f} s after `go`", value


def _at_end(record: Record, file: str) -> Iterator[tuple[str, str]]:
    value = (record.cage.read_back_after or {}).get(file)
    if value is not None:
        yield "at the end of the measured part", value


def _of_ancestors(record: Record, file: str, series: Rows) -> Iterator[tuple[str, str]]:
    """Yield (cgroup, text) of an ancestors' limit, as sampled and at the end."""
    for cgroup in record.cage.ancestors or {}:
        for _, text in _sampled(record, f"{cgroup}/{file}", series):
            yield cgroup, text
        last = (record.cage.ancestors_after or {}).get(cgroup, {}).get(file)
        if last is not None:
            yield cgroup, last


def _tightened(record: Record, file: str, limit: LimitVerdict, series: Rows) -> str | None:
    """Return a sentence if an ancestor got a tighter limit while the trial ran."""
    for cgroup, text in _of_ancestors(record, file, series):
        held = text.split()
        if not held or held[0] == "max" or limit.cap is None:
            continue
        value = 100 * float(held[0]) / float(held[1]) if "cpu" in file else float(held[0])
        if value < limit.cap:
            return (
                f"While the trial ran, the ancestor {cgroup} got a limit of"
                f" {amount(limit.property, value)}."
            )
    return None


def _exceeded(record: Record, limit: LimitVerdict, windows: Sequence[Window]) -> str | None:
    """Return a sentence if a window moved more than its cap allows."""
    name = limit.property
    if name not in IO_MAX_KEY or volume_account(record) is not None or record.cage.credits:
        return None
    batch = _batch(record, name)
    for window in windows:
        cap, moved = window.caps.get(name), window.moved[IO_STAT_KEY[name]]
        if cap and moved > cap * (window.seconds + FIRST_SLICE_SECONDS) * GRACE + batch:
            return (
                f"In {window.seconds:.1f} s, {window.start_seconds:.1f} s after `go`, the trial"
                f" reached {amount(name, moved / window.seconds)}, above the limit of"
                f" {amount(name, cap)}."
            )
    return None


def _batch(record: Record, name: str) -> float:
    """Return the I/O that a short window may count beyond its cap.

    cgroup v1 counts a read when it begins to wait at the limit (block/blk-throttle.c,
    blk_throtl_bio), so two windows of read-ahead may be counted at once. A program such as cat
    doubles each by POSIX_FADV_SEQUENTIAL (mm/fadvise.c).
    """
    least = next(count for kind, count in LARGE_REQUESTS.items() if kind in name)
    files = (record.cage.counter_files or {}).get("io.stat") or ("",)
    if "Bandwidth" not in name or "blkio." not in files[0]:
        return least
    ahead_kb = (record.device.queue_settings or {}).get("read_ahead_kb") or 0
    return max(least, _AHEAD_WINDOWS * KIB * int(ahead_kb))
