"""The sampler's rows of one trial as columns of plain numbers: a trace is parsed once and kept in little room."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

IO_KEYS = ("rbytes", "rios", "wbytes", "wios")
STALLS = ("io", "memory")
_NOT_KNOWN = float("nan")
_EMPTY: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Series:
    """A column a figure, all of one length; what a row lacks is not a number.

    `io` has the slice's totals by key, `stalled_us` for how long some task of it had waited for `io` and for `memory`,
    `refaults` how many file pages were read that had been there before (`workingset_refault_file`).
    """

    t: array[float]
    io: Mapping[str, array[float]]
    resident_pages: array[float]
    memory_current: array[float]
    refaults: array[float]
    stalled_us: Mapping[str, array[float]]


def series_of(rows: Iterable[Mapping[str, Any]]) -> Series:
    """Columns of the rows of `sampler.jsonl`; a disk that the slice has not touched yet has an empty `io`, so 0."""
    known = list(rows)
    return Series(
        t=array("d", [row["t"] for row in known]),
        io={key: array("d", [row["io"].get(key, 0) for row in known]) for key in IO_KEYS},
        resident_pages=_state(known, "resident_pages"),
        memory_current=_state(known, "memory_current"),
        refaults=_within(known, "memory_stat", "workingset_refault_file"),
        stalled_us={kind: _stalled(known, kind) for kind in STALLS},
    )


def _within(rows: Sequence[Mapping[str, Any]], table: str, key: str) -> array[float]:
    """A figure of a table in a row."""
    return array("d", [(row.get(table) or _EMPTY).get(key, _NOT_KNOWN) for row in rows])


def _stalled(rows: Sequence[Mapping[str, Any]], kind: str) -> array[float]:
    told = ((row.get("pressure") or _EMPTY).get(kind) or _EMPTY for row in rows)
    return array("d", [pressure.get("some", _NOT_KNOWN) for pressure in told])


def _state(rows: Sequence[Mapping[str, Any]], key: str) -> array[float]:
    told = (row.get(key) for row in rows)
    return array("d", [_NOT_KNOWN if value is None else value for value in told])
