"""Report of a fleet run, and the fleet run as JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis.formatting import format_summary, response_title
from analysis.summaries.comparison import Comparison, ComparisonRow, varying_label
from analysis.summaries.fleet import Fleet, FleetMember, HostFact, facts
from analysis.views.comparison import change_cells, csv_summary, ratio_image
from pagecage.report.export import csv_text
from pagecage.report.model import Block, Cell, Folded, Heading, Paragraph, Report, Table, make_table

_NO_RECORDS = "No host has a record yet."
_MODES = {
    "replicate": "the whole plan on every host",
    "spread": "its repeats distributed over the hosts",
}


def fleet_report(fleet: Fleet) -> Report:
    """Return the report: members, the table of figures, and the facts in which hosts differ."""
    blocks: list[Block] = [Paragraph(f"Mode: {_MODES[fleet.document['mode']]}.")]
    blocks += [
        Paragraph(
            member_sentence(member), tone="plain" if member.is_complete else "warning", marker="•"
        )
        for member in fleet.members
    ]
    left_out = (fleet.document.get("left_out") or {}).items()
    blocks += [
        Paragraph(f"{host}: left out: {reason}", tone="warning", marker="•")
        for host, reason in left_out
    ]
    if fleet.comparison is None:
        blocks.append(Paragraph(_NO_RECORDS))
    else:
        blocks[:0] = [Paragraph(fleet.comparison.runs[0].definition["question"], tone="strong")]
        blocks += [*_figures(fleet, fleet.comparison), *_facts(fleet)]
    return Report(f"{fleet.document['experiment']} on {fleet.document['group']}", tuple(blocks))


def member_sentence(member: FleetMember) -> str:
    """Return how many trials of a host have an answer and, if some are missing, the reason."""
    count = f"{member.host}: {member.answered} of {member.planned} trials have an answer"
    if member.is_complete:
        return count
    outcome = member.outcome or "not run yet"
    return f"{count}; {outcome}{f': {member.reason}' if member.reason else ''}"


def _figures(fleet: Fleet, comparison: Comparison) -> Iterator[Block]:
    for one in comparison.obstacles:
        yield Paragraph(f"Hosts differ in {one.what}: {one.reason}", tone="warning")
    yield Heading(response_title(comparison.responses[0]))
    yield ratio_image(comparison, comparison.rows)
    yield _response_table(fleet, comparison)
    yield Paragraph(_note(fleet), tone="soft")


def _hosts(fleet: Fleet) -> list[str]:
    """Return the letter and name of each host with records."""
    return [f"{letter} {member.host}" for letter, member in fleet.members_with_records]


def _response_table(fleet: Fleet, comparison: Comparison) -> Table:
    """Return a row per treatment: each host's median, and its ratio to the first host's."""
    first, *others = _hosts(fleet)
    ratio_columns = [column for host in others for column in (host, f"{host.split()[0]} / A")]
    together = ["all hosts"] if fleet.is_spread else []
    columns = [response_title(comparison.responses[0]), *together, first, *ratio_columns]
    return make_table(columns, [_row(fleet, comparison, row) for row in comparison.rows])


def _row(fleet: Fleet, comparison: Comparison, row: ComparisonRow) -> list[str | Cell]:
    summary = fleet.all_hosts(row.treatment, row.response)
    together = (
        [format_summary(row.response, summary, is_ratio=False) if summary else "–"]
        if fleet.is_spread
        else []
    )
    first, *others = [Cell(cell.text, cell.spread) for cell in row.cells]
    pairs = zip(others, map(change_cells, row.changes), strict=True)
    compared = [
        cell for other, (ratio, _, word) in pairs for cell in (other, _with_word(ratio, word))
    ]
    return [varying_label(comparison, row.treatment), *together, first, *compared]


def _with_word(ratio: Cell, word: Cell) -> Cell:
    return Cell(ratio.text, "\n".join(text for text in (ratio.detail, word.text) if text))


def _note(fleet: Fleet) -> str:
    note = "medians over included trials, with their spread below; ratios are by the first host"
    pooled = "all hosts: the median of their medians; below six hosts, with the range of these"
    return f"{note}; {pooled}" if fleet.is_spread else note


def _facts(fleet: Fleet) -> Iterator[Block]:
    found = facts(fleet)
    differing = [fact for fact in found if fact.differs]
    if differing:
        yield Heading("Facts in which the hosts differ")
        yield _fact_table(fleet, differing)
    yield Folded("all facts of the hosts", (_fact_table(fleet, found),))


def _fact_table(fleet: Fleet, found: list[HostFact]) -> Table:
    return make_table(["fact", *_hosts(fleet)], [[fact.name, *fact.values] for fact in found])


def write_report(fleet: Fleet) -> Path:
    """Write report.html into the fleet run's folder; return its path."""
    from analysis.views.html import to_html, write_page

    target = fleet.path / "report.html"
    write_page(
        to_html(
            fleet_report(fleet), f"{fleet.document['experiment']} · {fleet.document['run_id']}"
        ),
        target,
    )
    return target


def as_json(fleet: Fleet) -> dict[str, Any]:
    """Return the fleet run as JSON data; docs/FORMAT.md lists the keys."""
    return {
        "run_id": fleet.document["run_id"],
        "experiment": fleet.document["experiment"],
        "group": fleet.document["group"],
        "mode": fleet.document["mode"],
        "left_out": fleet.document.get("left_out") or {},
        "hosts": [_member_json(member) for member in fleet.members],
        "rows": [_row_json(fleet, row) for row in _rows(fleet)],
        "facts": [
            {"name": fact.name, "differs": fact.differs, "values": list(fact.values)}
            for fact in facts(fleet)
        ],
    }


def _member_json(member: FleetMember) -> dict[str, Any]:
    run_id = member.run.plan["run_id"] if member.run else None
    counts = {"planned": member.planned, "answered": member.answered}
    return {
        "host": member.host,
        "run_id": run_id,
        **counts,
        "outcome": member.outcome,
        "reason": member.reason,
    }


def _rows(fleet: Fleet) -> tuple[ComparisonRow, ...]:
    return fleet.comparison.rows if fleet.comparison else ()


def _row_json(fleet: Fleet, row: ComparisonRow) -> dict[str, Any]:
    names = [member.host for _, member in fleet.members_with_records]
    together = fleet.all_hosts(row.treatment, row.response)
    return {
        "treatment": dict(row.treatment),
        "response": row.response,
        "all_hosts": together and asdict(together),
        "hosts": {
            host: {
                "summary": cell.summary and asdict(cell.summary),
                "killed": cell.killed,
                "excluded": cell.excluded,
                "unanswered": cell.unanswered,
            }
            for host, cell in zip(names, row.cells, strict=True)
        },
        "ratios": {
            host: asdict(change) for host, change in zip(names[1:], row.changes, strict=True)
        },
    }


def as_csv(fleet: Fleet) -> str:
    """Return a line for each treatment and host."""
    rows = _rows(fleet)
    factors = list(rows[0].treatment) if rows else []
    names = [
        *factors,
        "response",
        "host",
        "median",
        "low",
        "high",
        "kind",
        "n",
        "excluded",
        "killed",
        "unanswered",
    ]
    return csv_text(names, _csv_rows(fleet))


def _csv_rows(fleet: Fleet) -> Iterator[list[Any]]:
    for row in _rows(fleet):
        for (_, member), cell in zip(fleet.members_with_records, row.cells, strict=True):
            counts = cell.excluded, cell.killed, cell.unanswered
            yield [
                *row.treatment.values(),
                row.response,
                member.host,
                *csv_summary(cell.summary),
                *counts,
            ]
