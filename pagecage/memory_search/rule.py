"""The search for the least MemoryMax: the levels to measure next, and the need that they show.

The rule sees measured figures alone, so that it can be repeated from the records of a run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from pagecage.units import LEAST_PAGE_BYTES, page_ceil_bytes, page_floor_bytes

Criterion = Literal["time", "refaults"]
State = Literal["enough", "short", "unknown"]
CRITERIA: tuple[Criterion, ...] = ("time", "refaults")
LEAST_REFAULTS = 64
"""Refaults that never count as growth, in pages: one batch that a CPU charges in advance.

Source: MEMCG_CHARGE_BATCH (include/linux/memcontrol.h).
"""
REFAULT_SHARE = 0.01
"""Growth of refaults that does not count, as a share of the pages read without a lower limit."""
MOST_EXTRA_TRIALS = 2
"""Trials added to a level whose trials do not count, for example because the host was not quiet."""
STEP = 2
"""Factor between levels until one is too small; then the gap is bisected."""


@dataclass(frozen=True)
class SearchRule:
    """The options of a search. `slowdown` and `precision` are shares: 0.05 is 5 %."""

    floor_bytes: int
    slowdown: float
    precision: float
    repeats: int
    reference_repeats: int


@dataclass(frozen=True)
class MemoryTrial:
    """The figures of one trial. `is_short`: the OOM killer, an error or the time limit ended it.

    `is_cut`: the time limit ended it on a host that was not quiet, so that its refaults are a lower
    bound, and its time means nothing. `seconds` is None if the time does not count, `refaults`
    (pages) if the limits or the cold cache are unproven.
    """

    seconds: float | None
    refaults: float | None
    is_short: bool = False
    is_killed: bool = False
    is_cut: bool = False
    read_pages: float = 0.0
    peak_bytes: float | None = None
    page_bytes: int = LEAST_PAGE_BYTES

    def counts(self, *, is_timed: bool) -> bool:
        """Return whether the trial answers its criteria: refaults, and if `is_timed` the time."""
        has_time = self.seconds is not None or not is_timed
        return self.is_short or (has_time and self.refaults is not None)


@dataclass(frozen=True)
class MemoryLevel:
    """The trials under one MemoryMax; `limit_bytes` is None for a reference without one."""

    limit_bytes: int | None
    trials: tuple[MemoryTrial, ...]

    @property
    def is_short(self) -> bool:
        """True if any trial could not finish with so little memory."""
        return any(trial.is_short for trial in self.trials)

    @property
    def is_killed(self) -> bool:
        """True if the OOM killer ended any trial."""
        return any(trial.is_killed for trial in self.trials)

    @property
    def times(self) -> list[float]:
        """The times that count."""
        return [trial.seconds for trial in self.trials if trial.seconds is not None]

    @property
    def seconds(self) -> float | None:
        """The median time; None without one that counts."""
        return median(self.times) if self.times else None

    @property
    def refaults(self) -> float | None:
        """The median of the refaults, in pages; None without any that count."""
        counted = [trial.refaults for trial in self.trials if trial.refaults is not None]
        return median(counted) if counted else None


@dataclass(frozen=True)
class LevelRequest:
    """Trials to run next; `limit_bytes` is None for the reference."""

    limit_bytes: int | None
    trials: int


@dataclass(frozen=True)
class MeasuredLevels:
    """The levels measured so far: the reference, and those below it."""

    reference: MemoryLevel
    levels: tuple[MemoryLevel, ...] = ()

    @property
    def is_usable(self) -> bool:
        """True if the reference finished and has refaults and a peak; it may lack a time."""
        level = self.reference
        return None not in (level.refaults, self.used_bytes) and not level.is_short

    @property
    def page_bytes(self) -> int:
        """The size of the pages of the host's kernel."""
        return max((trial.page_bytes for trial in self.reference.trials), default=LEAST_PAGE_BYTES)

    @property
    def used_bytes(self) -> int | None:
        """The most memory that the program used at the reference, in whole pages.

        A limit above it changes nothing.
        """
        peaks = [trial.peak_bytes for trial in self.reference.trials]
        known = [peak for peak in peaks if peak is not None]
        if not known:
            return None
        used = page_ceil_bytes(math.ceil(max(known)), self.page_bytes)
        limit = self.reference.limit_bytes
        return used if limit is None else min(used, page_floor_bytes(limit, self.page_bytes))

    @property
    def noise(self) -> float:
        """The spread of the reference's times, as a share of their median."""
        times = self.reference.times
        return (max(times) - min(times)) / median(times) if times and median(times) else 0.0

    @property
    def refault_bound(self) -> float:
        """The most refaults of a level that has enough memory, in pages."""
        trials = self.reference.trials
        counted = [trial.refaults for trial in trials if trial.refaults is not None]
        read = median(trial.read_pages for trial in trials)
        return max(counted, default=0.0) + max(LEAST_REFAULTS, REFAULT_SHARE * read)

    def slowdown(self, level: MemoryLevel) -> float | None:
        """Return how much longer a level takes than the reference, as a share."""
        seconds, whole = level.seconds, self.reference.seconds
        return None if seconds is None or not whole else seconds / whole - 1

    def state(self, level: MemoryLevel, criterion: Criterion, rule: SearchRule) -> State:
        """Return whether a level has enough memory by a criterion.

        A loss of time within the noise of the reference is none.
        """
        if level.is_short:
            return "short"
        if criterion == "time":
            found, bound = self.slowdown(level), max(rule.slowdown, self.noise)
        else:
            found, bound = level.refaults, self.refault_bound
        if found is None or (found <= bound and any(trial.is_cut for trial in level.trials)):
            return "unknown"
        return "enough" if found <= bound else "short"


