"""Report of the scorecard: every published figure by experiment, and the totals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.claims.scorecard import VERDICTS, Scorecard, ScoredClaim, count_verdicts
from analysis.formatting import (
    break_at_semicolons,
    format_id_ranges,
    format_in_unit,
    format_published,
    format_range,
    format_verdict,
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
            f"{counts[verdict]} {verdict_words(verdict)}" for verdict in VERDICTS if counts[verdict]
        )
    )
    measured = [row for row in rows if row.verdict not in _GROUPED]
    if measured:
        columns = ["claim", "statement", "published", "measured", "verdict", "reason"]
        yield make_table(columns, map(_row, measured))
    groups = dict.fromkeys((row.verdict, row.reason) for row in rows if row.verdict in _GROUPED)
    for verdict, reason in groups:
        ids = [row.id for row in rows if (row.verdict, row.reason) == (verdict, reason)]
        yield Paragraph(f"{verdict_words(verdict)}: {format_id_ranges(ids)}: {reason}", tone="soft")


def _row(row: ScoredClaim) -> list[str | Cell]:
    return [
        row.id,
        break_at_semicolons(row.says),
        format_published(row.published, row.unit),
        format_scored_measurement(row),
        Cell(format_verdict(row.verdict), tone=TONES.get(row.verdict, "plain")),
        Cell(row.reason, tone="soft"),
    ]


def format_scored_measurement(row: ScoredClaim) -> str:
    """Format the measured figure, with its interval if there is more than one trial.

    It is in brackets if it rests on excluded trials alone.
    """
    text = format_in_unit(row.measured, row.unit)
    if row.low is not None and row.high is not None and row.n > 1:
        ends = (format_in_unit(end, row.unit) for end in (row.low, row.high))
        text = f"{text} ({format_range(*ends)})"
    return f"({text}) †" if row.verdict == "no_data" and row.measured is not None else text


def _totals(card: Scorecard) -> Table:
    counts = {**card.totals(), "in all": count_verdicts(card.rows)}
    rows: list[list[str | Cell]] = [
        [name, *(_number(by_verdict, verdict) for verdict in (*VERDICTS, "all"))]
        for name, by_verdict in counts.items()
    ]
    return make_table(["figures of", *map(verdict_words, VERDICTS), "all"], rows)


def _number(counts: dict[str, int], verdict: str) -> Cell:
    return Cell(
        str(counts[verdict]), tone=TONES.get(verdict, "plain") if counts[verdict] else "soft"
    )


def verdict_words(verdict: str) -> str:
    """Return a verdict in words."""
    return verdict.replace("_", " ")
