"""The memory that a program needs: the rule, its figures and its sentences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from pagecage.units import LEAST_PAGE_BYTES, format_bytes, page_ceil_bytes, page_floor_bytes

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
        return any(trial.is_short for trial in self.trials)

    @property
    def is_killed(self) -> bool:
        return any(trial.is_killed for trial in self.trials)

    @property
    def times(self) -> list[float]:
        return [trial.seconds for trial in self.trials if trial.seconds is not None]

    @property
    def seconds(self) -> float | None:
        return median(self.times) if self.times else None

    @property
    def refaults(self) -> float | None:
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
        return max((trial.page_bytes for trial in self.reference.trials), default=LEAST_PAGE_BYTES)

    @property
    def used_bytes(self) -> int | None:
        """The most memory used at the reference, in whole pages. A limit above changes nothing."""
        peaks = [trial.peak_bytes for trial in self.reference.trials]
        known = [peak for peak in peaks if peak is not None]
        if not known:
            return None
        used = page_ceil_bytes(math.ceil(max(known)), self.page_bytes)
        limit = self.reference.limit_bytes
        return used if limit is None else min(used, page_floor_bytes(limit, self.page_bytes))

    @property
    def noise(self) -> float:
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
        seconds, whole = level.seconds, self.reference.seconds
        return None if seconds is None or not whole else seconds / whole - 1

    def state(self, level: MemoryLevel, criterion: Criterion, rule: SearchRule) -> State:
        """Return whether a level has enough memory; a loss within the reference's noise is none."""
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
    """Return the levels that may be measured, from the memory in use down to the floor."""
    steps = math.log(max(1.0, used_bytes / rule.floor_bytes)) / math.log1p(rule.precision)
    values = (
        page_floor_bytes(round(used_bytes / (1 + rule.precision) ** number), page_bytes)
        for number in range(math.floor(steps + 1e-9) + 1)
    )
    return list(dict.fromkeys(value for value in values if value >= page_bytes)) or [used_bytes]


def next_round(rule: SearchRule, measured: MeasuredLevels) -> tuple[LevelRequest, ...]:
    """Return the trials to run next; none if the search is over. Repeats come first."""
    if missing := _missing(measured.reference, rule.reference_repeats, is_timed=True):
        return (LevelRequest(None, missing),)
    is_timed = measured.reference.seconds is not None
    counts = [(_missing(one, rule.repeats, is_timed=is_timed), one) for one in measured.levels]
    if any(count for count, _ in counts):
        return tuple(LevelRequest(one.limit_bytes, count) for count, one in counts if count)
    if not measured.is_usable or measured.used_bytes is None:
        return ()
    values = grid(rule, measured.used_bytes, measured.page_bytes)
    wanted = {_next_level(rule, measured, criterion, values) for criterion in CRITERIA}
    return tuple(
        LevelRequest(value, rule.repeats) for value in sorted(filter(None, wanted), reverse=True)
    )


def _missing(level: MemoryLevel, planned: int, *, is_timed: bool) -> int:
    if level.is_short:
        return 0
    missing = planned - sum(trial.counts(is_timed=is_timed) for trial in level.trials)
    return max(0, min(missing, planned + MOST_EXTRA_TRIALS - len(level.trials)))


