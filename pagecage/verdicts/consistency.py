"""Consistency of a trial's figures: clocks, counters, samples and settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from pagecage.model.cache_proof import reclaim_is_unknown, requested_bytes, tolerance_bytes
from pagecage.model.cage import IO_MAX_KEY, IO_STAT_KEY
from pagecage.model.record import Record
from pagecage.model.record_sections import DeviceEvidence
from pagecage.units import KIB, MIB, format_bytes
from pagecage.verdicts.counters import (
    counter,
    cpu_seconds,
    difference,
    disk_bytes,
    disk_views,
    final_counter,
    has_cgroup,
    io_at,
    io_difference,
    stalled_seconds,
)
from pagecage.verdicts.limits import FIRST_SLICE_SECONDS, GRACE, LIMIT_FILE, amount, cap_changes
from pagecage.verdicts.verdict import LimitVerdict, Verdict
from pagecage.verdicts.volume_account import volume_account
from pagecage.verdicts.windows import Window

_PRECISION = 1e-6
_LEAST_CPU_SHARE = 0.0005
"""Share of a CPU below which a server cannot have answered a load."""
Expected = Mapping[str, tuple[float | None, ...]]


def figure_contradictions(record: Record) -> Iterator[str]:
    """Yield a sentence for each figure or outcome that the evidence excludes."""
    expected = {**_of_the_pass(record), **_of_the_disk(record), **_of_the_workload(record)}
    for name, values in expected.items():
        found = record.response.get(name)
        known = [value for value in values if isinstance(value, int | float)]
        if found is None or not known:
            continue
        if not any(math.isclose(found, value, rel_tol=_PRECISION) for value in known):
            yield f"{name} is {found:g}, and the counters give {known[0]:g}"
    yield from _outcome(record)
    yield from _idle_server(record)


def _of_the_pass(record: Record) -> Expected:
    assert record.measured is not None
    end, seconds = record.workload.end or {}, record.measured.seconds
    times = [time for time in (end.get("seconds"), seconds) if isinstance(time, int | float)]
    covered, moved = end.get("covered_fraction"), end.get("bytes")
    return {
        "read_seconds": tuple(times),
        "covered_fraction": (covered,),
        "full_pass_seconds": tuple(_ratio(time, covered) for time in times),
        "bytes_per_second": tuple(_ratio(moved, time) for time in times),
    }


def _of_the_disk(record: Record) -> Expected:
    read, reads = io_difference(record, "rbytes"), io_difference(record, "rios")
    written = io_difference(record, "wbytes") if has_cgroup(record) else None
    return {
        "device_read_bytes": (read,),
        "device_reads": (reads,),
        "device_bytes_per_read": (_ratio(read, reads),),
        "device_write_bytes": (written,),
        "amplification": (_ratio(read, (record.workload.end or {}).get("distinct_bytes")),),
        "io_stalled_seconds": (stalled_seconds(record, "io"),),
    }


def _of_the_workload(record: Record) -> Expected:
    """Return the figures that the workload reported by itself."""
    own = (record.workload.end or {}).get("response")
    if not isinstance(own, Mapping):
        return {}
    computed = ("bytes_per_second", "major_faults")
    return {name: (value,) for name, value in own.items() if name not in computed}


def _ratio(above: Any, below: Any) -> float | None:
    is_known = isinstance(above, int | float) and isinstance(below, int | float) and below
    return above / below if is_known else None


def _outcome(record: Record) -> Iterator[str]:
    """Check that a success is none of the failures that the evidence names."""
    if record.outcome != "ok":
        return
    if record.workload.checksum_ok is False:
        yield "the outcome is ok, and the checksum was wrong"
    kills = final_counter(record, "memory.events", "oom_kill") or record.exit.oom_kill
    if kills:
        yield "the outcome is ok, and the kernel killed the trial for memory"
    was_ended = record.exit.ended_by_itself is False  # a server, which serves until it is ended
    if record.exit.status and not was_ended:
        yield f"the outcome is ok, and the workload ended with status {record.exit.status}"


def _idle_server(record: Record) -> Iterator[str]:
    """Check that a server did something while its load reports figures."""
    used = cpu_seconds(record)
    if not record.load.metrics or used is None or not record.measured or not has_cgroup(record):
        return
    has_read = io_difference(record, "rios") or io_difference(record, "wios")
    throttled = difference(record, "cgroup", "cpu.stat", "throttled_usec")
    if used < _LEAST_CPU_SHARE * record.measured.seconds and not has_read and not throttled:
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


def clock_contradictions(record: Record, series: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each contradiction between clocks."""
    for sentence in (_workloads_clock(record), _outer_clock(record), _wall_clock(record, series)):
        if sentence:
            yield sentence
    yield from _phases(record)


def scaled_bound(seconds: float, least_seconds: float, share: float = SHARE) -> float:
    """Return how much two clocks may differ over this time: a share of it, within bounds.

    A fixed bound would let pass a pause as long as a short trial, a share alone a minute of a long
    one.
    """
    return min(LONGEST_SECONDS, max(least_seconds, share * seconds))


