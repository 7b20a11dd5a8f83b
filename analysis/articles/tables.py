"""Tables of claims, ratios and scorecards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from analysis.articles.evaluate import (
    ABSOLUTE,
    CONSTRUCTION,
    MECHANISM,
    ClaimResult,
    evaluate_claims,
)
from analysis.articles.ratios import WITHOUT_RUN, HostedScorecard, ratio_tables
from analysis.articles.scorecard import (
    DECIDED,
    VERDICTS,
    ScoredClaim,
    contradiction_sentences,
    count_verdicts,
)
from analysis.data.load import Run
from analysis.formatting import (
    break_at_semicolons,
    format_id_ranges,
    format_in_unit,
    format_published,
    format_quantity,
    format_range,
    format_summary,
    format_verdict,
)
from pagecage.report.model import Block, Cell, Heading, Paragraph, Report, Table, Tone, make_table

_CLAIM_CELL = re.compile(r"<td>(\d{3}-\d+)</td>")


def contradiction_sentence(results: Sequence[ClaimResult]) -> str:
    count, found = _contradictions(results)
    ids = ", ".join(claim.id for claim in found)
    return " ".join([f"{count}: {ids}.", *contradiction_sentences(found)]) if found else ""


def contradiction_html(run: Run) -> str:
    count, found = _contradictions(evaluate_claims(run))
    if not found:
        return ""
    links = ", ".join(f'<a href="#claim-{escape(one.id)}">{escape(one.id)}</a>' for one in found)
    conclusions = "".join(f"<br>{escape(one)}" for one in contradiction_sentences(found))
    return f'<div class="notice warn"><strong>{count}</strong>: {links}.{conclusions}</div>'


_PLURALS = {MECHANISM: "mechanisms", ABSOLUTE: "absolute figures", CONSTRUCTION: "constructions"}


def _contradictions(results: Sequence[ClaimResult]) -> tuple[str, list[ClaimResult]]:
    found = [claim for claim in results if claim.verdict == "not_held"]
    parts = []
    for kind, plural in _PLURALS.items():
        of_kind = [one for one in results if one.counts_as == kind and one.verdict in DECIDED]
        if against := sum(one.verdict == "not_held" for one in of_kind):
            parts.append(f"{against} of {len(of_kind)} {plural}")
    return f"This run contradicts its article in {' and '.join(parts)}", found


def with_anchors(table: str) -> str:
    return _CLAIM_CELL.sub(r'<td id="claim-\1">\1</td>', table)


def ratio_sections(run: Run) -> Iterator[Block]:
    for grid in ratio_tables(run):
        table = grid.table
        about = table.get("about", "")
        if table.get("published") is not None:
            near = sum(map(grid.is_as_published, grid.ratios.values()))
            published = format_quantity("amplification", table["published"])
            about += (
                f" {near} of {len(grid.ratios)} ratios are the published {published} within a"
                f" factor of {grid.tolerance_factor:g}; they are marked ●."
            )
        yield Heading(table["title"])
        if about := about.strip():
            yield Paragraph(about)
        rows: list[list[str | Cell]] = []
        for row in grid.rows:
            cells = []
            for column in grid.columns:
                ratio = grid.ratios.get((row, column))
                text = format_summary("amplification", ratio, is_ratio=True) if ratio else ""
                near_one = ratio and grid.is_as_published(ratio)
                tone: Tone = "good" if near_one else "plain" if ratio else "soft"
                cells.append(Cell(f"● {text}" if near_one else text, tone=tone))
            rows.append([row, *cells])
        yield make_table([f"{table['rows']} \\ {table['columns']}", *grid.columns], rows)


TONES: dict[str, Tone] = {
    **dict.fromkeys(VERDICTS, "warning"),
    **dict.fromkeys(("by_construction", "untestable", "not_run"), "soft"),
    "held": "good",
    "not_held": "bad",
}
_GROUPED = ("untestable", "not_run")
"""Verdicts that many rows share for one reason; each reason is written once with its rows."""


def scorecard_report(scored: HostedScorecard) -> Report:
    blocks: list[Block] = []
    card = scored.card
    totals = card.totals()
    for name, counts in totals.items():
        rows = [row for row in card.rows if row.experiment == name]
        words = (f"{counts[one]} {verdict_words(one)}" for one in VERDICTS if counts[one])
        blocks += [Heading(name), Paragraph(" · ".join(words))]
        measured = [row for row in rows if row.verdict not in _GROUPED]
        if measured:
            lines = [[*claim_cells(row), Cell(row.reason, tone="soft")] for row in measured]
            blocks.append(make_table(CLAIM_COLUMNS, lines))
        groups: dict[tuple[str, str], list[str]] = {}
        for row in rows:
            if row.verdict in _GROUPED:
                groups.setdefault((row.verdict, row.reason), []).append(row.id)
        for (verdict, reason), ids in groups.items():
            text = f"{verdict_words(verdict)}: {format_id_ranges(ids)}: {reason}"
            blocks.append(Paragraph(text, tone="soft"))
    blocks += [Heading("Totals"), count_table("figures of", totals)]
    blocks += other_machines(scored)
    kinds = {**card.totals_by_kind(), "in all": count_verdicts(card.rows)}
    blocks += [count_table("kind", kinds), Paragraph(card.headline())]
    return Report("Published figures", tuple(blocks))


CLAIM_COLUMNS = ("claim", "statement", "published", "measured", "verdict", "reason")


def claim_cells(row: ScoredClaim | ClaimResult) -> list[str | Cell]:
    """Return a row without its reason; a scorecard also has the kind of figure."""
    kind = row.counts_as if isinstance(row, ScoredClaim) else ""
    return [
        row.id,
        break_at_semicolons(row.says),
        format_published(row.published, row.unit),
        format_scored_measurement(row),
        Cell(format_verdict(row.verdict), kind, TONES[row.verdict]),
    ]


def count_table(head: str, counts: Mapping[str, Mapping[str, int]]) -> Table:
    shown = [verdict for verdict in VERDICTS if any(of[verdict] for of in counts.values())]
    lines: list[list[str | Cell]] = [
        [
            name,
            *(Cell(str(of[v]), tone=TONES[v] if of[v] else "soft") for v in shown),
            str(of["all"]),
        ]
        for name, of in counts.items()
    ]
    return make_table([head, *map(verdict_words, shown), "all"], lines)


def other_machines(scored: HostedScorecard) -> Iterator[Block]:
    """Yield what other machines' runs decide, next to these; nothing without such a run."""
    if not scored.others:
        return
    rows = [
        [
            other.run.experiment,
            other.run.run_id,
            other.machine,
            str(len(other.same)),
            ", ".join(other.different) or "–",
            ", ".join(other.alone) or "–",
        ]
        for other in scored.others
    ]
    heads = ["experiment", "run", "machine", "verdicts as here", "other verdict", "decided there"]
    yield Heading("Other machines")
    yield make_table(heads, rows)


