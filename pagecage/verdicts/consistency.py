"""Consistency of a trial's figures: clocks, counters, samples and settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

from pagecage.model.cache_proof import reclaim_is_unknown, requested_bytes, tolerance_bytes
from pagecage.model.cage import IO_MAX_KEY, IO_STAT_KEY
from pagecage.model.record import Record
from pagecage.model.record_sections import MeasuredInterval
from pagecage.units import KIB, MIB, format_bytes
from pagecage.verdicts.counters import (
    Rows,
    counter,
    cpu_seconds,
    difference,
    disk_bytes,
    disk_views,
    final_counter,
    growth,
    has_cgroup,
    io_at,
    io_difference,
    stalled_seconds,
)
from pagecage.verdicts.limits import (
    FIRST_SLICE_SECONDS,
    GRACE,
    LIMIT_FILE,
    amount,
    cap_buckets,
    cap_changes,
    limit_value,
)
from pagecage.verdicts.verdict import LimitVerdict, Verdict
from pagecage.verdicts.volume_account import volume_account
from pagecage.verdicts.windows import Window

_PRECISION = 1e-6
_LEAST_CPU_SHARE = 0.0005
"""Share of a CPU below which a server cannot have answered a load."""
Samples = list[tuple[float, float]]


def _figure_contradictions(record: Record, within: MeasuredInterval) -> Iterator[str]:
    """Compare figures with the counters and the workload's own report; one of them must agree."""
    end = record.workload.end or {}
    times = [t for t in (end.get("seconds"), within.seconds) if isinstance(t, int | float)]
    covered, moved = end.get("covered_fraction"), end.get("bytes")
    read, reads = io_difference(record, "rbytes"), io_difference(record, "rios")
    written = io_difference(record, "wbytes") if has_cgroup(record) else None
    own = end.get("response")
    expected: dict[str, Sequence[object]] = {
        "read_seconds": times,
        "covered_fraction": [covered],
        "full_pass_seconds": [_ratio(time, covered) for time in times],
        "bytes_per_second": [_ratio(moved, time) for time in times],
        "device_read_bytes": [read],
        "device_reads": [reads],
        "device_bytes_per_read": [_ratio(read, reads)],
        "device_write_bytes": [written],
        "amplification": [_ratio(read, end.get("distinct_bytes"))],
        "io_stalled_seconds": [stalled_seconds(record, "io")],
    }
    for name, value in own.items() if isinstance(own, Mapping) else ():
        if name not in ("bytes_per_second", "major_faults"):
            expected[name] = [value]
    for name, values in expected.items():
        found, known = record.response.get(name), [v for v in values if isinstance(v, int | float)]
        is_near = any(math.isclose(found or 0.0, one, rel_tol=_PRECISION) for one in known)
        if found is not None and known and not is_near:
            yield f"{name} is {found:g}, and the counters give {known[0]:g}"


def _ratio(above: Any, below: Any) -> float | None:
    is_known = isinstance(above, int | float) and isinstance(below, int | float) and below
    return above / below if is_known else None


def _outcome_contradictions(record: Record, within: MeasuredInterval) -> Iterator[str]:
    """Check that a success is no failure, and that a server worked for its load's figures."""
    if record.outcome == "ok":
        if record.workload.checksum_ok is False:
            yield "the outcome is ok, and the checksum was wrong"
        if final_counter(record, "memory.events", "oom_kill") or record.exit.oom_kill:
            yield "the outcome is ok, and the kernel killed the trial for memory"
        # A server serves until it is ended, so that its status says nothing.
        if record.exit.status and record.exit.ended_by_itself is not False:
            yield f"the outcome is ok, and the workload ended with status {record.exit.status}"
    used = cpu_seconds(record)
    if not record.load.metrics or used is None or not has_cgroup(record):
        return
    has_read = io_difference(record, "rios") or io_difference(record, "wios")
    throttled = difference(record, "cgroup", "cpu.stat", "throttled_usec")
    if used < _LEAST_CPU_SHARE * within.seconds and not has_read and not throttled:
        yield f"the load reports figures, and the server used only {1000 * used:.1f} ms of CPU time"