def _workloads_clock(record: Record) -> str | None:
    """Compare the workload's own seconds with the time between `go` and its end."""
    assert record.measured is not None
    own, seconds = (record.workload.end or {}).get("seconds"), record.measured.seconds
    if not isinstance(own, int | float):
        return None
    if own > seconds + READING_SECONDS:
        return f"the workload reports {own:.3f} s of a measured part of {seconds:.3f} s"
    most = scaled_bound(seconds, UNCOUNTED_SECONDS)
    if record.emulated:
        most = scaled_bound(seconds, UNCOUNTED_EMULATED_SECONDS, UNCOUNTED_EMULATED_SHARE)
    most += (record.cache.file_bytes or 0) / UNMAPPED_BYTES_PER_SECOND
    is_short = seconds - own > most
    if is_short and record.workload.program != _OWN_RUNTIME:
        return f"the workload reports {own:.3f} s, and the measured part took {seconds:.3f} s"
    return None


def _outer_clock(record: Record) -> str | None:
    """Compare the measured part with the same time on the outer host."""
    assert record.measured is not None
    outer = record.outer_host
    if not outer or not outer.before or not outer.after:
        return None
    begin, end = outer.before.get("unix_seconds"), outer.after.get("unix_seconds")
    if begin is None or end is None:
        return None
    passed, seconds = end - begin, record.measured.seconds
    most = scaled_bound(passed, OUTER_SECONDS) + DRIFT_SHARE * passed
    if abs(passed - seconds) <= most:
        return None
    return (
        f"{passed:.3f} s passed on the outer host during the {seconds:.3f} s of the measured part:"
        " the guest was paused, or its clock is wrong"
    )


def _wall_clock(record: Record, series: Sequence[Mapping[str, Any]]) -> str | None:
    """Compare the wall clock with CLOCK_MONOTONIC in all samples and at `go`."""
    assert record.measured is not None
    begin = record.measured.start_wall_seconds - record.measured.start_monotonic_seconds
    offsets = [begin, *(row["wall"] - row["t"] for row in series if "wall" in row)]
    moved = max(offsets) - min(offsets)
    if moved <= STEP_SECONDS:
        return None
    return f"the wall clock moved by {moved:.3f} s against CLOCK_MONOTONIC"


def _phases(record: Record) -> Iterator[str]:
    """Check that the measured part lies in the phase that measures."""
    assert record.measured is not None
    phase = next((phase for phase in record.phases if phase.name == "run"), None)
    if phase is None:
        return
    begin, end = phase.start_monotonic_seconds, phase.start_monotonic_seconds + phase.seconds
    within = record.measured
    if (
        within.start_monotonic_seconds < begin - READING_SECONDS
        or within.end_monotonic_seconds > end + READING_SECONDS
    ):
        yield f"the measured part of {within.seconds:.3f} s is not within the phase run"


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


def counter_contradictions(record: Record) -> Iterator[str]:
    """Yield a sentence for each contradiction between counters."""
    yield from _backwards(record)
    if has_cgroup(record) and record.cage.enforced_by != "volume":
        yield from _beyond_disk(record)


def _backwards(record: Record) -> Iterator[str]:
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
    for direction, key, verb in (("read", "rbytes", "read"), ("written", "wbytes", "wrote")):
        disk, own = disk_bytes(record, direction), io_difference(record, key)
        if disk is None or own is None or counter(record, "after", "device") is None:
            continue
        if own - disk > max(SPARE_BYTES, SPARE_SHARE * own):
            yield (
                f"the slice {verb} {format_bytes(own)}, more than the {format_bytes(disk)} that the"
                " disk counted"
            )


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


OPENING_SHARE = 0.1
"""Share of its files that a program may read before it is ready."""
PLANNED = "direct"
"""Part of an argument by which a plan wants reads past the page cache."""


def read_contradictions(record: Record) -> Iterator[str]:
    """Yield a sentence for each contradiction."""
    start, end, size = record.cache.start, record.cache.end, record.cache.file_bytes
    asked = requested_bytes(record.workload.program, record.workload.end or {})
    if not start or not end or size is None or asked is None:
        return
    if any(PLANNED in word for word in record.workload.argv or ()):
        return
    spare = tolerance_bytes(size) + (record.cache.charge_lag_bytes or 0)
    read, charged = _growth(start, end, "read_bytes"), _growth(start, end, "charged_bytes")
    if read is None or charged is None:
        return
    past = read - max(0, charged) - (_growth(start, end, "reclaimed_bytes") or 0)
    if past > spare and not reclaim_is_unknown(start, end):
        yield (
            f"{format_bytes(past)} were read past the page cache, which the plan does not ask for"
        )
    other = charged - max(0, (end["resident_bytes"] - start["resident_bytes"]))
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
    if cache.requested != "cold" or not cache.start or size is None or record.load.warm_up:
        return None
    reader = requested_bytes(record.workload.program, record.workload.end or {}) is not None
    spare = tolerance_bytes(size) if reader else max(tolerance_bytes(size), OPENING_SHARE * size)
    cached = (cache.go or cache.start)["resident_bytes"] - cache.start["resident_bytes"]
    before, started = io_at(record, "before", "rbytes"), cache.start.get("read_bytes")
    fetched = 0 if before is None or started is None else min(size, before - started)
    early = max(cached, fetched if reader or record.load else 0)
    if early <= spare:
        return None
    return f"the trial itself had read {format_bytes(early)} of the files before `go`"


