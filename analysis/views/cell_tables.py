"""Tables of responses: treatments down, what was measured across, published figures beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.data.load import Run
from analysis.formatting import label, title
from analysis.summaries.cells import make_cell, published_figures, treatments


def cell_table(run: Run, response: str | None = None) -> pd.DataFrame:
    """The experiment's table: factors down, one across where that fits, published figures beside the measured ones."""
    response, plan = response or run.response, run.layout
    published = published_figures(run, response)
    rows: dict[tuple[str, ...], dict[tuple[str, str], str]] = {}
    for treatment in treatments(run):
        cell, key = make_cell(run, treatment, response), tuple(treatment[name] for name in plan.down)
        row = rows.setdefault(key, {(name, ""): level for name, level in zip(plan.down, key, strict=True)})
        place = treatment[plan.across] if plan.across else title(response)
        row[place, "measured"] = f"{cell.text}\n{cell.spread}" if plan.across else cell.text
        if published:
            row[place, "published"] = published.get(label(dict(treatment)), "")
        if not plan.across:
            row[place, "of"] = cell.spread
    columns = _columns(run, list(dict.fromkeys(column for row in rows.values() for column in row)))
    cells = [[row.get(column, "") for column in columns] for row in rows.values()]
    return pd.DataFrame(cells, columns=pd.MultiIndex.from_tuples(columns))


def response_table(run: Run, table: Mapping[str, Any]) -> pd.DataFrame:
    """A further table of the definition: the treatments of its `where` down, its responses across, published beside."""
    chosen = [t for t in treatments(run) if (table.get("where") or {}).items() <= dict(t).items()]
    varying = [name for name in run.factors if len({t[name] for t in chosen}) > 1]
    published = {response: published_figures(run, response) for response in table["columns"].values()}
    rows = [_response_row(run, treatment, varying, table["columns"], published) for treatment in chosen]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    told = [column for column in columns if column[1] != "published" or any(row.get(column) for row in rows)]
    cells = [[row.get(column, "") for column in told] for row in rows]
    if not any(below == "published" for _, below in told):
        return pd.DataFrame(cells, columns=[heading for heading, _ in told] if told else None)
    return pd.DataFrame(cells, columns=pd.MultiIndex.from_tuples(told))


def _response_row(
    run: Run,
    treatment: Mapping[str, str],
    varying: Sequence[str],
    columns: Mapping[str, str],
    published: Mapping[str, Mapping[str, str]],
) -> dict[tuple[str, str], str]:
    """One treatment; how far its figures spread, or what was wrong with them, stands once, below the first."""
    row = {(name, ""): treatment[name] for name in varying}
    for place, (heading, response) in enumerate(columns.items()):
        cell = make_cell(run, treatment, response)
        row[heading, "published"] = published[response].get(label(dict(treatment)), "")
        row[heading, "measured"] = cell.text if place else f"{cell.text}\n{cell.spread}"
    return row


def _columns(run: Run, columns: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Levels across in their factor's order, whichever of them the first row had."""
    if not run.layout.across:
        return columns
    levels = run.factors[run.layout.across]
    return sorted(columns, key=lambda column: levels.index(column[0]) if column[1] else -1)