STEP_SECONDS = 0.1
"""The wall clock may move this much against CLOCK_MONOTONIC; 0.6 ms was the most in 953 trials."""
READING_SECONDS = 0.02
"""Two readings of one clock around the same event."""
LONGEST_SECONDS, SHARE = 1.5, 0.1
"""The most that a bound grows to, and the share of the measured part with which it grows."""
UNCOUNTED_SECONDS = 0.15
UNCOUNTED_EMULATED_SECONDS, UNCOUNTED_EMULATED_SHARE = 0.6, 0.3
UNMAPPED_BYTES_PER_SECOND = 25e9
"""Time between `go` and `end` that a workload may leave out of its own time: the start of threads,
and the end of mappings, which took 0.38 s for 15 GiB. On an emulated CPU, 0.47 s of 1.05 s and
0.71 s of 13 s were the most."""
OUTER_SECONDS, DRIFT_SHARE = 0.5, 0.001
"""Delay of the events by which the outer host knows the measured part, and the drift of two clocks.
0.11 s was the most in 348 trials. Clocks are slewed by 0.05 % at most (adjtimex(2))."""
_OWN_RUNTIME = "fio"
"""fio's runtime leaves out the start and the end of its processes."""


def _clock_contradictions(record: Record, within: MeasuredInterval, series: Rows) -> Iterator[str]:
    yield from _workloads_clock(record, within.seconds)
    yield from _outer_clock(record, within.seconds)
    begin = within.start_wall_seconds - within.start_monotonic_seconds
    offsets = [begin, *(row["wall"] - row["t"] for row in series if "wall" in row)]
    moved = max(offsets) - min(offsets)
    if moved > STEP_SECONDS:
        yield f"the wall clock moved by {moved:.3f} s against CLOCK_MONOTONIC"
    phase = next((phase for phase in record.phases if phase.name == "run"), None)
    if phase and (
        within.start_monotonic_seconds < phase.start_monotonic_seconds - READING_SECONDS
        or within.end_monotonic_seconds
        > phase.start_monotonic_seconds + phase.seconds + READING_SECONDS
    ):
        yield f"the measured part of {within.seconds:.3f} s is not within the phase run"


def _scaled_bound(seconds: float, least_seconds: float, share: float = SHARE) -> float:
    # A fixed bound would let pass a pause as long as a short trial, a share alone a minute of a
    # long one.
    return min(LONGEST_SECONDS, max(least_seconds, share * seconds))


def _workloads_clock(record: Record, seconds: float) -> Iterator[str]:
    end = record.workload.end or {}
    own, checks = end.get("seconds"), end.get("check_seconds")
    if not isinstance(own, int | float):
        return
    own += checks if isinstance(checks, int | float) else 0
    most = _scaled_bound(seconds, UNCOUNTED_SECONDS)
    if record.emulated:
        most = _scaled_bound(seconds, UNCOUNTED_EMULATED_SECONDS, UNCOUNTED_EMULATED_SHARE)
    most += (record.cache.file_bytes or 0) / UNMAPPED_BYTES_PER_SECOND
    if own > seconds + READING_SECONDS:
        yield f"the workload reports {own:.3f} s of a measured part of {seconds:.3f} s"
    elif seconds - own > most and record.workload.program != _OWN_RUNTIME:
        yield f"the workload reports {own:.3f} s, and the measured part took {seconds:.3f} s"


def _outer_clock(record: Record, seconds: float) -> Iterator[str]:
    outer = record.outer_host
    passed = growth(outer.before, outer.after, "unix_seconds") if outer else None
    if passed is None:
        return
    most = _scaled_bound(passed, OUTER_SECONDS) + DRIFT_SHARE * passed
    if abs(passed - seconds) > most:
        yield (
            f"{passed:.3f} s passed on the outer host during the {seconds:.3f} s of the measured"
            " part: the guest was paused, or its clock is wrong"
        )


