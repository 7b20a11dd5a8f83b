"""Report of the scorecard: every published figure by experiment, and the totals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.claims.scorecard import VERDICTS, Scorecard, ScoredClaim, count_verdicts
from analysis.formatting import (
    MARKS,
    break_at_semicolons,
    format_id_ranges,
    format_in_unit,
    format_published,
    format_range,
)
from pagecage.report.model import Block, Cell, Heading, Paragraph, Report, Table, Tone, make_table

TONES: dict[str, Tone] = {
    "held": "good",
    "not_held": "bad",
    "undecided": "warning",
    "not_comparable": "warning",
    "requirement_missed": "warning",
    "no_data": "warning",
    "untestable": "soft",
    "not_run": "soft",
}
_GROUPED = ("untestable", "not_run")
"""Verdicts that many rows share for one reason; each reason is written once with its rows."""


def scorecard_report(card: Scorecard) -> Report:
    """Return the report: the rows of each experiment, then the totals."""
    blocks: list[Block] = []
    for name in card.totals():
        blocks += _experiment(name, [row for row in card.rows if row.experiment == name])
    return Report("Published figures", (*blocks, Heading("Totals"), _totals(card)))


def _experiment(name: str, rows: Sequence[ScoredClaim]) -> Iterator[Block]:
    counts = count_verdicts(rows)
    yield Heading(name)
    yield Paragraph(
        " · ".join(
            f"{counts[verdict]} {_words(verdict)}" for verdict in VERDICTS if counts[verdict]
        )
    )
    measured = [row for row in rows if row.verdict not in _GROUPED]
    if measured:
        columns = ["claim", "statement", "published", "measured", "verdict", "reason"]
        yield make_table(columns, map(_row, measured))
    groups = dict.fromkeys((row.verdict, row.reason) for row in rows if row.verdict in _GROUPED)
    for verdict, reason in groups:
        ids = [row.id for row in rows if (row.verdict, row.reason) == (verdict, reason)]
        yield Paragraph(f"{_words(verdict)}: {format_id_ranges(ids)}: {reason}", tone="soft")


def _row(row: ScoredClaim) -> list[str | Cell]:
    return [
        row.id,
        break_at_semicolons(row.says),
        format_published(row.published, row.unit),
        format_scored_measurement(row),
        Cell(MARKS[row.verdict], tone=TONES[row.verdict]),
        Cell(row.reason, tone="soft"),
    ]


def format_scored_measurement(row: ScoredClaim) -> str:
    """Format the measured figure, with its interval if there is more than one trial."""
    text = format_in_unit(row.measured, row.unit)
    if row.low is None or row.high is None or row.n < 2:
        return text
    return (
        f"{text}"
        f" ({format_range(format_in_unit(row.low, row.unit), format_in_unit(row.high, row.unit))})"
    )


def _totals(card: Scorecard) -> Table:
    counts = {**card.totals(), "in all": count_verdicts(card.rows)}
    rows: list[list[str | Cell]] = [
        [name, *(_number(by_verdict, verdict) for verdict in (*VERDICTS, "all"))]
        for name, by_verdict in counts.items()
    ]
    return make_table(["figures of", *map(_words, VERDICTS), "all"], rows)


def _number(counts: dict[str, int], verdict: str) -> Cell:
    return Cell(
        str(counts[verdict]), tone=TONES.get(verdict, "plain") if counts[verdict] else "soft"
    )


def _words(verdict: str) -> str:
    return verdict.replace("_", " ")
