"""The search for memory on simulated programs, whose need is known."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pagecage.memory_search.need import (
    LEAST_REFAULTS,
    MOST_EXTRA_TRIALS,
    REFAULT_SHARE,
    MeasuredLevels,
    MemoryAnswer,
    MemoryLevel,
    MemoryNeed,
    MemoryTrial,
    SearchRule,
    answer_of,
    grid,
    most_levels,
    next_round,
    sentences,
)
from pagecage.units import MIB

RULE = SearchRule(4 * MIB, slowdown=0.05, precision=0.02, repeats=1, reference_repeats=3)
LOOPS = 20
PAGES = 256  # in a MiB


@dataclass(frozen=True)
class Program:
    """A program that loops over a working set, after it read some files once.

    Below its working set a loop reads what is missing again, which costs `cost` of its time for the
    whole set. Below `least` the OOM killer ends it.
    """

    working_set: float
    used: float
    cost: float = 1.0
    least: float = 0.0
    noise: float = 0.0

    def trial(self, limit_bytes: int | None, noise: float) -> MemoryTrial:
        limit = self.used if limit_bytes is None else min(self.used, limit_bytes / MIB)
        peak = limit * MIB
        if limit < self.least:
            return MemoryTrial(None, None, True, True, peak_bytes=peak)
        missing = max(0.0, 1 - limit / self.working_set)
        return MemoryTrial(
            (1 + self.cost * missing) * (1 + self.noise * noise),
            missing * self.working_set * PAGES * LOOPS,
            read_pages=self.used * PAGES,
            peak_bytes=peak,
        )

    def needed_for_time(self, slowdown: float) -> float:
        """The limit at which the program loses this much time, in MiB."""
        return max(self.least, self.working_set * (1 - slowdown / self.cost))

    @property
    def needed_for_refaults(self) -> float:
        """The limit below which refaults grow by more than the search tolerates, in MiB."""
        tolerated = max(LEAST_REFAULTS, REFAULT_SHARE * self.used * PAGES)
        return max(self.least, self.working_set - tolerated / PAGES / LOOPS)


Trials = Callable[[int | None, int], MemoryTrial]


def searched(trials: Trials, rule: SearchRule = RULE) -> tuple[MeasuredLevels, int]:
    """The levels of a search, and its number of rounds. `trials` gets limit and number."""
    count = rule.reference_repeats
    reference = MemoryLevel(None, tuple(trials(None, n) for n in range(count)))
    levels: dict[int, MemoryLevel] = {}
    rounds = 0
    while requests := next_round(rule, MeasuredLevels(reference, tuple(levels.values()))):
        rounds += 1
        assert rounds < 200
        for request in requests:
            limit = request.limit_bytes
            old = reference if limit is None else levels.get(limit, MemoryLevel(limit, ()))
            first = len(old.trials)
            more = tuple(trials(limit, first + n) for n in range(request.trials))
            level = replace(old, trials=(*old.trials, *more))
            if limit is None:
                reference = level
            else:
                levels[limit] = level
    return MeasuredLevels(reference, tuple(levels.values())), rounds


def answered(program: Program, rule: SearchRule = RULE, seed: int = 1) -> MemoryAnswer:
    """The answer about a program; two trials of the reference show all of its noise."""
    source = random.Random(seed)

    def trial(limit: int | None, number: int) -> MemoryTrial:
        ends = (-1.0, 1.0)
        is_end = limit is None and number < len(ends)
        return program.trial(limit, ends[number] if is_end else source.uniform(-1, 1))

    found = answer_of(rule, searched(trial, rule)[0])
    assert found is not None
    return found


def need(answer: MemoryAnswer, criterion: str) -> MemoryNeed:
    found = next(one for one in answer.needs if one.criterion == criterion)
    assert found is answer.need(found.criterion)
    return found


def is_bracketed(found: MemoryNeed, truth: float, floor: float = 4.0) -> bool:
    """Whether the truth lies between the levels found, whose distance is the precision."""
    low = (found.short_bytes or 0) / MIB
    high = found.needed_bytes / MIB
    return (low <= truth * 1.001 and truth <= high * 1.001) or (truth <= floor and not low)


sizes = st.floats(4.5, 3000)


@settings(deadline=None)
@given(sizes, st.floats(1.0, 50), st.floats(0, 1), st.sampled_from([0.005, 0.02, 0.1]))
@example(40.0, 2.4, 0.0, 0.02)
@example(40.0, 1.0, 1.0, 0.02)
def test_without_noise_both_needs_are_found_within_the_precision(
    working_set: float, ratio: float, least: float, precision: float
) -> None:
    program = Program(working_set, working_set * ratio, least=least * working_set)
    rule = replace(RULE, precision=precision)
    found = answered(program, rule)
    assert found.is_complete
    assert is_bracketed(need(found, "refaults"), program.needed_for_refaults)
    assert is_bracketed(need(found, "time"), program.needed_for_time(rule.slowdown))
    for one in found.needs:
        assert one.is_certain
        if one.short_bytes:
            assert one.needed_bytes / one.short_bytes < 1 + 2 * precision


@settings(deadline=None)
@given(sizes, st.floats(1.5, 20), st.floats(0.1, 30), st.floats(0, 0.2), st.integers(0, 2**16))
def test_with_noise_the_truth_is_within_the_bounds_or_nothing_is_certain(
    working_set: float, ratio: float, cost: float, noise: float, seed: int
) -> None:
    program = Program(working_set, working_set * ratio, cost=cost, noise=noise)
    found = answered(program, seed=seed)
    time, truth = need(found, "time"), program.needed_for_time(RULE.slowdown) * MIB
    assert time.low_bytes * 0.989 <= truth
    assert truth <= max(time.high_bytes * 1.011, RULE.floor_bytes)
    if time.is_certain and time.short_bytes:
        assert time.needed_bytes == pytest.approx(truth, rel=2.1 * RULE.precision)
    if found.noise > RULE.slowdown and time.needed_bytes > RULE.floor_bytes:
        told = list(sentences(found, RULE, has_swap=False))
        assert any("cannot be seen" in sentence for sentence in told)
    assert is_bracketed(need(found, "refaults"), program.needed_for_refaults)


@settings(deadline=None)
@given(sizes, st.floats(1.0, 100), st.sampled_from([0.005, 0.02, 0.1]), st.integers(1, 3))
def test_no_search_measures_more_levels_than_a_dry_run_says(
    working_set: float, ratio: float, precision: float, repeats: int
) -> None:
    rule = replace(RULE, precision=precision, repeats=repeats)
    program = Program(working_set, working_set * ratio)
    measured, rounds = searched(lambda limit, _: program.trial(limit, 0), rule)
    used = measured.used_bytes
    assert used is not None
    assert len(measured.levels) <= most_levels(rule, used)
    assert all(len(level.trials) == repeats for level in measured.levels)
    assert rounds <= most_levels(rule, used)
    assert {level.limit_bytes for level in measured.levels} <= set(grid(rule, used))


def test_page_cache_that_is_read_once_is_not_needed() -> None:
    found = answered(Program(40, 400))
    [answer, working_set] = sentences(found, RULE, has_swap=False)
    assert answer.startswith("38.")
    assert "the other 36" in answer
    assert "page cache that brings" in answer
    assert "Working set (no refaults): 40" in working_set


def test_memory_below_which_the_program_is_killed_is_needed() -> None:
    found = answered(Program(40, 41, least=40.5))
    told = " ".join(sentences(found, RULE, has_swap=False))
    assert need(found, "time").is_killed_below
    assert "All of the 41 MiB that the program uses are needed" in told
    assert "the OOM killer ends it" in told


def test_a_program_that_refaults_with_all_of_the_memory_is_told_so() -> None:
    """Its cage is smaller than its working set: the need is judged against that."""
    program = Program(200, 100)
    found = answered(program)
    assert found.refaults > 0
    told = " ".join(sentences(found, RULE, has_swap=False))
    assert "With all of the memory it reads" in told
    assert need(found, "refaults").needed_bytes == 100 * MIB


def test_a_level_without_trials_that_count_ends_the_search_for_time_alone() -> None:
    program = Program(40, 400)

    def noisy_below(limit: int | None, _: int) -> MemoryTrial:
        trial = program.trial(limit, 0)
        return replace(trial, seconds=None) if limit and limit < 150 * MIB else trial

    measured, _ = searched(noisy_below)
    found = answer_of(RULE, measured)
    assert found is not None
    assert need(found, "time").is_unknown_below
    assert is_bracketed(need(found, "refaults"), program.needed_for_refaults)
    between = [one for one in measured.levels if 100 < (one.limit_bytes or 0) / MIB < 190]
    assert not between, "the time cannot be told there, so that nothing more is tried"
    tried = [level for level in measured.levels if (level.limit_bytes or 0) == 100 * MIB]
    assert {len(level.trials) for level in measured.levels} <= {1, 1 + MOST_EXTRA_TRIALS}
    assert not tried or len(tried[0].trials) == 1 + MOST_EXTRA_TRIALS
    told = " ".join(sentences(found, RULE, has_swap=False))
    assert "By time the need may be smaller" in told


def test_without_a_time_of_the_reference_only_refaults_are_searched() -> None:
    program = Program(40, 400)
    measured, _ = searched(lambda limit, _: replace(program.trial(limit, 0), seconds=None))
    found = answer_of(RULE, measured)
    assert found is not None
    assert found.need("time") is None
    assert is_bracketed(need(found, "refaults"), program.needed_for_refaults)
    assert all(len(level.trials) == 1 for level in measured.levels)
    told = list(sentences(found, RULE, has_swap=False))
    assert told[0].startswith("The need by time cannot be told")


def without_refaults(trial: MemoryTrial) -> MemoryTrial:
    return replace(trial, refaults=None)


def without_peak(trial: MemoryTrial) -> MemoryTrial:
    return replace(trial, peak_bytes=None)


@pytest.mark.parametrize("lacking", [without_refaults, without_peak])
def test_without_a_counter_nothing_is_said(lacking: Callable[[MemoryTrial], MemoryTrial]) -> None:
    program = Program(40, 400)
    measured, rounds = searched(lambda limit, _: lacking(program.trial(limit, 0)))
    assert answer_of(RULE, measured) is None
    assert rounds <= 1


def test_a_loss_within_the_noise_of_the_reference_is_none() -> None:
    whole = Program(40, 100).trial(None, 0)
    reference = MemoryLevel(None, tuple(replace(whole, seconds=s) for s in (0.9, 1.0, 1.1)))
    measured = MeasuredLevels(reference)
    for seconds, state in ((1.15, "enough"), (1.25, "short")):
        level = MemoryLevel(50 * MIB, (replace(whole, seconds=seconds),))
        assert measured.state(level, "time", RULE) == state


def test_a_killed_reference_has_no_answer() -> None:
    measured, rounds = searched(lambda limit, _: Program(40, 40, least=50).trial(limit, 0))
    assert answer_of(RULE, measured) is None
    assert rounds == 0
    assert measured.reference.is_killed


def test_a_level_that_was_cut_is_judged_by_its_refaults_alone() -> None:
    """The time limit ended it on a noisy host: few refaults so far prove nothing."""
    program = Program(40, 100)
    whole = program.trial(None, 0)
    reference = MemoryLevel(None, (whole,) * 3)
    many, few = (
        MemoryLevel(50 * MIB, (replace(whole, seconds=None, refaults=count, is_cut=True),))
        for count in (1e6, 0.0)
    )
    measured = MeasuredLevels(reference)
    assert measured.state(many, "refaults", RULE) == "short"
    assert measured.state(few, "refaults", RULE) == "unknown"
    assert measured.state(few, "time", RULE) == "unknown"


@given(st.floats(5, 500), st.floats(5, 500))
@settings(deadline=None)
def test_a_program_that_is_faster_with_less_memory_is_told_so(low: float, gap: float) -> None:
    """Between two limits it is slow, below them fast again: the upper end counts."""
    assume(gap > 0.3 * low)
    high = low + gap
    program = Program(low, high * 4)

    def trial(limit: int | None, _: int) -> MemoryTrial:
        normal = program.trial(limit, 0)
        is_slow = limit is not None and low * 1.1 * MIB < limit < high * MIB
        return replace(normal, seconds=2.0) if is_slow else normal

    found = answer_of(RULE, searched(trial)[0])
    assert found is not None
    time = need(found, "time")
    assert time.needed_bytes >= high * MIB * 0.99 or not time.again_bytes
    if time.again_bytes:
        told = " ".join(sentences(found, RULE, has_swap=False))
        assert "less memory did not always cost more" in told