SPARE_BYTES, SPARE_SHARE = MIB, 0.02
"""Bytes that the slice may count beyond its disk: requests on their way at one of the readings."""
_GROWING = (
    *(("device", key) for key in ("reads", "sectors_read", "writes", "sectors_written")),
    ("device", "io_ticks"),
    ("agent", "cpu_usec"),
    ("cgroup", "cpu.stat", "usage_usec"),
    ("cgroup", "cpu.stat", "throttled_usec"),
    *(("cgroup", "memory.events", key) for key in ("high", "max", "oom_kill")),
    *(("host", "stat", key) for key in ("user", "system", "idle", "steal")),
    *(("host", "vmstat", key) for key in ("pgpgin", "pgpgout", "pgfault", "pgmajfault")),
)
"""Counters that figures or verdicts rest on. `iowait` is left out: it may decrease
(proc_stat(5))."""
_TICK = 1
"""/proc/stat adds up the CPUs, one of which may have ended a tick that another reading counted."""


def _counter_contradictions(record: Record) -> Iterator[str]:
    for key in IO_STAT_KEY.values():
        moved = io_difference(record, key)
        if moved is not None and moved < 0:
            yield f"{key} of io.stat went back by {-moved:,.0f} in the measured part"
    for path in _GROWING:
        grown = difference(record, *path)
        if grown is not None and grown < (-_TICK if path[0] == "host" else 0):
            yield f"{' '.join(path)} went back by {-grown:,.0f} in the measured part"
    for resource in ("cpu", "io", "memory"):
        waited = stalled_seconds(record, resource)
        if waited is not None and waited < 0:
            yield f"{resource}.pressure went back by {-waited:.3f} s in the measured part"


def _beyond_disk(record: Record) -> Iterator[str]:
    if not has_cgroup(record) or record.cage.enforced_by == "volume":
        return
    for direction, key, verb in (("read", "rbytes", "read"), ("written", "wbytes", "wrote")):
        disk, own = disk_bytes(record, direction), io_difference(record, key)
        if disk is None or own is None or counter(record, "after", "device") is None:
            continue
        if own - disk > max(SPARE_BYTES, SPARE_SHARE * own):
            yield (
                f"the slice {verb} {format_bytes(own)}, more than the {format_bytes(disk)} that the"
                " disk counted"
            )


_LARGE_REQUESTS = {"Bandwidth": 8 * MIB, "IOPS": 64}
"""I/O that a short window may count beyond its cap: two requests of 4 MiB, which are let go whole,
or a batch of small ones."""
_AHEAD_WINDOWS = 4
"""Windows of read-ahead that cgroup v1 may count at once: two, each doubled (`_batch`)."""


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
    """Return a sentence if the kernel held another value, or an ancestor got a tighter one."""
    name, cage, file = limit.property, record.cage, LIMIT_FILE[limit.property]
    expected = (cage.expected or {}).get(file)
    rewritten = (*(one.properties for one in cap_buckets(record)), *cap_changes(record))
    if expected is None or limit.disk or any(name in one for one in rewritten):
        return None
    seen = _sampled(record, file, series)
    if (last := (cage.read_back_after or {}).get(file)) is not None:
        seen.append(("at the end of the measured part", last))
    for when, value in seen:
        if value != expected:
            return f"The kernel held {file} = {value} instead of {expected} {when}."
    for cgroup in cage.ancestors or {}:
        last = (cage.ancestors_after or {}).get(cgroup, {}).get(file)
        values = [*(text for _, text in _sampled(record, f"{cgroup}/{file}", series)), last]
        for held in map(limit_value, values):
            if held is not None and limit.cap is not None and held < limit.cap:
                return (
                    f"While the trial ran, the ancestor {cgroup} got a limit of"
                    f" {amount(name, held)}."
                )
    return None


def _sampled(record: Record, file: str, series: Rows) -> list[tuple[str, str]]:
    """Return times and values of a limit as sampled; none in a container engine's own cgroup."""
    if record.measured is None or record.cage.driver_cgroup:
        return []
    begin, end = record.measured.start_monotonic_seconds, record.measured.end_monotonic_seconds
    return [
        (f"{row['t'] - begin:.1f} s after `go`", row["limits"][file])
        for row in series
        if row["t"] <= end and row.get("limits", {}).get(file) is not None
    ]