def _growth(before: Any, after: Any, key: str) -> int | None:
    first, last = before.get(key), after.get(key)
    return None if first is None or last is None else int(last - first)


LEAST_GAP_SECONDS = 0.5
"""The sampler runs every 0.1 s. A longer gap than this, and than a tenth of the measured part, is a
pause. The longest of 827 series was 0.56 s, in 23 s; in less than 1 s it was 0.14 s."""
_DISK_KEYS = ("reads", "sectors_read", "writes", "sectors_written")


def sample_contradictions(record: Record, series: Rows) -> Iterator[str]:
    """Yield a sentence for each contradiction; none without a series."""
    if not series or record.measured is None:
        return
    times = [row["t"] for row in series]
    if any(later <= earlier for earlier, later in pairwise(times)):
        yield "the samples are not in the order of time"
        return
    if ended := _end_of_series(record, times):
        yield ended
    for name, (low, high), values in _counted(record, series):
        if sentence := _outside(record, name, low, high, values):
            yield sentence
            return


def longest_gap_allowed(seconds: float) -> float:
    """Return the longest gap between samples of a measured part that is no pause."""
    return scaled_bound(seconds, LEAST_GAP_SECONDS)


def longest_gap_seconds(record: Record, series: Rows) -> float:
    """Return the longest time between two samples around the measured part; 0 without any.

    The time after the last sample is none: then the sampler has ended.
    """
    if record.measured is None:
        return 0.0
    begin, end = record.measured.start_monotonic_seconds, record.measured.end_monotonic_seconds
    pairs = pairwise(series)
    return max(
        (
            later["t"] - earlier["t"]
            for earlier, later in pairs
            if begin < later["t"] and earlier["t"] < end
        ),
        default=0.0,
    )


def _end_of_series(record: Record, times: Sequence[float]) -> str | None:
    assert record.measured is not None
    missing = record.measured.end_monotonic_seconds - times[-1]
    late = times[0] - record.measured.start_monotonic_seconds
    most = longest_gap_allowed(record.measured.seconds)
    if missing > most or (missing > 0 and record.collectors.get("sampler")):
        return f"the samples end {missing:.3f} s before the measured part"
    if late > most:
        return f"the samples begin {late:.3f} s after the measured part"
    return None


_Values = list[tuple[float, float]]


def _counted(record: Record, series: Rows) -> Iterator[tuple[str, tuple[float, float], _Values]]:
    """Yield name, counts before and after, and (time, count) of the samples, for each counter."""
    if has_cgroup(record):
        for key in IO_STAT_KEY.values():
            low, high = io_at(record, "before", key), io_at(record, "after", key)
            if low is not None and high is not None:
                values = [(row["t"], row["io"].get(key, 0)) for row in series if "io" in row]
                yield f"{key} of io.stat", (low, high), values
    for key in _DISK_KEYS:
        ends = [counter(record, moment, "device", key) for moment in ("before", "after")]
        values = [(row["t"], row["disk"][key]) for row in series if key in row.get("disk", {})]
        if None not in ends:
            yield f"{key} of the disk", (ends[0], ends[1]), values


def _outside(record: Record, name: str, low: float, high: float, values: _Values) -> str | None:
    """Return a sentence about the first sample that the counters exclude."""
    assert record.measured is not None
    begin, end = record.measured.start_monotonic_seconds, record.measured.end_monotonic_seconds
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


def setting_contradictions(record: Record) -> Iterator[str]:
    """Yield a sentence for each queue setting that changed; none for an older record."""
    yield from _changed_setting(record.device)
    for other in record.disks.values():
        yield from _changed_setting(other.device)


def _changed_setting(device: DeviceEvidence) -> Iterator[str]:
    before, after = device.queue_settings or {}, device.queue_settings_after or {}
    for name in before.keys() & after.keys():
        if before[name] != after[name]:
            yield (
                f"{name} of {device.name} was {before[name]} before the measured part and"
                f" {after[name]} at its end"
            )


def judge_consistency(
    record: Record, series: Sequence[Mapping[str, Any]], damage: Sequence[str] = ()
) -> Verdict:
    """Return `consistent`, `contradictory` or `unknown`.

    `damage` has what check_traces() of pagecage/model/run_files.py found.
    """
    if not record.measured:
        return Verdict("unknown", "The measured part did not end, so there is nothing to compare.")
    found = [
        *damage,
        *counter_contradictions(record),
        *clock_contradictions(record, series),
        *sample_contradictions(record, series),
        *read_contradictions(record),
        *figure_contradictions(record),
        *setting_contradictions(record),
    ]
    if found:
        return Verdict("contradictory", "; ".join(found) + ".")
    return Verdict("consistent", "Counters, clocks, samples, settings and figures agree.")
