"""The sampler's rows of one trial as columns of plain numbers: a trace is parsed once and kept in little room."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

IO_KEYS = ("rbytes", "rios", "wbytes", "wios")
_NOT_KNOWN = float("nan")


@dataclass(frozen=True)
class Series:
    """A column a figure, all of one length; what a row lacks is not a number. `io` has the slice's totals by key."""

    t: array[float]
    io: Mapping[str, array[float]]
    resident_pages: array[float]
    memory_current: array[float]


def series_of(rows: Iterable[Mapping[str, Any]]) -> Series:
    """Columns of the rows of `sampler.jsonl`; a disk that the slice has not touched yet has an empty `io`, so 0."""
    known = list(rows)
    return Series(
        t=array("d", [row["t"] for row in known]),
        io={key: array("d", [row["io"].get(key, 0) for row in known]) for key in IO_KEYS},
        resident_pages=_state(known, "resident_pages"),
        memory_current=_state(known, "memory_current"),
    )


def _state(rows: Sequence[Mapping[str, Any]], key: str) -> array[float]:
    told = (row.get(key) for row in rows)
    return array("d", [_NOT_KNOWN if value is None else value for value in told])
