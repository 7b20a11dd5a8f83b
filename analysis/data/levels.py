"""Levels of factors: numbers in their names, and the layout of treatments in a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_NUMBER = re.compile(r"^(?P<before>[^0-9]*?)(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[A-Za-z%]*)$")
_SCALE = {
    "": 1.0,
    "B": 1.0,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "KiB": 1024.0,
    "MiB": 1024.0**2,
    "GiB": 1024.0**3,
    "K": 1024.0,
    "k": 1024.0,
    "M": 1024.0**2,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
}
_WORDS = {"none": 0.0, "off": 0.0}
_MANY_ACROSS = 5
"""More columns than this do not fit a page beside their published figures."""
_MANY_FACTORS = 4
_FULL = 0.75
"""If a smaller share of a table's cells is filled, one row per treatment is easier to read."""


def numeric_levels(levels: Sequence[str]) -> dict[str, float] | None:
    """Return the levels as numbers ("4KiB", "ra128", "none" as 0).

    None unless every level is a number, and all numbers differ.
    """
    parsed = {level: _NUMBER.match(level) for level in levels if level not in _WORDS}
    matches = [match for match in parsed.values() if match]
    if len(matches) < len(parsed) or len({match["before"] for match in matches}) != 1:
        return None
    if any(match["unit"] not in _SCALE for match in matches):
        return None
    found = {
        level: float(match["number"]) * _SCALE[match["unit"]]
        for level, match in parsed.items()
        if match
    }
    found |= {level: _WORDS[level] for level in levels if level in _WORDS}
    return found if len(set(found.values())) == len(levels) > 1 else None


def sort_levels(levels: Sequence[str]) -> list[str]:
    """Return numeric levels sorted by value, and other levels in the definition's order."""
    known = numeric_levels(levels)
    return sorted(levels, key=lambda level: known[level]) if known else list(levels)


@dataclass(frozen=True)
class TableLayout:
    """The factors of a table's rows and columns, and those with a single level.

    Without a factor `across`, each treatment is a row.
    """

    down: tuple[str, ...]
    across: str | None
    constant: Mapping[str, str]


def table_layout(
    factors: Mapping[str, Sequence[str]], planned: Iterable[Mapping[str, str]]
) -> TableLayout:
    """Return the table layout of the planned treatments.

    The last factor goes across if its levels fit a page and few cells stay empty.
    """
    treatments = list(planned)
    used = {
        name: [level for level in factors[name] if any(t[name] == level for t in treatments)]
        for name in factors
    }
    varying = [name for name in factors if len(used[name]) > 1] or list(factors)[-1:]
    constant = {name: used[name][0] for name in factors if name not in varying and used[name]}
    *down, across = varying
    rows = {tuple(t[name] for name in down) for t in treatments}
    filled = len(treatments) / max(1, len(rows) * len(used[across]))
    fits = (
        down
        and len(used[across]) <= _MANY_ACROSS
        and len(varying) < _MANY_FACTORS
        and filled >= _FULL
    )
    return TableLayout(tuple(down) if fits else tuple(varying), across if fits else None, constant)
