"""Flags and sizes in the kernel trace of bpftrace: mappings, faults and read-ahead."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.data.event_counts import UNTRACED, events_in_measured_part, traced_table
from analysis.data.load import JudgedTrial, Run
from pagecage.model.traces import read_lines

DECODED = ("vm_flags", "fault_flags", "ra_pages", "page_cache_ra_order")
_PREFIXES = ("VM_", "FAULT_FLAG_")
_YES, _NO = ("yes", "true"), ("no", "none", "false")
_WORD = re.compile(r"^(0x)?[0-9a-fA-F]*[0-9][0-9a-fA-F]*$")
"""A number, hexadecimal by default; the names of flags contain no digits but other letters."""
_RARE = 0.01
"""Words in a smaller share of faults come from a thread's start or end, and are ignored."""
WordCounts = Counter[int]


def traced_words(
    run: Run, trials: Sequence[JudgedTrial], response: str
) -> tuple[WordCounts, dict[int, list[str]]] | str:
    """Count the traced flag words (or pages), and return the names of their flags.

    Return the reason if no trial has a trace, or if none has a trace with such words.
    """
    names: dict[int, list[str]] = {}

    def word(entry: Mapping[str, Any]) -> int | None:
        value = entry.get("pages" if response == "page_cache_ra_order" else response)
        if value is not None and response.endswith("_flags"):
            names[value] = [
                strip_flag_prefix(name) for name in entry.get(f"{response[:-1]}_names") or []
            ]
        return value

    probe = "page_cache_ra_order" if response == "page_cache_ra_order" else "filemap_fault"
    traced = [trial for trial in trials if read_lines(run.path, trial.record, "bpftrace")]
    if not traced:
        return "no trial of it has a trace"
    total, is_known = Counter[Any](), False
    for trial in traced:
        if table := traced_table(trial, probe, response):
            counts = events_in_measured_part(run, trial, table, word)
            # Without a read-ahead, another table's events do not tell the value.
            is_known = is_known or table == probe or bool(counts)
            total += counts
    total.pop(None, None)
    return (total, names) if is_known else UNTRACED


def strip_flag_prefix(name: str) -> str:
    """Return the name of a flag without its prefix: `RAND_READ` for `VM_RAND_READ`."""
    return next((name.removeprefix(p) for p in _PREFIXES if name.startswith(p)), name).upper()


def compare_traced(
    published: Any, unit: str, counts: WordCounts, names: Mapping[int, list[str]]
) -> tuple[str | float | None, bool, str]:
    """Return the traced value, whether it equals the published one, and how they differ."""
    frequent = [word for word, count in counts.most_common() if count >= _RARE * counts.total()]
    if isinstance(published, str) and published.lower() in (*_YES, *_NO):
        answer = "yes" if counts else "none"
        return (
            answer,
            (published.lower() in _YES) == bool(counts),
            f"{counts.total()} events in the measured part",
        )
    if not frequent:
        return None, False, "no such event in the measured part"
    expected = _expected(published, unit)
    if isinstance(expected, frozenset):
        kinds = [frozenset(names.get(word, [])) for word in frequent]
        return _compare_flags(expected, expected if expected in kinds else kinds[0])
    if names:
        words = ", ".join(f"{word:#x}" for word in sorted(frequent))
        return (
            words,
            set(frequent) == set(expected),
            f"published {', '.join(f'{word:#x}' for word in sorted(expected))}",
        )
    return (
        float(frequent[0]),
        frequent[0] in expected,
        f"{counts[frequent[0]] / counts.total():.0%} of {counts.total()} events have this value",
    )


def _expected(published: Any, unit: str) -> frozenset[str] | list[int]:
    """Return the published value as flag names, or as numbers.

    Text is hexadecimal unless the unit is `dec`; a number is so only if the unit is `hex`.
    """
    if isinstance(published, int | float):
        return [int(f"{published:.0f}", 16 if unit == "hex" else 10)]
    parts = (
        published
        if isinstance(published, list)
        else published.replace(",", "|").replace("+", "|").split("|")
    )
    words = [str(part).strip() for part in parts]
    if all(_WORD.match(word) for word in words):
        return [int(word, 10 if unit == "dec" else 16) for word in words]
    return frozenset(strip_flag_prefix(word) for word in words)


def _compare_flags(expected: frozenset[str], traced: frozenset[str]) -> tuple[str, bool, str]:
    parts = [("also", traced - expected), ("lacks", expected - traced)]
    reason = ", ".join(f"{word} {' '.join(sorted(names))}" for word, names in parts if names)
    return " ".join(sorted(traced)), traced == expected, reason or "the same flags"
