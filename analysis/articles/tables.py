"""Tables of claims, ratios and scorecards."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

import pandas as pd

from analysis.articles.evaluate import ClaimResult, evaluate_claims
from analysis.articles.ratios import WITHOUT_RUN, HostedScorecard, RatioGrid, ratio_tables
from analysis.articles.scorecard import (
    VERDICTS,
    Scorecard,
    ScoredClaim,
    contradiction_sentences,
    count_verdicts,
)
from analysis.data.load import Run
from analysis.formatting import (
    break_at_semicolons,
    format_id_ranges,
    format_in_unit,
    format_measured,
    format_published,
    format_quantity,
    format_range,
    format_summary,
    format_verdict,
)
from pagecage.model.published_figures import PublishedFigure
from pagecage.report.model import Block, Cell, Heading, Paragraph, Report, Table, Tone, make_table

_SHORT_TEXT = 24


def claims_table(run: Run) -> pd.DataFrame:
    """Return the claims for which the run has a figure: published, measured, verdict and reason."""
    return pd.DataFrame(
        [_claim_row(result) for result in evaluate_claims(run) if not result.is_silent]
    )


def silent_table(run: Run) -> pd.DataFrame:
    """Return the claims for which the run has no figure, and the reasons."""
    silent = [_claim_row(result) for result in evaluate_claims(run) if result.is_silent]
    return pd.DataFrame(
        silent, columns=["claim", "statement", "published", "reason"] if silent else None
    )


def _claim_row(result: ClaimResult) -> dict[str, str]:
    spread = ""
    if result.low is not None and result.high is not None and result.n > 1:
        low, high = (
            format_in_unit(result.low, result.unit),
            format_in_unit(result.high, result.unit),
        )
        spread = f"\n{result.kind} {format_range(low, high)}, n {result.n}"
    return {
        "claim": result.id,
        "statement": break_at_semicolons(result.says),
        "published": _unbroken(format_published(result.published, result.unit)),
        "measured": _unbroken(format_measured(result.measured, result.unit, result.verdict))
        + spread,
        "verdict": _unbroken(format_verdict(result.verdict)),
        "reason": result.reason,
    }


def _unbroken(text: str) -> str:
    """Keep a figure beside its unit; a long list of flags may break between them."""
    return (
        text.replace(" ", "\N{NO-BREAK SPACE}")
        if len(text) <= _SHORT_TEXT
        else text.replace("|", " ")
    )


def untestable_table(run: Run, rows: Sequence[PublishedFigure]) -> pd.DataFrame:
    """Return the experiment's published figures that no run can test, grouped by reason."""
    found: dict[str, list[PublishedFigure]] = {}
    for row in rows:
        if row.untestable and run.plan["experiment"] in row.experiments:
            found.setdefault(row.untestable, []).append(row)
    return pd.DataFrame(
        [
            {
                "claims": ", ".join(row.id for row in figures),
                "published": _figures(figures),
                "reason": reason,
            }
            for reason, figures in found.items()
        ]
    )


def _figures(rows: Sequence[PublishedFigure]) -> str:
    return "; ".join(f"{row.metric} {format_published(row.published, row.unit)}" for row in rows)


_CLAIM_CELL = re.compile(r"<td>(\d{3}-\d+)</td>")


def contradiction_sentence(results: Sequence[ClaimResult]) -> str:
    """Return how many published figures a run contradicts, and their ids; empty if none."""
    found = _not_held(results)
    if not found:
        return ""
    ids = f"{_count(results, found)}: {', '.join(claim.id for claim in found)}."
    return " ".join([ids, *contradiction_sentences(found)])


def contradiction_html(run: Run) -> str:
    """Return the notice as a box whose ids link to the rows of the claims; empty if none."""
    results = evaluate_claims(run)
    found = _not_held(results)
    if not found:
        return ""
    links = ", ".join(f'<a href="#claim-{escape(one.id)}">{escape(one.id)}</a>' for one in found)
    conclusions = "".join(f"<br>{escape(one)}" for one in contradiction_sentences(found))
    head = f"<strong>{_count(results, found)}</strong>: {links}."
    return f'<div class="notice warn">{head}{conclusions}</div>'


def _not_held(results: Sequence[ClaimResult]) -> list[ClaimResult]:
    return [claim for claim in results if claim.verdict == "not_held"]


def _count(results: Sequence[ClaimResult], found: list[ClaimResult]) -> str:
    compared = sum(claim.verdict in ("held", "not_held") for claim in results)
    noun = "figure" if compared == 1 else "figures"
    return f"This run contradicts its article in {len(found)} of {compared} {noun} compared"


def with_anchors(table: str) -> str:
    """Return the HTML of a table of claims with an anchor at each id."""
    return _CLAIM_CELL.sub(r'<td id="claim-\1">\1</td>', table)


def ratio_sections(run: Run) -> Iterator[Block]:
    """Yield each table of ratios with its title; nothing if the definition has none."""
    for table in ratio_tables(run):
        yield Heading(table.title)
        if about := _about(table):
            yield Paragraph(about)
        yield make_table(
            [f"{table.row_factor} \\ {table.column_factor}", *table.columns],
            [[row, *(_cell(table, row, column) for column in table.columns)] for row in table.rows],
        )


def _about(table: RatioGrid) -> str:
    if table.published is None:
        return table.about
    near = sum(map(table.is_as_published, table.ratios.values()))
    published = format_quantity("amplification", table.published)
    sentence = (
        f"{near} of {len(table.ratios)} ratios are the published {published} within a factor of"
        f" {table.tolerance_factor:g}; they are marked ●."
    )
    return f"{table.about} {sentence}".strip()


def _cell(table: RatioGrid, row: str, column: str) -> Cell:
    ratio = table.ratios.get((row, column))
    if ratio is None:
        return Cell("", tone="soft")
    text = format_summary("amplification", ratio, is_ratio=True)
    is_near = table.is_as_published(ratio)
    return Cell(f"● {text}" if is_near else text, tone="good" if is_near else "plain")


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
