"""Tables of responses by treatment, with published figures beside the measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.data.load import Run
from analysis.formatting import response_title, treatment_label
from analysis.summaries.cells import make_cell, published_by_treatment, treatments
from analysis.summaries.per_unit import PerUnit, per_unit, per_unit_heading


def cell_table(run: Run, response: str | None = None) -> pd.DataFrame:
    """Return the experiment's table, with one factor across if its levels fit."""
    response, plan = response or run.response, run.layout
    published = published_by_treatment(run, response)
    heading = per_unit_heading(response)
    rows: dict[tuple[str, ...], dict[tuple[str, str], str]] = {}
    for treatment in treatments(run):
        cell, key = (
            make_cell(run, treatment, response),
            tuple(treatment[name] for name in plan.down),
        )
        row = rows.setdefault(
            key, {(name, ""): level for name, level in zip(plan.down, key, strict=True)}
        )
        position = treatment[plan.across] if plan.across else response_title(response)
        row[position, "measured"] = f"{cell.text}\n{cell.spread}" if plan.across else cell.text
        if published:
            row[position, "published"] = published.get(treatment_label(treatment), "")
        if heading and (unit := per_unit(run, cell)).measured:
            row[position, heading] = unit.measured + _published_below(unit)
        if not plan.across:
            row[position, "of"] = cell.spread
    columns = _columns(run, list(dict.fromkeys(column for row in rows.values() for column in row)))
    cells = [[row.get(column, "") for column in columns] for row in rows.values()]
    return pd.DataFrame(cells, columns=pd.MultiIndex.from_tuples(columns))


def _published_below(unit: PerUnit) -> str:
    return f"\npublished {unit.published}" if unit.published else ""


def response_table(run: Run, table: Mapping[str, Any]) -> pd.DataFrame:
    """Return a further table: the treatments of its `where` down, its responses across."""
    chosen = [t for t in treatments(run) if (table.get("where") or {}).items() <= dict(t).items()]
    varying = [name for name in run.factors if len({t[name] for t in chosen}) > 1]
    published = {
        response: published_by_treatment(run, response) for response in table["columns"].values()
    }
    rows = [
        _response_row(run, treatment, varying, table["columns"], published) for treatment in chosen
    ]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    shown = [
        column
        for column in columns
        if column[1] != "published" or any(row.get(column) for row in rows)
    ]
    cells = [[row.get(column, "") for column in shown] for row in rows]
    if not any(below == "published" for _, below in shown):
        return pd.DataFrame(cells, columns=[heading for heading, _ in shown] if shown else None)
    return pd.DataFrame(cells, columns=pd.MultiIndex.from_tuples(shown))


def _response_row(
    run: Run,
    treatment: Mapping[str, str],
    varying: Sequence[str],
    columns: Mapping[str, str],
    published: Mapping[str, Mapping[str, str]],
) -> dict[tuple[str, str], str]:
    """Return the row of one treatment; the spread is written once, below the first figure."""
    row = {(name, ""): treatment[name] for name in varying}
    for position, (heading, response) in enumerate(columns.items()):
        cell = make_cell(run, treatment, response)
        row[heading, "published"] = published[response].get(treatment_label(treatment), "")
        row[heading, "measured"] = cell.text if position else f"{cell.text}\n{cell.spread}"
    return row


def _columns(run: Run, columns: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the columns with the levels across in their factor's order."""
    if not run.layout.across:
        return columns
    levels = run.factors[run.layout.across]
    return sorted(columns, key=lambda column: levels.index(column[0]) if column[1] else -1)
