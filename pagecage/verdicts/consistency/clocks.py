"""Contradictions between clocks: the agent's, the workload's, the samples' and the outer host's.

The figures rest on CLOCK_MONOTONIC. It cannot be checked against itself, but the wall clock, the
workload's own clock and the clock of the machine around a guest tell the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pagecage.model.record import Record

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