def _exceeded(record: Record, limit: LimitVerdict, windows: Sequence[Window]) -> str | None:
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
    least = next(count for kind, count in _LARGE_REQUESTS.items() if kind in name)
    files = (record.cage.counter_files or {}).get("io.stat") or ("",)
    if "Bandwidth" not in name or "blkio." not in files[0]:
        return least
    ahead_kb = (record.device.queue_settings or {}).get("read_ahead_kb") or 0
    return max(least, _AHEAD_WINDOWS * KIB * int(ahead_kb))


OPENING_SHARE = 0.1
"""Share of its files that a program may read before it is ready."""
PLANNED = "direct"
"""Part of an argument by which a plan wants reads past the page cache."""
FILLS_CACHE = {
    "pcburst": ("--page-cache clean", "--page-cache dirty"),
    "pcread": ("--advice populate-read",),
}
"""Arguments by which a plan wants a workload to fill the page cache before `go`."""


def _read_contradictions(record: Record) -> Iterator[str]:
    start, end, size = record.cache.start, record.cache.end, record.cache.file_bytes
    asked = requested_bytes(record.workload.program, record.workload.end or {})
    if not start or not end or size is None or asked is None:
        return
    spare = tolerance_bytes(size) + (record.cache.charge_lag_bytes or 0)
    read, charged = (end.since(start, key) for key in ("read_bytes", "charged_bytes"))
    is_planned = any(PLANNED in word for word in record.workload.argv or ())
    if read is None or charged is None or is_planned:
        return
    # cgroup v1 counts no reclaim of a cgroup. What the whole host reclaimed bounds it.
    is_counted = end.reclaimed_bytes is not None
    by_whom = "reclaimed_bytes" if is_counted else "host_reclaimed_bytes"
    past = read - max(0, charged) - (end.since(start, by_whom) or 0)
    if past > spare and not reclaim_is_unknown(start, end):
        idle_seconds = (record.machine.before or {}).get("idle_pageout_seconds")
        if idle_seconds is None:
            how = "past the page cache, which the plan does not ask for"
        else:
            how = f"again: DAMON reclaims pages that are not accessed for {idle_seconds:g} s"
        yield f"{format_bytes(past)} were read {how}"
    other = charged - max(0, (end.resident_bytes - start.resident_bytes))
    if other > spare:
        yield (
            f"the slice is charged for {format_bytes(other)} of page cache that does not belong to"
            " the trial's files"
        )


def read_before_go(record: Record) -> str | None:
    """Return a sentence if the trial itself had read much of its cold files before `go`.

    A program may read a little of them to start; a reader of pagecage's reads nothing. A warm-up
    that the plan asks for is no finding.
    """
    cache, size = record.cache, record.cache.file_bytes
    argv = " ".join(record.workload.argv or ())
    if any(arguments in argv for arguments in FILLS_CACHE.get(record.workload.program or "", ())):
        return None
    if cache.requested != "cold" or not cache.start or size is None or record.load.warm_up:
        return None
    reader = requested_bytes(record.workload.program, record.workload.end or {}) is not None
    spare = tolerance_bytes(size) if reader else max(tolerance_bytes(size), OPENING_SHARE * size)
    cached = (cache.go or cache.start).resident_bytes - cache.start.resident_bytes
    before, started = io_at(record, "before", "rbytes"), cache.start.read_bytes
    fetched = 0 if before is None or started is None else min(size, before - started)
    early = max(cached, fetched if reader or record.load else 0)
    if early <= spare:
        return None
    return f"the trial itself had read {format_bytes(early)} of the files before `go`"


LEAST_GAP_SECONDS = 0.5
"""The sampler runs every 0.1 s. A longer gap than this, and than a tenth of the measured part, is a
pause. The longest of 827 series was 0.56 s, in 23 s; in less than 1 s it was 0.14 s."""
_DISK_KEYS = ("reads", "sectors_read", "writes", "sectors_written")


