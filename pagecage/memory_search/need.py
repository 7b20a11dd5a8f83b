"""The least memory that a search found, by each criterion, with the bounds of its certainty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pagecage.memory_search.rule import (
    CRITERIA,
    Criterion,
    MeasuredLevels,
    MemoryLevel,
    SearchRule,
    grid,
)
from pagecage.units import LEAST_PAGE_BYTES


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
        """Return the need by one criterion; None if it cannot be told."""
        return next((need for need in self.needs if need.criterion == criterion), None)


def answer_of(rule: SearchRule, measured: MeasuredLevels) -> MemoryAnswer | None:
    """Return the answer; None if the reference could not be measured."""
    used = measured.used_bytes
    if not measured.is_usable or used is None:
        return None
    values = grid(rule, used, measured.page_bytes)
    known = set(values)
    levels = sorted(
        (level for level in measured.levels if level.limit_bytes in known),
        key=lambda level: -(level.limit_bytes or 0),
    )
    criteria = CRITERIA if measured.reference.seconds is not None else ("refaults",)
    needs = tuple(_need(rule, measured, levels, values, criterion) for criterion in criteria)
    is_complete = all(_is_narrow(values, need) for need in needs)
    refaults = measured.reference.refaults or 0.0
    return MemoryAnswer(used, measured.noise, refaults, is_complete, needs, measured.page_bytes)


def _is_narrow(values: Sequence[int], need: MemoryNeed) -> bool:
    """Return whether nothing lies between the two levels of the bracket."""
    if need.short_bytes is None:
        return need.needed_bytes == values[-1]
    return not any(need.short_bytes < value < need.needed_bytes for value in values)


def _need(
    rule: SearchRule,
    measured: MeasuredLevels,
    levels: Sequence[MemoryLevel],
    values: Sequence[int],
    criterion: Criterion,
) -> MemoryNeed:
    states = [measured.state(level, criterion, rule) for level in levels]
    count = next((n for n, state in enumerate(states) if state != "enough"), len(states))
    enough, below = levels[:count], levels[count:]
    needed = enough[-1].limit_bytes if enough else values[0]
    assert needed is not None
    low, high = _certain_bounds(rule, measured, levels, values, criterion)
    adjacent = [value for value in values if low < value < high]
    return MemoryNeed(
        criterion=criterion,
        needed_bytes=needed,
        short_bytes=below[0].limit_bytes if below else None,
        low_bytes=low,
        high_bytes=high,
        slowdown=(measured.slowdown(enough[-1]) or 0.0) if enough else 0.0,
        is_certain=not adjacent,
        is_killed_below=bool(below) and below[0].is_killed,
        is_unknown_below=count < len(states) and states[count] == "unknown",
        again_bytes=tuple(_enough_again(levels[count:], states[count:])),
    )


def _enough_again(levels: Sequence[MemoryLevel], states: Sequence[str]) -> Iterator[int]:
    for level, state in zip(levels, states, strict=True):
        if state == "enough" and level.limit_bytes is not None:
            yield level.limit_bytes


def _certain_bounds(
    rule: SearchRule,
    measured: MeasuredLevels,
    levels: Sequence[MemoryLevel],
    values: Sequence[int],
    criterion: Criterion,
) -> tuple[int, int]:
    """Return the largest level that certainly lacks memory, and the least that has enough.

    The second is the least above which all levels certainly have enough. Without a level that
    lacks memory the first is 0.
    """
    high, low = values[0], 0
    certain = [_certainty(rule, measured, level, criterion) for level in levels]
    for level, is_enough in zip(levels, certain, strict=True):
        if is_enough is not True:
            break
        high = level.limit_bytes or high
    for level, is_enough in zip(levels, certain, strict=True):
        if is_enough is False:
            low = level.limit_bytes or low
            break
    return low, high


def _certainty(
    rule: SearchRule, measured: MeasuredLevels, level: MemoryLevel, criterion: Criterion
) -> bool | None:
    """Return whether a level has enough memory beyond the noise; None within the noise."""
    state = measured.state(level, criterion, rule)
    if state == "unknown":
        return None
    if criterion == "refaults" or level.is_short:
        return state == "enough"
    excess = measured.slowdown(level) or 0.0
    if abs(excess - rule.slowdown) <= measured.noise:
        return None
    return state == "enough"
