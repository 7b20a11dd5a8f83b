"""The time that a trial would take under other I/O caps, predicted from one measured trial.

Each window needs a number of bytes and I/Os, whatever the caps are. Without caps it would take its
free time: the time in which it did not wait for I/O, plus the time in which the disk was busy.
Under other caps it takes the free time or the time that the caps need, whichever is longer. The
two overlap, because blk-throttle grants tokens while a program computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.model.cage import IO_STAT_KEY, enforced_limit
from pagecage.model.record import Record
from pagecage.units import format_seconds
from pagecage.verdicts.caps import cap_change_count, is_io_cap
from pagecage.verdicts.window_limit import WAITING, Window, binding_limit
from pagecage.verdicts.windows import windows_and_remainder


@dataclass(frozen=True)
class Prediction:
    """The predicted time of the whole pass under other caps; None if there is no prediction.

    `reason` explains the value. `held_share` is the share of that time in which a cap would hold
    the program back. The rest is the program's own time, which is uncertain under a tight cap.
    """

    seconds: float | None
    reason: str
    held_share: float | None = None


def predict(
    record: Record, series: Sequence[Mapping[str, Any]], caps: Mapping[str, float]
) -> Prediction:
    """Predict the time under these I/O caps (systemd property to bytes or I/Os per second).

    A property that is absent has no cap. The cost of memory stays as it was measured, because one
    trial does not show the refaults under another MemoryMax.
    """
    windows = windows_and_remainder(record, series)
    if not windows:
        return Prediction(None, "the measured part did not end")
    if _caps_varied(record):
        return Prediction(
            None, "burst credits or a shared limit changed the cap while the trial ran"
        )
    used = _used_share(record, windows)
    times = [
        (_free_seconds(record, window), _needed_seconds(window, caps) / used) for window in windows
    ]
    covered = record.response.get("covered_fraction") or 1.0
    free, held = (
        sum(free for free, _ in times) / covered,
        sum(needed for free, needed in times if needed > free),
    )
    seconds = sum(map(max, times)) / covered
    reason = (
        f"without caps the program would need {format_seconds(free)}, and it uses {used:.0%} of"
        " a cap"
    )
    return Prediction(seconds, reason, held / covered / seconds)


def _caps_varied(record: Record) -> bool:
    """Return whether credits could raise a cap, or a cap changed while the trial ran."""
    buckets = (record.cage.credits or {}).get("buckets") or ()
    return any(bucket["rate"] > bucket["base"] for bucket in buckets) or any(
        cap_change_count(record, name) for name in IO_STAT_KEY
    )


def _needed_seconds(window: Window, caps: Mapping[str, float]) -> float:
    """Return the least time in which caps let the window's I/O through."""
    kernel_caps = {name: enforced_limit(name, cap) for name, cap in caps.items() if is_io_cap(name)}
    return max(
        (window.moved[IO_STAT_KEY[name]] / cap for name, cap in kernel_caps.items()), default=0.0
    )


def _is_capped(record: Record, window: Window) -> bool:
    return binding_limit(window, record.cage.requested or {}).property is not None


def _used_share(record: Record, windows: Sequence[Window]) -> float:
    """Return the share of a cap that the program used while one held it back; 1 if none did."""
    capped = [window for window in windows if _is_capped(record, window)]
    seconds = sum(window.seconds for window in capped)
    return (
        min(1.0, sum(_needed_seconds(window, window.caps) for window in capped) / seconds)
        if seconds
        else 1.0
    )


def _free_seconds(record: Record, window: Window) -> float:
    """Return the window's time without caps: its whole length if no cap held it back."""
    if not _is_capped(record, window):
        return window.seconds
    busy, waited = window.disk_busy or 0.0, window.waited_io or 0.0
    if waited < WAITING * window.seconds:
        # The program awaits its reads asynchronously, and pressure does not count that.
        return min(window.seconds, (window.cpu or 0.0) + busy)
    return min(window.seconds, window.seconds - waited + min(busy, waited))


GAIN = 0.10
"""A higher limit pays if the best time above it is shorter by more than this share."""


@dataclass(frozen=True)
class Knee:
    """The least limit above which a higher one does not pay.

    `value` is None if there is no such limit. `reason` explains the value.
    """

    value: float | None
    reason: str


def find_knee(points: Sequence[tuple[float, float]]) -> Knee:
    """Return the knee of (limit, seconds) points.

    Noise can make a higher limit measure slower; that does not count as a gain of the lower one.
    """
    ordered = sorted(points)
    if len(ordered) < 2:
        return Knee(None, "fewer than two values have a time")
    times = [seconds for _, seconds in ordered]
    pays = [seconds * (1 - GAIN) > min(times[index:]) for index, seconds in enumerate(times)]
    index = pays.index(False)
    limit = f"{ordered[index][0]:,.0f}"
    if index == len(ordered) - 1:
        return Knee(None, f"the time still falls at {limit}, the largest value")
    if index == 0:
        return Knee(
            None,
            f"the time is the same from {limit} upwards, the least value: this limit does not bind",
        )
    return Knee(ordered[index][0], f"above {limit} the time falls by {GAIN:.0%} at most")