def format_scored_measurement(row: ScoredClaim | ClaimResult) -> str:
    """Format the measured figure with its interval and the number of trials on which it rests."""
    if row.measured is None:
        return format_in_unit(None, row.unit)
    about = ", ".join(filter(None, (interval_text(row), f"n {row.n}" if row.n else "")))
    text = f"{format_in_unit(row.measured, row.unit)}{about and f' ({about})'}"
    return f"({text}) †" if row.verdict == "no_data" else text


def interval_text(row: ScoredClaim | ClaimResult) -> str:
    if row.low is None or row.high is None or row.n < 2:
        return ""
    return format_range(*(format_in_unit(end, row.unit) for end in (row.low, row.high)))


def verdict_words(verdict: str) -> str:
    return verdict.replace("_", " ")


MEANINGS = {
    "held": "as published, by the row's rule",
    "not_held": "measured, but not as published",
    "by_construction": "fixed by the definition or the set-up; not counted as reproduced",
    "undecided": "measured, but the interval includes the bound, or there is only one trial",
    "not_comparable": "measured, but not at the published size, or on an emulated CPU",
    "requirement_missed": "the host lacks a requirement of the measurement",
    "no_data": "the run has no included trial for the row",
    "untestable": "no run can test it; the row states the reason",
    "not_run": "there is no run of its experiment, or the rule is newer than the run",
}
"""Meanings of the verdicts."""


def row_texts(scored: HostedScorecard, row: ScoredClaim) -> dict[str, str]:
    """Return a row of the scorecard by the headings of its columns."""
    host = scored.host_class(row)
    return {
        "figure": row.id,
        "kind": row.counts_as,
        "experiment": row.experiment,
        "statement": break_at_semicolons(row.says),
        "published": format_published(row.published, row.unit),
        "measured": format_scored_measurement(row),
        "verdict": format_verdict(row.verdict),
        "host": "–" if host == WITHOUT_RUN else host,
        "run": row.run or "–",
        "origin": row.origin or "–",
        "rule changed": row.rule_changed or "–",
        "reason": row.reason,
    }