def grid(rule: SearchRule, used_bytes: int, page_bytes: int = LEAST_PAGE_BYTES) -> list[int]:
    """Return the levels that may be measured, from the memory in use down to the floor.

    Neighbours differ by the precision, and by a page at least.
    """
    steps = math.log(max(1.0, used_bytes / rule.floor_bytes)) / math.log1p(rule.precision)
    values = (
        page_floor_bytes(round(used_bytes / (1 + rule.precision) ** number), page_bytes)
        for number in range(math.floor(steps + 1e-9) + 1)
    )
    return list(dict.fromkeys(value for value in values if value >= page_bytes)) or [used_bytes]


def next_round(rule: SearchRule, measured: MeasuredLevels) -> tuple[LevelRequest, ...]:
    """Return the trials to run next; none if the search is over.

    Trials that do not count are repeated first. Then every criterion asks for one level.
    """
    if repeated := _repeats(rule, measured):
        return repeated
    if not measured.is_usable or measured.used_bytes is None:
        return ()
    values = grid(rule, measured.used_bytes, measured.page_bytes)
    wanted = {_next_level(rule, measured, criterion, values) for criterion in CRITERIA}
    return tuple(
        LevelRequest(value, rule.repeats) for value in sorted(wanted - {None}, key=_descending)
    )


def _descending(value: int | None) -> int:
    return -(value or 0)


def _repeats(rule: SearchRule, measured: MeasuredLevels) -> tuple[LevelRequest, ...]:
    """Return the trials that replace those that do not count.

    If no time of the reference counts, the times of other levels have no use.
    """
    missing = _missing(measured.reference, rule.reference_repeats, is_timed=True)
    if missing:
        return (LevelRequest(None, missing),)
    is_timed = measured.reference.seconds is not None
    counts = ((_missing(one, rule.repeats, is_timed=is_timed), one) for one in measured.levels)
    return tuple(LevelRequest(one.limit_bytes, count) for count, one in counts if count)


def _missing(level: MemoryLevel, planned: int, *, is_timed: bool) -> int:
    """Return the number of trials to add to a level."""
    if level.is_short:
        return 0
    missing = planned - sum(trial.counts(is_timed=is_timed) for trial in level.trials)
    return max(0, min(missing, planned + MOST_EXTRA_TRIALS - len(level.trials)))


def _next_level(
    rule: SearchRule, measured: MeasuredLevels, criterion: Criterion, values: Sequence[int]
) -> int | None:
    """Return the next level of one criterion.

    None if its interval is narrow enough, or ends at a level whose trials do not count.
    """
    states = _states(rule, measured, criterion, values)
    enough, short = _bracket(states)
    if short is not None and states[short] == "unknown":
        return None
    if short is None:
        if enough == len(values) - 1:
            return None
        below = (n for n, value in enumerate(values) if value * STEP <= values[enough])
        return values[next(below, len(values) - 1)]
    return values[(enough + short) // 2] if short - enough > 1 else None


def _states(
    rule: SearchRule, measured: MeasuredLevels, criterion: Criterion, values: Sequence[int]
) -> dict[int, State]:
    """Return the state of each measured level by its place in the grid."""
    places = {value: place for place, value in enumerate(values)}
    return {
        places[level.limit_bytes]: measured.state(level, criterion, rule)
        for level in measured.levels
        if level.limit_bytes in places
    }


def _bracket(states: Mapping[int, State]) -> tuple[int, int | None]:
    """Return the least level with enough memory, and the next one that lacks it.

    All levels above the first have enough as well. Place 0 is the memory in use, which is enough.
    """
    enough = 0
    for place in sorted(states):
        if states[place] != "enough":
            return enough, place
        enough = place
    return enough, None


def most_levels(rule: SearchRule, used_bytes: int) -> int:
    """Return the most levels that a search measures below the reference."""
    steps = len(grid(rule, used_bytes))
    halvings = math.ceil(math.log(max(2, used_bytes / rule.floor_bytes), STEP))
    gap = min(steps, math.ceil(math.log(STEP) / math.log1p(rule.precision)) + 1)
    return min(steps, halvings + len(CRITERIA) * math.ceil(math.log2(max(2, gap))))
