"""Repeats of a treatment: the median's interval, and outputs that differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from pagecage.model.trial import SAME_OUTPUT
from pagecage.verdicts.verdict import Verdict

if TYPE_CHECKING:  # options need the bounds alone
    from pagecage.model.record import Record

CONFIDENCE = 0.95
MOST_REPEATS = 10_000
"""With more repeats per treatment, a plan takes minutes to write and to read."""
FEWEST = 6
"""The interval of five values, from lowest to highest, covers the median with only 94 %."""
FEWEST_OF_GATE = 3
"""Fewest trials of a run for a decision: of three in each of two runs, all of one exceed all of the
other by chance once in twenty times."""


def ranks_left_out(n: int) -> int:
    """Return how many of `n` values (six or more) to drop at each end for an interval of 95 %."""
    tail, k = 0.5**n, 0
    while 2 * (tail := tail + math.comb(n, k + 1) * 0.5**n) <= 1 - CONFIDENCE:
        k += 1
    return k


def half_width(values: Sequence[float]) -> float | None:
    """Return half of the interval's width as a share of the median.

    None for fewer than six values, or if the median is zero and the width is not.
    """
    if len(values) < FEWEST:
        return None
    ordered, k, middle = sorted(values), ranks_left_out(len(values)), median(values)
    if ordered[-1 - k] == ordered[k]:
        return 0.0
    return (ordered[-1 - k] - ordered[k]) / 2 / abs(middle) if middle else None


COMPARED_SETTINGS = {
    "governors": "CPU governors",
    "most_khz": "highest CPU frequencies in kHz",
    "boost": "settings of CPU boost",
    "affinity": "CPUs of the process",
    "nice": "nice values",
    "io_priority": "I/O priorities",
    "cpuset": "CPUs of the cgroup",
    "cpu_weight": "values of cpu.weight",
    "io_weight": "values of io.weight",
    "transparent_hugepages": "settings of transparent huge pages",
    "hugepages": "numbers of huge pages, which MemoryMax does not limit",
    "idle_pageout_seconds": "times in seconds after which DAMON reclaims idle pages",
}
"""Settings of `machine` that should not differ, in words. Present frequencies always differ."""


def others_by_trial(records: Iterable[Record]) -> dict[str, tuple[Record, ...]]:
    """Return for each trial the other repeats of its treatment that have an answer."""
    groups: dict[tuple[tuple[str, str], ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(sorted(record.treatment.items())), []).append(record)
    return {
        record.trial_id: tuple(other for other in group if other is not record and _is_ok(other))
        for group in groups.values()
        for record in group
    }


def _is_ok(record: Record) -> bool:
    return record.outcome == "ok" and record.measured is not None


def judge_output(record: Record, repeats: Sequence[Record]) -> Verdict:
    """Return `same`, `differs` or `unknown`: whether a command printed what its repeats printed.

    If they differ, the output of more trials than any other is the one to have.
    """
    own, others = _output(record), list(filter(None, map(_output, repeats)))
    if own is None or not others:
        return Verdict("unknown", "There is no standard output of another repeat to compare with.")
    counts = Counter([own, *others])
    if len(counts) == 1:
        return Verdict("same", f"It printed the same {own[0]:,} bytes as {len(others)} others.")
    (most, first), (_, second) = counts.most_common(2)
    if own == most and first > second:
        return Verdict("same", f"It printed the same {own[0]:,} bytes as {first - 1} others.")
    sizes = ", ".join(f"{size:,}" for size in sorted({size for size, _ in others}))
    printed = f"It printed {own[0]:,} bytes to standard output, and the others {sizes}"
    same_size = ", of other content" if {size for size, _ in counts} == {own[0]} else ""
    return Verdict("differs", f"{printed}{same_size}.")


def _output(record: Record) -> tuple[int, str] | None:
    found = record.exit.stdout
    return (found["bytes"], found["sha256"]) if found and _is_ok(record) else None


def output_reasons(record: Record, output: Verdict) -> tuple[str, ...]:
    """Return why a trial that must print the same is excluded; empty if it is not."""
    if output.verdict != "differs" or SAME_OUTPUT not in record.conditions:
        return ()
    return (f"output differs: {output.reason}",)


def setting_differences(records: Sequence[Record]) -> Iterator[str]:
    """Yield a sentence for each setting of the machine that differs between these repeats."""
    moments = [record.machine.before or {} for record in records]
    for key, words in COMPARED_SETTINGS.items():
        values = Counter(_text(moment[key]) for moment in moments if key in moment)
        if len(values) > 1:
            yield f"different {words}: " + ", ".join(f"{n} × {text}" for text, n in values.items())


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {part}" for key, part in value.items())
    return " to ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
