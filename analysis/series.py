"""The sampler's rows of one trial as columns of plain numbers: a trace is parsed once and kept in little room."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
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

    def column(tell: Callable[[Mapping[str, Any]], Any]) -> array[float]:
        return array("d", (_NOT_KNOWN if (value := tell(row)) is None else value for row in known))

    return Series(
        t=column(lambda row: row["t"]),
        io={key: array("d", [row["io"].get(key, 0) for row in known]) for key in IO_KEYS},
        resident_pages=column(lambda row: row.get("resident_pages")),
        memory_current=column(lambda row: row.get("memory_current")),
    )
