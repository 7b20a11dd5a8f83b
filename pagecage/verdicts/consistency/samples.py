"""Contradictions between the sampler's series and the counters of the record.

Both read the same kernel files. A sample within the measured part lies between the counters before
and after it. The first sample is taken before the counters are read for the first time, and the
last one after they are read for the last time. Others just before `go` or just after the end may
be on either side of a reading, while a read ahead that no program waits for reaches the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pagecage.verdicts.consistency.limit_watch import Rows
from pagecage.model.cage import IO_STAT_KEY
from pagecage.model.record import Record
from pagecage.verdicts.consistency.clocks import scaled_bound
from pagecage.verdicts.counters import counter, has_cgroup, io_at

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
