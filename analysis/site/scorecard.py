"""Page of the site with every published figure: totals, and a table to sort and filter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

from analysis.claims.hosts import HostedScorecard
from analysis.claims.scorecard import VERDICTS, ScoredClaim, count_verdicts
from analysis.formatting import format_verdict
from analysis.pages.scorecard import article_table, coverage, host_table
from analysis.site.pages import raw_html
from analysis.views.html import blocks_html
from analysis.views.scorecard import verdict_words
from analysis.views.scorecard_columns import MEANINGS, Column, columns
from pagecage.report.model import Table

_BELOW = {
    **dict.fromkeys(("host", "run"), "measured"),
    **dict.fromkeys(("reason", "rule changed"), "verdict"),
    "origin": "published",
}
"""Columns that are shown in small below another column's text."""


def scorecard_page(scored: HostedScorecard, reports: Collection[str]) -> str:
    """Return the page as Markdown; `reports` are the experiments that have a report."""
    every = columns(scored)
    shown = [column for column in every if column.heading not in _BELOW]
    heads = "".join(f"<th>{column.heading}</th>" for column in shown)
    rows = "\n".join(_row(row, every, reports) for row in scored.card.rows)
    chips = f'<div class="chips" role="group" aria-label="Show only">{_chips(scored)}</div>\n'
    table = (
        '<div class="scroll"><table class="pagecage sortable" data-filter="verdict">\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
    )
    return f"""# Every published figure

The experiments retrace five articles. Each row is one of their figures, with the measurement of the
newest run. {coverage(scored).text}

{_totals("By article", article_table(scored))}
{_totals("By host", host_table(scored))}

## All rows

Click a heading to sort the table, or a button to filter it.

{raw_html(f"{chips}{table}")}"""


def _chips(scored: HostedScorecard) -> str:
    counts = count_verdicts(scored.card.rows)
    return "".join(
        f'<button type="button" data-verdict="{verdict}" aria-pressed="false"'
        f' title="{escape(MEANINGS.get(verdict, verdict_words(verdict)))}">'
        f'<b class="{verdict}">{format_verdict(verdict)}</b> {counts[verdict]}</button>'
        for verdict in VERDICTS
        if counts[verdict]
    )


def _totals(heading: str, table: Table) -> str:
    body = f'<div class="totals">{blocks_html((table,))}</div>'
    return f"## {heading}\n\n{raw_html(body)}"


def _row(row: ScoredClaim, every: Sequence[Column], reports: Collection[str]) -> str:
    cells = "".join(
        f"<td>{_cell(column, row, reports)}{_notes(row, column.heading, every)}</td>"
        for column in every
        if column.heading not in _BELOW
    )
    return f'<tr id="{escape(row.id)}" data-verdict="{row.verdict}">{cells}</tr>'


def _notes(row: ScoredClaim, heading: str, every: Sequence[Column]) -> str:
    """Return the small lines below a column's text; a dash is left out."""
    notes = {
        column.heading: column.text(row)
        for column in every
        if _BELOW.get(column.heading) == heading
    }
    if date := notes.get("rule changed", "–").strip("–"):
        notes["rule changed"] = f"rule changed {date}"
    return "".join(f"<small>{escape(text)}</small>" for text in notes.values() if text != "–")


def _cell(column: Column, row: ScoredClaim, reports: Collection[str]) -> str:
    text = escape(column.text(row))
    if column.heading == "experiment" and row.experiment in reports:
        return f'<a href="reports/{text}.html">{text}</a>'
    if column.heading == "verdict":
        return f'<b class="{row.verdict}">{verdict_words(row.verdict)}</b>'
    return text