def _sample_contradictions(record: Record, within: MeasuredInterval, series: Rows) -> Iterator[str]:
    if not series:
        return
    times = [row["t"] for row in series]
    if any(later <= earlier for earlier, later in pairwise(times)):
        yield "the samples are not in the order of time"
        return
    missing = within.end_monotonic_seconds - times[-1]
    late = times[0] - within.start_monotonic_seconds
    most = _scaled_bound(within.seconds, LEAST_GAP_SECONDS)
    if missing > most or (missing > 0 and record.collectors.get("sampler")):
        yield f"the samples end {missing:.3f} s before the measured part"
    elif late > most:
        yield f"the samples begin {late:.3f} s after the measured part"
    excluded = (_outside(within, *counted) for counted in _counted(record, series))
    yield from islice(filter(None, excluded), 1)


def pause_seconds(record: Record, series: Rows) -> float | None:
    """Return the longest time between two samples around the measured part if it is a pause."""
    if record.measured is None:
        return None
    begin, end = record.measured.start_monotonic_seconds, record.measured.end_monotonic_seconds
    pairs = ((a["t"], b["t"]) for a, b in pairwise(series))
    gap = max((b - a for a, b in pairs if begin < b and a < end), default=0.0)
    return gap if gap > _scaled_bound(record.measured.seconds, LEAST_GAP_SECONDS) else None


def _counted(record: Record, series: Rows) -> Iterator[tuple[str, float, float, Samples]]:
    """Yield name, counts before and after, and (time, count) of the samples, for each counter."""
    if has_cgroup(record):
        for key in IO_STAT_KEY.values():
            low, high = io_at(record, "before", key), io_at(record, "after", key)
            values = [(row["t"], row["io"].get(key, 0)) for row in series if "io" in row]
            if low is not None and high is not None:
                yield f"{key} of io.stat", low, high, values
    for key in _DISK_KEYS:
        low, high = (counter(record, moment, "device", key) for moment in ("before", "after"))
        values = [(row["t"], row["disk"][key]) for row in series if key in row.get("disk", {})]
        if low is not None and high is not None:
            yield f"{key} of the disk", low, high, values


def _outside(
    within: MeasuredInterval, name: str, low: float, high: float, values: Samples
) -> str | None:
    begin, end = within.start_monotonic_seconds, within.end_monotonic_seconds
    previous = float("-inf")
    for place, (t, value) in enumerate(values, 1):
        least = high if t >= end and place == len(values) else low if t >= begin else 0
        most = low if t <= begin and place == 1 else high if t <= end else float("inf")
        if not least <= value <= most or value < previous:
            return (
                f"a sample {t - begin:.3f} s after `go` has {value:,.0f} {name}, and the counters"
                f" went from {low:,.0f} to {high:,.0f}"
            )
        previous = value
    return None


def judge_consistency(record: Record, series: Rows, damage: Sequence[str] = ()) -> Verdict:
    """Return `consistent`, `contradictory` or `unknown`; `damage` is that of check_traces()."""
    if not (within := record.measured):
        return Verdict("unknown", "The measured part did not end, so there is nothing to compare.")
    found = [
        *damage,
        *_counter_contradictions(record),
        *_beyond_disk(record),
        *_clock_contradictions(record, within, series),
        *_sample_contradictions(record, within, series),
        *_read_contradictions(record),
        *_figure_contradictions(record, within),
        *_outcome_contradictions(record, within),
    ]
    for device in (record.device, *(other.device for other in record.disks.values())):
        before, after = device.queue_settings or {}, device.queue_settings_after or {}
        found += [
            f"{name} of {device.name} was {before[name]} before the measured part and"
            f" {after[name]} at its end"
            for name in before.keys() & after.keys()
            if before[name] != after[name]
        ]
    if found:
        return Verdict("contradictory", "; ".join(found) + ".")
    return Verdict("consistent", "Counters, clocks, samples, settings and figures agree.")
