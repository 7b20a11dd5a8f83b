"""How far a trial ran ahead of its caps on reading: the head start that whoever holds a cap gives before holding it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pagecage.cage import IO_STAT_KEY, Cage

_CAPS = {"read_bytes_ahead": "IOReadBandwidthMax", "reads_ahead": "IOReadIOPSMax"}
Row = Mapping[str, Any]


def ahead(rows: Sequence[Row], cage: Cage, begin: float, end: float) -> dict[str, float | None]:
    """For each cap the most that was through at any sample above cap times the time since the first read.

    `rows` are the sampler's, `begin` and `end` moments of CLOCK_MONOTONIC; None without a cap or without a read.
    """
    within = [row for row in rows if begin <= row["t"] <= end and "io" in row]
    return {name: _most_ahead(within, cage.properties.get(cap), IO_STAT_KEY[cap]) for name, cap in _CAPS.items()}


def _most_ahead(rows: Sequence[Row], cap: int | None, key: str) -> float | None:
    """The clock starts at the last sample before anything moved, which is up to a tenth of a second early."""
    first = next((n for n in range(1, len(rows)) if _moved(rows, n, key) > 0), None)
    if cap is None or first is None:
        return None
    start, t = rows[first - 1]["io"].get(key, 0), rows[first - 1]["t"]
    return float(max(0.0, *(row["io"].get(key, 0) - start - cap * (row["t"] - t) for row in rows[first:])))


def _moved(rows: Sequence[Row], n: int, key: str) -> int:
    return int(rows[n]["io"].get(key, 0)) - int(rows[n - 1]["io"].get(key, 0))
