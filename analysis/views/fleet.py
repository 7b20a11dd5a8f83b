"""A fleet run for the terminal, for documents and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from analysis.formatting import title, told
from analysis.summaries.comparison import Comparison, ComparisonRow, name_of
from analysis.summaries.fleet import Fleet, FleetMember, facts
from analysis.views.comparison import change_words, csv_summary
from pagecage.report.export import csv_text, markdown_table

NOTHING = "No host has a record yet."
_DIFFERS = "≠"
_MODES = {"replicate": "the whole plan on every host", "spread": "its repeats dealt over the hosts"}


def show(fleet: Fleet, console: Console) -> None:
    """Print who took part, the table, what each host is, and who was lost."""
    document = fleet.document
    console.print(f"[bold]{document['experiment']}[/] on {escape(document['group'])}: {_MODES[document['mode']]}")
    for part in fleet.parts:
        console.print(escape(part_words(part)), style="" if part.is_whole else "yellow")
    for words in left_out_words(fleet):
        console.print(escape(words), style="yellow")
    if fleet.comparison is None:
        console.print(NOTHING)
        return
    for one in fleet.comparison.obstacles:
        console.print(f"[yellow]hosts differ in {one.what}:[/] {escape(one.reason)}")
    differing = [[name, mark, *values] for name, mark, *values in fact_lines(fleet) if mark]
    _print_table(console, header(fleet), lines(fleet))
    if differing:
        _print_table(console, ["what each host is", "", *hosts(fleet)], differing)
    console.print(f"[dim]{escape(about(fleet))}[/]")


def _print_table(console: Console, names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in names:
        table.add_column(escape(name), overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print()
    console.print(table)


def left_out_words(fleet: Fleet) -> Iterator[str]:
    """Hosts of the group that took no part, and why."""
    yield from (f"{host}: left out: {why}" for host, why in (fleet.document.get("left_out") or {}).items())


def part_words(part: FleetMember) -> str:
    """One host's share of the run, and why something of it is lacking."""
    counted = f"{part.host}: {part.answered} of {part.planned} trials have their answer"
    if part.is_whole:
        return counted
    outcome = part.outcome or "not run yet"
    return f"{counted}; {outcome}{f': {part.reason}' if part.reason else ''}"


def hosts(fleet: Fleet) -> list[str]:
    """The hosts with records, by letter and name."""
    return [f"{letter} {part.host}" for letter, part in fleet.shown]


def header(fleet: Fleet) -> list[str]:
    """What stands above the columns of `lines`."""
    assert fleet.comparison is not None
    what = title(fleet.comparison.responses[0])
    first, *others = hosts(fleet)
    columns = [first, *(text for host in others for text in (host, f"{host.split()[0]} / A"))]
    return [what, *(["all hosts"] if fleet.is_spread else []), *columns]


def lines(fleet: Fleet) -> Iterator[list[str]]:
    """Treatments as lines of text: each host's median with its interval below, and its ratio to the first host's."""
    for row in fleet.comparison.rows if fleet.comparison else ():
        assert fleet.comparison is not None
        cells = [f"{cell.text}\n{cell.spread}" for cell in row.cells]
        others = [text for cell, words in zip(cells[1:], _ratios(row), strict=True) for text in (cell, words)]
        yield [name_of(fleet.comparison, row.treatment), *_all_hosts(fleet, row), cells[0], *others]


def _ratios(row: ComparisonRow) -> list[str]:
    return [f"{words[0]}\n{words[2]}" for words in map(change_words, row.changes)]


def _all_hosts(fleet: Fleet, row: ComparisonRow) -> list[str]:
    summary = fleet.all_hosts(row.treatment, row.response)
    if not fleet.is_spread:
        return []
    return ["–" if summary is None else told(row.response, summary, is_ratio=False)]


def fact_lines(fleet: Fleet) -> Iterator[list[str]]:
    """Facts with a mark where the hosts differ, those first."""
    for fact in sorted(facts(fleet), key=lambda fact: not fact.differs):
        yield [fact.name, _DIFFERS if fact.differs else "", *fact.values]


def about(fleet: Fleet) -> str:
    """How the figures are to be read."""
    figures = (
        "medians over the trials that count, below them how far they spread; ratios are of medians, by the first host"
    )
    many = "all hosts: hosts are drawn, then their trials; with fewer than six, the range of their medians"
    return f"{figures}; {many}" if fleet.is_spread else figures


def as_json(fleet: Fleet) -> dict[str, Any]:
    """The fleet run as data; docs/FORMAT.md lists the keys."""
    rows = [_row_json(fleet, row) for row in _rows(fleet.comparison)]
    return {
        "run_id": fleet.document["run_id"], "experiment": fleet.document["experiment"],
        "group": fleet.document["group"], "mode": fleet.document["mode"],
        "left_out": fleet.document.get("left_out") or {}, "hosts": [_part_json(part) for part in fleet.parts],
        "rows": rows,
        "facts": [{"name": fact.name, "differs": fact.differs, "values": list(fact.values)} for fact in facts(fleet)],
    }  # fmt: skip


def _part_json(part: FleetMember) -> dict[str, Any]:
    run_id = part.run.plan["run_id"] if part.run else None
    counts = {"planned": part.planned, "answered": part.answered}
    return {"host": part.host, "run_id": run_id, **counts, "outcome": part.outcome, "reason": part.reason}


def _rows(comparison: Comparison | None) -> tuple[ComparisonRow, ...]:
    return comparison.rows if comparison else ()


def _row_json(fleet: Fleet, row: ComparisonRow) -> dict[str, Any]:
    names = [part.host for _, part in fleet.shown]
    together = fleet.all_hosts(row.treatment, row.response)
    return {
        "treatment": dict(row.treatment), "response": row.response,
        "all_hosts": together and asdict(together),
        "hosts": {
            host: {"summary": cell.summary and asdict(cell.summary), "killed": cell.killed, "excluded": cell.excluded,
                   "unanswered": cell.unanswered}
            for host, cell in zip(names, row.cells, strict=True)
        },
        "ratios": {host: asdict(change) for host, change in zip(names[1:], row.changes, strict=True)},
    }  # fmt: skip


def as_csv(fleet: Fleet) -> str:
    """A line for each treatment and host."""
    rows = _rows(fleet.comparison)
    factors = list(rows[0].treatment) if rows else []
    names = [*factors, "response", "host", "median", "low", "high", "kind", "n", "excluded", "killed", "unanswered"]
    return csv_text(names, _csv_rows(fleet))


def _csv_rows(fleet: Fleet) -> Iterator[list[Any]]:
    for row in _rows(fleet.comparison):
        for (_, part), cell in zip(fleet.shown, row.cells, strict=True):
            counts = cell.excluded, cell.killed, cell.unanswered
            yield [*row.treatment.values(), row.response, part.host, *csv_summary(cell.summary), *counts]


def as_markdown(fleet: Fleet) -> str:
    """Hosts, table and facts for a ticket."""
    parts = [f"- {words}\n" for words in (*map(part_words, fleet.parts), *left_out_words(fleet))]
    if fleet.comparison is None:
        return "".join([*parts, "\n", NOTHING, "\n"])
    differing = [line for line in fact_lines(fleet) if line[1]]
    table = markdown_table(["what each host is", "", *hosts(fleet)], differing)
    return "".join([*parts, "\n", markdown_table(header(fleet), lines(fleet)), "\n", f"{about(fleet)}\n", "\n", table])
