"""Page of the site with every published figure: totals, and a table to sort and filter."""

from __future__ import annotations

from collections.abc import Collection
from html import escape

from analysis.claims.hosts import HostedScorecard
from analysis.claims.scorecard import VERDICTS, ScoredClaim, count_verdicts
from analysis.formatting import format_verdict
from analysis.views.html import blocks_html
from analysis.views.scorecard import verdict_words
from analysis.views.scorecard_columns import MEANINGS, Column, columns
from analysis.views.scorecard_page import article_table, coverage, host_table
from pagecage.report.model import Heading

_FOLDED = ("reason", "rule changed")
"""Columns that are shown in small below the verdict."""


def scorecard_page(scored: HostedScorecard, reports: Collection[str]) -> str:
    """Return the page as Markdown; `reports` are the experiments that have a report."""
    shown = [column for column in columns(scored) if column.heading not in _FOLDED]
    small = [column for column in columns(scored) if column.heading in _FOLDED]
    heads = "".join(f"<th>{column.heading}</th>" for column in shown)
    rows = "\n".join(_row(row, shown, small, reports) for row in scored.card.rows)
    totals = blocks_html(
        (Heading("By article"), article_table(scored), Heading("By host"), host_table(scored))
    )
    return f"""# Every published figure

The experiments retrace five articles. Each row is one of their figures, with the measurement of the
newest run. {coverage(scored).text}

```{{raw}} html
{totals}<h2>All rows</h2>
<p>Click a heading to sort the table, or a button to filter it.</p>
<div class="chips" role="group" aria-label="Show only">{_chips(scored)}</div>
<div class="scroll"><table class="pagecage sortable" data-filter="verdict">
<thead><tr>{heads}</tr></thead>
<tbody>
{rows}
</tbody></table></div>
```
"""


def _chips(scored: HostedScorecard) -> str:
    counts = count_verdicts(scored.card.rows)
    return "".join(
        f'<button type="button" data-verdict="{verdict}" aria-pressed="false"'
        f' title="{escape(MEANINGS.get(verdict, verdict_words(verdict)))}">'
        f'<b class="{verdict}">{format_verdict(verdict)}</b> {counts[verdict]}</button>'
        for verdict in VERDICTS
        if counts[verdict]
    )


def _row(
    row: ScoredClaim, shown: list[Column], small: list[Column], reports: Collection[str]
) -> str:
    notes = "".join(f"<small>{escape(column.text(row))}</small>" for column in small)
    cells = "".join(f"<td>{_cell(column, row, notes, reports)}</td>" for column in shown)
    return f'<tr id="{escape(row.id)}" data-verdict="{row.verdict}">{cells}</tr>'


def _cell(column: Column, row: ScoredClaim, notes: str, reports: Collection[str]) -> str:
    text = escape(column.text(row))
    if column.heading == "experiment" and row.experiment in reports:
        return f'<a href="reports/{text}.html">{text}</a>'
    if column.heading == "verdict":
        return f'<b class="{row.verdict}">{verdict_words(row.verdict)}</b>{notes}'
    return text
