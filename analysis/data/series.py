"""A trial's sampler rows as compact columns of numbers, parsed once."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

IO_KEYS = ("rbytes", "rios", "wbytes", "wios")
STALLS = ("io", "memory")
_UNKNOWN = float("nan")
_EMPTY: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Series:
    """Columns of equal length; a value that a row lacks is NaN.

    `io` holds the slice's totals by key. `stalled_us` holds how long at least one task had waited
    for `io` and for `memory`. `refaults` counts file pages that were read again
    (`workingset_refault_file`).
    """

    t: array[float]
    io: Mapping[str, array[float]]
    resident_pages: array[float]
    memory_current: array[float]
    refaults: array[float]
    stalled_us: Mapping[str, array[float]]


def series_of(rows: Iterable[Mapping[str, Any]]) -> Series:
    """Return the columns of `sampler.jsonl`.

    A disk that the slice has not used yet has an empty `io`, which counts as 0.
    """
    samples = list(rows)
    return Series(
        t=array("d", [row["t"] for row in samples]),
        io={key: array("d", [row["io"].get(key, 0) for row in samples]) for key in IO_KEYS},
        resident_pages=_column(samples, "resident_pages"),
        memory_current=_column(samples, "memory_current"),
        refaults=_nested(samples, "memory_stat", "workingset_refault_file"),
        stalled_us={kind: _stalled(samples, kind) for kind in STALLS},
    )


def _nested(rows: Sequence[Mapping[str, Any]], table: str, key: str) -> array[float]:
    """Return the column of a key in a nested table."""
    return array("d", [(row.get(table) or _EMPTY).get(key, _UNKNOWN) for row in rows])


def _stalled(rows: Sequence[Mapping[str, Any]], kind: str) -> array[float]:
    values = ((row.get("pressure") or _EMPTY).get(kind) or _EMPTY for row in rows)
    return array("d", [pressure.get("some", _UNKNOWN) for pressure in values])


def _column(rows: Sequence[Mapping[str, Any]], key: str) -> array[float]:
    values = (row.get(key) for row in rows)
    return array("d", [_UNKNOWN if value is None else value for value in values])
