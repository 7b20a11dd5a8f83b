"""The time that a trial would take under other I/O caps, predicted from one measured trial.

Each window needs a number of bytes and I/Os, whatever the caps are. Without caps it would take its
free time: the time in which it did not wait for I/O, plus the time in which the disk was busy.
Under other caps it takes the free time or the time that the caps need, whichever is longer. The
two overlap, because blk-throttle grants tokens while a program computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagecage.model.record import Record
from pagecage.units import format_seconds
from pagecage.verdicts.counters import Rows
from pagecage.verdicts.io_demand import io_demand, seconds_under_io_max


@dataclass(frozen=True)
class Prediction:
    """The predicted time of the whole pass; None if there is none, for `reason`.

    A cap would hold the program for `held_share` of it. The rest is uncertain under a tight cap.
    """

    seconds: float | None
    reason: str
    held_share: float | None = None


def predict(record: Record, series: Rows, caps: Mapping[str, float]) -> Prediction:
    """Predict the time under these I/O caps, by systemd property; an absent one has no cap.

    The cost of memory stays as measured: refaults under another MemoryMax are not known.
    """
    demand = io_demand(record, series)
    if isinstance(demand, str):
        return Prediction(None, demand)
    times = [
        (window.free_seconds, seconds_under_io_max(window.moved, caps) / demand.used_share)
        for window in demand.windows
    ]
    held = sum(needed for free, needed in times if needed > free)
    seconds = sum(map(max, times)) / demand.covered_share
    reason = (
        f"without caps the program would need {format_seconds(demand.free_seconds)}, and it uses"
        f" {demand.used_share:.0%} of a cap"
    )
    return Prediction(seconds, reason, held / demand.covered_share / seconds)


GAIN = 0.10
"""A higher limit pays if the best time above it is shorter by more than this share."""


@dataclass(frozen=True)
class Knee:
    """The least limit above which a higher one does not pay; None without one, for `reason`."""

    value: float | None
    reason: str


def find_knee(points: Sequence[tuple[float, float]], more_is_better: str | None = None) -> Knee:
    """Return the knee of (limit, time), or of a metric of which more is better.

    Noise that makes a higher limit measure worse is no gain of the lower one.
    """
    ordered = sorted(points)
    name, figure, verb, gain = "the time", "a time", "falls", GAIN
    if more_is_better:
        name, figure, verb = f"the metric {more_is_better}", "a figure", "rises"
        gain = 1 / (1 - GAIN) - 1
        ordered = [(limit, 1 / value if value else math.inf) for limit, value in ordered]
    if len(ordered) < 2:
        return Knee(None, f"fewer than two values have {figure}")
    times = [seconds for _, seconds in ordered]
    pays = [seconds * (1 - GAIN) > min(times[index:]) for index, seconds in enumerate(times)]
    index = pays.index(False)
    limit = f"{ordered[index][0]:,.0f}"
    if index == len(ordered) - 1:
        return Knee(None, f"{name} still {verb} at {limit}, the largest value")
    if index == 0:
        return Knee(
            None,
            f"{name} is the same from {limit} upwards, the least value: this limit does not bind",
        )
    return Knee(ordered[index][0], f"above {limit} {name} {verb} by {gain:.0%} at most")
