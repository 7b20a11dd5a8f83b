"""Columns of the table of published figures, in Markdown and on the site."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analysis.claims.hosts import WITHOUT_RUN, HostedScorecard
from analysis.claims.scorecard import ScoredClaim
from analysis.formatting import break_at_semicolons, format_published, format_verdict
from analysis.views.scorecard import format_scored_measurement

MEANINGS = {
    "held": "as published, by the row's rule",
    "not_held": "measured, but not as published",
    "undecided": "measured, but too few trials or overlapping ranges to decide",
    "not_comparable": "measured, but not at the published size, or on an emulated CPU",
    "requirement_missed": "the host lacks something that the measurement needs",
    "no_data": "the run has no included trial for it",
    "untestable": "no run can test it; the row states the reason",
    "not_run": "no run of its experiment is at hand, or the rule is newer than the run",
}
"""Meanings of the verdicts."""


@dataclass(frozen=True)
class Column:
    """A column: its heading, and the text of a row."""

    heading: str
    text: Callable[[ScoredClaim], str]


def columns(scored: HostedScorecard) -> tuple[Column, ...]:
    """Return the columns, in the order of the table."""
    return (
        Column("figure", lambda row: row.id),
        Column("experiment", lambda row: row.experiment),
        Column("statement", lambda row: break_at_semicolons(row.says)),
        Column("published", lambda row: format_published(row.published, row.unit)),
        Column("measured", format_scored_measurement),
        Column("verdict", lambda row: format_verdict(row.verdict)),
        Column("host", lambda row: _or_dash(scored.host_class(row))),
        Column("run", lambda row: row.run or "–"),
        Column("origin", lambda row: row.origin or "–"),
        Column("rule changed", lambda row: row.rule_changed or "–"),
        Column("reason", lambda row: row.reason),
    )


def _or_dash(host_class: str) -> str:
    return "–" if host_class == WITHOUT_RUN else host_class