def _next_level(
    rule: SearchRule, measured: MeasuredLevels, criterion: Criterion, values: Sequence[int]
) -> int | None:
    places = {value: place for place, value in enumerate(values)}
    states = {
        places[level.limit_bytes]: measured.state(level, criterion, rule)
        for level in measured.levels
        if level.limit_bytes in places
    }
    # The first level that lacks memory, and the one above it. Place 0, all that is used, is enough.
    short = min((place for place, state in states.items() if state != "enough"), default=None)
    enough = max((place for place in states if short is None or place < short), default=0)
    if short is not None:
        is_over = states[short] == "unknown" or short - enough <= 1
        return None if is_over else values[(enough + short) // 2]
    if enough == len(values) - 1:
        return None
    below = (n for n, value in enumerate(values) if value * STEP <= values[enough])
    return values[next(below, len(values) - 1)]


def most_levels(rule: SearchRule, used_bytes: int) -> int:
    steps = len(grid(rule, used_bytes))
    halvings = math.ceil(math.log(max(2, used_bytes / rule.floor_bytes), STEP))
    gap = min(steps, math.ceil(math.log(STEP) / math.log1p(rule.precision)) + 1)
    return min(steps, halvings + len(CRITERIA) * math.ceil(math.log2(max(2, gap))))


@dataclass(frozen=True)
class MemoryNeed:
    """The least memory by one criterion: enough at `needed_bytes`, too little at `short_bytes`.

    `short_bytes` is None if even the floor is enough. The true need is above `low_bytes` and at
    most `high_bytes`; beyond the bracket, these are the levels that differ by more than the noise.
    `is_certain` is whether they are as near as the precision. `is_unknown_below` is whether no
    trial at `short_bytes` counts. `again_bytes` are levels below the bracket that had enough: the
    program does not slow down steadily.
    """

    criterion: Criterion
    needed_bytes: int
    short_bytes: int | None
    low_bytes: int
    high_bytes: int
    slowdown: float
    is_certain: bool
    is_killed_below: bool
    is_unknown_below: bool = False
    again_bytes: tuple[int, ...] = ()


@dataclass(frozen=True)
class MemoryAnswer:
    """The answer of a search: the memory in use without a lower limit, and the needs.

    There is no need by time if no time with all of the memory counts. `noise` is the spread of the
    times at the reference, and `refaults` their pages that were read again. `is_complete` is
    whether every interval is as narrow as the precision.
    """

    used_bytes: int
    noise: float
    refaults: float
    is_complete: bool
    needs: tuple[MemoryNeed, ...]
    page_bytes: int = LEAST_PAGE_BYTES

    def need(self, criterion: Criterion) -> MemoryNeed | None:
        return next((need for need in self.needs if need.criterion == criterion), None)


def answer_of(rule: SearchRule, measured: MeasuredLevels) -> MemoryAnswer | None:
    """Return the answer; None if the reference could not be measured."""
    used = measured.used_bytes
    if not measured.is_usable or used is None:
        return None
    values = grid(rule, used, measured.page_bytes)
    known = (level for level in measured.levels if level.limit_bytes in set(values))
    levels = sorted(known, key=lambda level: -(level.limit_bytes or 0))
    criteria = CRITERIA if measured.reference.seconds is not None else ("refaults",)
    needs = tuple(_need(rule, measured, levels, values, criterion) for criterion in criteria)
    is_complete = not any(
        (need.short_bytes or 0) < value < need.needed_bytes for need in needs for value in values
    )
    refaults = measured.reference.refaults or 0.0
    return MemoryAnswer(used, measured.noise, refaults, is_complete, needs, measured.page_bytes)


def _need(
    rule: SearchRule,
    measured: MeasuredLevels,
    levels: Sequence[MemoryLevel],
    values: Sequence[int],
    criterion: Criterion,
) -> MemoryNeed:
    sizes = [level.limit_bytes or 0 for level in levels]
    states = [measured.state(level, criterion, rule) for level in levels]
    losses = [measured.slowdown(level) or 0.0 for level in levels]
    count = next((n for n, state in enumerate(states) if state != "enough"), len(states))
    below = levels[count:]
    certain: list[bool | None] = []  # whether a level has enough; None within the noise
    for level, state, loss in zip(levels, states, losses, strict=True):
        is_timed = criterion == "time" and not level.is_short
        is_noise = is_timed and abs(loss - rule.slowdown) <= measured.noise
        certain.append(None if is_noise or state == "unknown" else state == "enough")
    low = sizes[certain.index(False)] if False in certain else 0
    certain_count = len([*itertools.takewhile(bool, certain)])
    high = sizes[certain_count - 1] if certain_count else values[0]
    return MemoryNeed(
        criterion=criterion,
        needed_bytes=sizes[count - 1] if count else values[0],
        short_bytes=below[0].limit_bytes if below else None,
        low_bytes=low,
        high_bytes=high,
        slowdown=losses[count - 1] if count else 0.0,
        is_certain=not any(low < value < high for value in values),
        is_killed_below=bool(below) and below[0].is_killed,
        is_unknown_below=bool(below) and states[count] == "unknown",
        again_bytes=tuple(sizes[n] for n in range(count, len(sizes)) if states[n] == "enough"),
    )


_NEGLIGIBLE = 0.0005


def sentences(answer: MemoryAnswer, rule: SearchRule, *, has_swap: bool) -> Iterator[str]:
    """Yield the answer, the working set, and what cannot be told."""
    time, refaults = answer.need("time"), answer.need("refaults")
    if time is None:
        yield (
            "The need by time cannot be told: no time with all of the memory counts, because the"
            " host was not quiet."
        )
    else:
        yield _needed(answer, time, has_swap=has_swap)
    if refaults is not None:
        yield _working_set(answer, refaults)
    if time is not None and answer.noise > rule.slowdown:
        yield (
            f"The times with all of the memory differ by {_percent(answer.noise)}, so that a loss"
            f" of {_percent(rule.slowdown)} cannot be seen: only a larger one counted. More"
            " --repeats or a quieter host help."
        )
    elif time is not None and not time.is_certain:
        low, high = format_bytes(time.low_bytes or rule.floor_bytes), format_bytes(time.high_bytes)
        yield (
            f"By the noise of {_percent(answer.noise)}, the need by time may be anything between"
            f" {low} and {high}."
        )
    for need in answer.needs:
        if need.is_unknown_below and need.short_bytes is not None:
            size = format_bytes(need.short_bytes)
            yield f"By {need.criterion} the need may be smaller: no trial with {size} counts."
        if need.again_bytes:
            sizes = ", ".join(format_bytes(size) for size in sorted(need.again_bytes))
            yield (
                f"By {need.criterion}, less memory did not always cost more: {sizes} had enough as"
                " well."
            )
    if not answer.is_complete:
        yield "The search is not complete: its intervals are wider than the precision."


def no_answer(killed: bool) -> str:
    if killed:
        return (
            "The OOM killer ended the program with all of the cage's memory: it needs more than"
            " that."
        )
    return (
        "Nothing can be said: no trial with all of the memory counts. Every smaller MemoryMax is"
        " compared with that."
    )


def _needed(answer: MemoryAnswer, need: MemoryNeed, *, has_swap: bool) -> str:
    other, percent = answer.used_bytes - need.needed_bytes, _percent(max(0.0, need.slowdown))
    if other <= 0:
        return (
            f"All of the {format_bytes(answer.used_bytes)} that the program uses are needed:"
            f" {_below(need)}."
        )
    kind, brings = "memory" if has_swap else "page cache", f"brings {percent}"
    if need.slowdown <= _NEGLIGIBLE:
        brings = "brings no time"
    elif need.slowdown <= answer.noise:
        brings += f", which is within the noise of {_percent(answer.noise)}"
    return (
        f"{format_bytes(need.needed_bytes)} are needed, the other {format_bytes(other)} are"
        f" {kind} that {brings}."
    )


def _below(need: MemoryNeed) -> str:
    if need.short_bytes is None:
        return "no smaller limit was tried"
    with_less = f"with {format_bytes(need.short_bytes)}"
    if need.is_killed_below:
        return f"{with_less} the OOM killer ends it"
    if need.is_unknown_below:
        return f"{with_less} no trial counts"
    verb = "loses more time" if need.criterion == "time" else "reads pages again"
    return f"{with_less} it {verb}"


def _working_set(answer: MemoryAnswer, need: MemoryNeed) -> str:
    pages = f"{answer.refaults:,.0f} pages ({format_bytes(answer.refaults * answer.page_bytes)})"
    before = f"With all of the memory it reads {pages} again. " if answer.refaults else ""
    size = format_bytes(need.needed_bytes)
    if need.short_bytes is None and need.needed_bytes < answer.used_bytes:
        return f"{before}Working set: at most {size}, the least that was tried."
    more = "more refaults than that" if answer.refaults else "refaults"
    return f"{before}Working set (no {more}): {size}; {_below(need)}."


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"
