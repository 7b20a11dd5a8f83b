"""Ratios of two levels over two other factors, as a definition's `[[ratio_tables]]` ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.claims.rules import is_within_factor
from analysis.claims.sides import sides_of, summarise_sides
from analysis.data.load import Run
from analysis.stats.intervals import MedianSummary
from analysis.summaries.cells import claim_trials


@dataclass(frozen=True)
class RatioGrid:
    """A grid of ratios, by the level of its rows and of its columns.

    `ratios` lacks the combinations that have no included trial on both sides.
    """

    title: str
    about: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_factor: str
    column_factor: str
    ratios: Mapping[tuple[str, str], MedianSummary]
    published: float | None
    tolerance_factor: float

    def is_as_published(self, ratio: MedianSummary) -> bool:
        """Return whether a ratio is the published one within the tolerance."""
        return self.published is not None and is_within_factor(
            ratio.middle, self.published, self.tolerance_factor
        )


def ratio_tables(run: Run) -> list[RatioGrid]:
    """Return the tables of the run's definition that have at least one ratio."""
    tables = [_ratio_table(run, table) for table in run.definition.get("ratio_tables", [])]
    return [table for table in tables if table.ratios]


def _ratio_table(run: Run, table: Mapping[str, Any]) -> RatioGrid:
    rows, columns = run.factors[table["rows"]], run.factors[table["columns"]]
    ratios = {
        (row, column): ratio
        for row in rows
        for column in columns
        if (ratio := _ratio(run, table, {table["rows"]: row, table["columns"]: column}))
    }
    return RatioGrid(
        table["title"],
        table.get("about", ""),
        tuple(row for row in rows if any(key[0] == row for key in ratios)),
        tuple(column for column in columns if any(key[1] == column for key in ratios)),
        table["rows"],
        table["columns"],
        ratios,
        table.get("published"),
        table.get("tolerance_factor", 1.5),
    )


def _ratio(run: Run, table: Mapping[str, Any], place: Mapping[str, str]) -> MedianSummary | None:
    common = {**table.get("where", {}), **place}
    sides = {
        "response": table.get("response") or run.response,
        "where": {**common, **table["of"]},
        "over": {**common, **table["over"]},
    }
    eligible = [claim_trials(side, sides) for side in sides_of(run, sides)]
    return summarise_sides(run, sides, eligible)
