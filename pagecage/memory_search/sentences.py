"""The sentences of a search for memory: the need, its parts, and the limits of its certainty."""

from __future__ import annotations

from collections.abc import Iterator

from pagecage.memory_search.need import MemoryAnswer, MemoryNeed
from pagecage.memory_search.rule import SearchRule
from pagecage.units import format_bytes

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
    if time is not None:
        yield from _noise(answer, time, rule)
    for need in answer.needs:
        yield from _doubts(need)
    if not answer.is_complete:
        yield "The search is not complete: its intervals are wider than the precision."


def no_answer(killed: bool) -> str:
    """Return the sentence for a search whose reference has no figures."""
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
    other = answer.used_bytes - need.needed_bytes
    if other <= 0:
        return (
            f"All of the {format_bytes(answer.used_bytes)} that the program uses are needed:"
            f" {_below(need)}."
        )
    kind = "memory" if has_swap else "page cache"
    return (
        f"{format_bytes(need.needed_bytes)} are needed, the other {format_bytes(other)} are"
        f" {kind} that {_brings(answer, need)}."
    )


def _brings(answer: MemoryAnswer, need: MemoryNeed) -> str:
    percent = _percent(max(0.0, need.slowdown))
    if need.slowdown <= _NEGLIGIBLE:
        return "brings no time"
    if need.slowdown <= answer.noise:
        return f"brings {percent}, which is within the noise of {_percent(answer.noise)}"
    return f"brings {percent}"


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


def _noise(answer: MemoryAnswer, need: MemoryNeed, rule: SearchRule) -> Iterator[str]:
    if answer.noise > rule.slowdown:
        yield (
            f"The times with all of the memory differ by {_percent(answer.noise)}, so that a loss"
            f" of {_percent(rule.slowdown)} cannot be seen: only a larger one counted. More"
            " --repeats or a quieter host help."
        )
    elif not need.is_certain:
        low, high = format_bytes(need.low_bytes or rule.floor_bytes), format_bytes(need.high_bytes)
        yield (
            f"By the noise of {_percent(answer.noise)}, the need by time may be anything between"
            f" {low} and {high}."
        )


def _doubts(need: MemoryNeed) -> Iterator[str]:
    if need.is_unknown_below and need.short_bytes is not None:
        size = format_bytes(need.short_bytes)
        yield f"By {need.criterion} the need may be smaller: no trial with {size} counts."
    if need.again_bytes:
        sizes = ", ".join(format_bytes(size) for size in sorted(need.again_bytes))
        yield (
            f"By {need.criterion}, less memory did not always cost more: {sizes} had enough as"
            " well."
        )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"
