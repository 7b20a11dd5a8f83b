"""What the kernel was seen to do, from bpftrace's trace: flags of mappings and faults, read-ahead sizes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.data.event_counts import grown
from analysis.data.load import JudgedTrial, Run
from analysis.data.traces import read_lines

DECODED = ("vm_flags", "fault_flags", "ra_pages", "page_cache_ra_order")
_PREFIXES = ("VM_", "FAULT_FLAG_")
_YES, _NO = ("yes", "true"), ("no", "none", "false")
_WORD = re.compile(r"^(0x)?[0-9a-fA-F]*[0-9][0-9a-fA-F]*$")
"""A number, hexadecimal unless said otherwise; names of flags have no digits and other letters."""
_RARE = 0.01
"""Words that fewer of the faults carry are a thread's first or last ones, and not what the trial is about."""
WordCounts = Counter[int]


def seen(run: Run, trials: Sequence[JudgedTrial], response: str) -> tuple[WordCounts, dict[int, list[str]]] | None:
    """Words (or pages) by how often they came, and their flags' names; None where no trial has a trace."""
    names: dict[int, list[str]] = {}

    def word(entry: Mapping[str, Any]) -> int | None:
        value = entry.get("pages" if response == "page_cache_ra_order" else response)
        if value is not None and response.endswith("_flags"):
            names[value] = [bare(name) for name in entry.get(f"{response[:-1]}_names") or []]
        return value

    probe = "page_cache_ra_order" if response == "page_cache_ra_order" else "filemap_fault"
    traced = [trial for trial in trials if read_lines(run.path, trial.record, "bpftrace")]
    total = sum((grown(run, trial, probe, word) for trial in traced), Counter[Any]())
    total.pop(None, None)
    return (total, names) if traced else None


def bare(name: str) -> str:
    """`VM_RAND_READ` and `RAND_READ` are one."""
    return next((name.removeprefix(p) for p in _PREFIXES if name.startswith(p)), name).upper()


def compare(
    published: Any, unit: str, found: WordCounts, names: Mapping[int, list[str]]
) -> tuple[str | float | None, bool, str]:
    """What was seen, whether it is what was published, and how they differ."""
    often = [word for word, count in found.most_common() if count >= _RARE * found.total()]
    if isinstance(published, str) and published.lower() in (*_YES, *_NO):
        said = "yes" if found else "none"
        return said, (published.lower() in _YES) == bool(found), f"{found.total()} times in the measured part"
    if not often:
        return None, False, "the measured part has none"
    wanted = _wanted(published, unit)
    if isinstance(wanted, frozenset):
        kinds = [frozenset(names.get(word, [])) for word in often]
        return _names(wanted, wanted if wanted in kinds else kinds[0])
    if names:
        words = ", ".join(f"{word:#x}" for word in sorted(often))
        return words, set(often) == set(wanted), f"published {', '.join(f'{word:#x}' for word in sorted(wanted))}"
    return float(often[0]), often[0] in wanted, f"{found[often[0]] / found.total():.0%} of {found.total()} were this"


def _wanted(published: Any, unit: str) -> frozenset[str] | list[int]:
    """Names of flags, or words and numbers; hexadecimal where it is text, or the unit says so."""
    if isinstance(published, int | float):
        return [int(f"{published:.0f}", 16 if unit == "hex" else 10)]
    parts = published if isinstance(published, list) else published.replace(",", "|").replace("+", "|").split("|")
    words = [str(part).strip() for part in parts]
    if all(_WORD.match(word) for word in words):
        return [int(word, 10 if unit == "dec" else 16) for word in words]
    return frozenset(bare(word) for word in words)


def _names(wanted: frozenset[str], have: frozenset[str]) -> tuple[str, bool, str]:
    parts = [("also", have - wanted), ("lacks", wanted - have)]
    why = ", ".join(f"{word} {' '.join(sorted(names))}" for word, names in parts if names)
    return " ".join(sorted(have)), have == wanted, why or "the same flags"
