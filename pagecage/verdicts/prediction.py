"""How long a trial would have taken under other I/O caps, from the windows of one that was measured.

A window asks for so many bytes and I/Os, whatever the caps, and takes so long where none holds it: the time that it did
not wait for I/O, and the time that the disk itself was busy. Under other caps it takes the longer of that and of what
the caps need; I/O and computing overlap, because blk-throttle's tokens come in while a program computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.model.cage import IO_STAT_KEY, enforced_limit
from pagecage.model.record import Record
from pagecage.units import format_seconds
from pagecage.verdicts.binding import WAITING, bound
from pagecage.verdicts.caps import is_io_cap, rewritings
from pagecage.verdicts.windows import Window, whole_part


@dataclass(frozen=True)
class Prediction:
    """The time of the whole pass under other caps; None where the trial does not tell, and `because` says why.

    `held_share` is the share of that time in which a cap would hold it; the rest is the program's own, which a trial
    under a tight cap tells badly.
    """

    seconds: float | None
    because: str
    held_share: float | None = None


def predict(record: Record, series: Sequence[Mapping[str, Any]], caps: Mapping[str, float]) -> Prediction:
    """The time under these I/O caps (systemd property to bytes or I/Os a second; absent: none) from one trial.

    What memory costs is taken as it was: refaults under another MemoryMax cannot be told from one trial.
    """
    cut = whole_part(record, series)
    if not cut:
        return Prediction(None, "the measured part did not end")
    if _is_played(record):
        return Prediction(None, "burst credits or a shared limit changed the cap while it ran")
    filled = _filled(record, cut)
    times = [(_free_seconds(record, window), _needed(window, caps) / filled) for window in cut]
    covered = record.response.get("covered_fraction") or 1.0
    free, held = sum(free for free, _ in times) / covered, sum(needed for free, needed in times if needed > free)
    seconds = sum(map(max, times)) / covered
    because = f"without caps it would need {format_seconds(free)}, and it fills {filled:.0%} of a cap"
    return Prediction(seconds, because, held / covered / seconds)


def _is_played(record: Record) -> bool:
    """Whether credits could raise a cap, or something did rewrite one while it ran."""
    buckets = (record.cage.get("credits") or {}).get("buckets") or ()
    return any(one["rate"] > one["base"] for one in buckets) or any(rewritings(record, name) for name in IO_STAT_KEY)


def _needed(window: Window, caps: Mapping[str, float]) -> float:
    """The least time in which caps let the window's I/O through."""
    capped = {name: enforced_limit(name, cap) for name, cap in caps.items() if is_io_cap(name)}
    return max((window.moved[IO_STAT_KEY[name]] / cap for name, cap in capped.items()), default=0.0)


def _is_held(record: Record, window: Window) -> bool:
    return bound(window, record.cage.get("requested") or {}).property is not None


def _filled(record: Record, cut: Sequence[Window]) -> float:
    """How much of a cap the program used while one held it; 1 where none did."""
    held = [window for window in cut if _is_held(record, window)]
    seconds = sum(window.seconds for window in held)
    return min(1.0, sum(_needed(window, window.caps) for window in held) / seconds) if seconds else 1.0


def _free_seconds(record: Record, window: Window) -> float:
    """What the window would have taken without caps: all of it where none held it."""
    if not _is_held(record, window):
        return window.seconds
    busy, waited = window.disk_busy or 0.0, window.waited_io or 0.0
    if waited < WAITING * window.seconds:  # it awaits its reads asynchronously, which pressure does not see
        return min(window.seconds, (window.cpu or 0.0) + busy)
    return min(window.seconds, window.seconds - waited + min(busy, waited))


GAIN = 0.10
"""A limit pays as long as the best time above it is shorter by more than this share."""


@dataclass(frozen=True)
class Knee:
    """`value` is the least limit from which more does not pay; None where there is none. `because` says why."""

    value: float | None
    because: str


def find_knee(points: Sequence[tuple[float, float]]) -> Knee:
    """The knee of (limit, seconds) points. A larger limit that measured slower is noise, and does not count as gain."""
    ordered = sorted(points)
    if len(ordered) < 2:
        return Knee(None, "fewer than two values have a time")
    pays = [
        seconds * (1 - GAIN) > min(time for _, time in ordered[place:]) for place, (_, seconds) in enumerate(ordered)
    ]
    place = pays.index(False)
    limit = f"{ordered[place][0]:,.0f}"
    if place == len(ordered) - 1:
        return Knee(None, f"the time still falls at {limit}, the largest value")
    if place == 0:
        return Knee(None, f"the time is the same from {limit} on, the least value: this limit does not bind")
    return Knee(ordered[place][0], f"above {limit} the time falls by no more than {GAIN:.0%}")
