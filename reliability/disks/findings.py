"""A word for each limit on each stack: proven, refused, unproven, or the worst: it leaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reliability.disks.probe import BUFFERED, FLUSHED_SHARE, LIMITS

GRACE = 1.1
"""A rate by fio's word above this share of what a limit allows has passed it."""
PROVEN, REFUSED, UNPROVEN, LEAKS, UNTESTED = "proven", "refused", "unproven", "leaks", "not tested"
COLUMNS = (*LIMITS, BUFFERED)
Cell = Mapping[str, Any]


def word(cell: Cell, column: str) -> str:
    """Return the word for one limit (or for buffered writes) on a stack, as one user."""
    if "limits" not in cell and not refusals(cell):
        return UNTESTED
    if cell.get("refused") or cell.get("not_in_force"):
        return REFUSED
    if cell.get("refused_writes") and (column == BUFFERED or column.startswith("IOWrite")):
        return REFUSED
    return measured(cell, column)


def measured(cell: Cell, column: str) -> str:
    """Return what the load has shown of a limit, whether the product would refuse it or not."""
    found = cell["limits"].get(column, {})
    if column == BUFFERED:
        rate = found.get("fio_rate")
        if rate is None:
            return UNTESTED
        return LEAKS if rate * FLUSHED_SHARE > found["cap"] * GRACE else PROVEN
    calibration = found.get("calibration")
    if not calibration:
        return UNTESTED
    rate = found.get("fio_rate")
    if calibration["held"] and rate is not None and rate > calibration["allowed"] * GRACE:
        return LEAKS
    return PROVEN if calibration["held"] else UNPROVEN


def refusals(cell: Cell) -> list[str]:
    """Return the sentences with which the product refuses a stack."""
    sentences = [one["reason"] for one in cell.get("refused", ())]
    if cell.get("not_in_force"):
        sentences.append(f"limits are not as asked: {'; '.join(cell['not_in_force'])}")
    return [*sentences, *cell.get("refused_writes", ())]


def leaks(cells: list[Cell]) -> list[tuple[Cell, str]]:
    """Return the limits that read back well, are not refused, and do not hold."""
    return [(cell, column) for cell in cells for column in COLUMNS if word(cell, column) == LEAKS]


def why_unproven(cell: Cell, column: str) -> str:
    calibration = cell["limits"][column]["calibration"] or {}
    if calibration.get("held") is False:
        return f"{calibration['observed']:,.0f} of {calibration['allowed']:,.0f} allowed"
    return str(calibration.get("error"))
