"""Levels of factors: numbers among their names, and how a run's treatments are best laid out on a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_NUMBER = re.compile(r"^(?P<before>[^0-9]*?)(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[A-Za-z%]*)$")
_SCALE = {
    "": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3,
    "K": 1024.0, "k": 1024.0, "M": 1024.0**2, "us": 1e-6, "ms": 1e-3, "s": 1.0,
}  # fmt: skip
_WORDS = {"none": 0.0, "off": 0.0}
_MANY_ACROSS = 5
"""More columns than this do not fit a page beside their published figures."""
_MANY_FACTORS = 4
_FULL = 0.75
"""A table with fewer of its cells filled is easier read as one row a treatment."""


def numbers(levels: Sequence[str]) -> dict[str, float] | None:
    """The levels as numbers ("4KiB", "ra128", "none" as 0); None unless all are, and differ."""
    parsed = {level: _NUMBER.match(level) for level in levels if level not in _WORDS}
    matches = [match for match in parsed.values() if match]
    if len(matches) < len(parsed) or len({match["before"] for match in matches}) != 1:
        return None
    if any(match["unit"] not in _SCALE for match in matches):
        return None
    found = {level: float(match["number"]) * _SCALE[match["unit"]] for level, match in parsed.items() if match}
    found |= {level: _WORDS[level] for level in levels if level in _WORDS}
    return found if len(set(found.values())) == len(levels) > 1 else None


def in_order(levels: Sequence[str]) -> list[str]:
    """Numeric levels by their numbers, others as the definition has them."""
    known = numbers(levels)
    return sorted(levels, key=lambda level: known[level]) if known else list(levels)


@dataclass(frozen=True)
class TableLayout:
    """Which factors go down a table, which across (None: one row a treatment), and which have one level alone."""

    down: tuple[str, ...]
    across: str | None
    constant: Mapping[str, str]


def layout(factors: Mapping[str, Sequence[str]], planned: Iterable[Mapping[str, str]]) -> TableLayout:
    """Lay out the planned treatments: the last factor across where that fits and leaves few cells empty."""
    treatments = list(planned)
    used = {name: [level for level in factors[name] if any(t[name] == level for t in treatments)] for name in factors}
    varying = [name for name in factors if len(used[name]) > 1] or list(factors)[-1:]
    constant = {name: used[name][0] for name in factors if name not in varying and used[name]}
    *down, across = varying
    rows = {tuple(t[name] for name in down) for t in treatments}
    filled = len(treatments) / max(1, len(rows) * len(used[across]))
    fits = down and len(used[across]) <= _MANY_ACROSS and len(varying) < _MANY_FACTORS and filled >= _FULL
    return TableLayout(tuple(down) if fits else tuple(varying), across if fits else None, constant)
