"""A comparison for the terminal, for documents and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from analysis.data.include import included_by_name
from analysis.formatting import quantity, span, title, told
from analysis.stats.intervals import MedianSummary
from analysis.summaries.cells import TreatmentCell
from analysis.summaries.comparison import Change, Comparison, ComparisonRow, letter, name_of
from pagecage.report.export import csv_text, markdown_table

_MARKS = {"higher": "▲", "lower": "▼", "not told apart": "≈"}
_COLOURS = {"failed": "red", "undecided": "yellow", "passed": "green"}
_KINDS = {"halves": "halves of its own repeats", "twins": "two treatments that are the same"}
NOTHING_DIFFERS = "Nothing that is recorded differs between these runs: a change is noise, or what is not recorded."


def show(comparison: Comparison, console: Console) -> None:
    """Print what is compared, against which warnings, each response's table, what differs, and the gates."""
    for line in _head(comparison):
        console.print(line)
    for response in comparison.responses:
        console.print()
        console.print(_table(comparison, response))
        console.print(f"[dim]{escape(about(comparison, response))}[/]")
    console.print()
    for line in _differences(comparison):
        console.print(line)
    for line in _gates(comparison):
        console.print(line)


def _head(comparison: Comparison) -> Iterator[str]:
    for place, run in enumerate(comparison.runs):
        included = sum(trial.is_included for trial in run.trials)
        left = len(run.plan["trials"]) - included
        named = included_by_name(run)
        also = f", included by name: {', '.join(named)}" if named else ""
        count = f"{included} trials averaged in, {left} not{also}"
        yield f"[bold]{letter(place)}[/] {escape(run.plan['run_id'])} [dim]size {run.plan['size']}, {escape(count)}[/]"
    for one in comparison.obstacles:
        yield f"[yellow]compared anyway, {one.what}:[/] {escape(one.reason)}"


def _table(comparison: Comparison, response: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in header(comparison, response):
        table.add_column(name)
    for line in lines(comparison, response):
        table.add_row(*(escape(text) for text in line))
    return table


def header(comparison: Comparison, response: str) -> list[str]:
    """What stands above the columns of `lines`."""
    what = f"{title(response)} of"
    if len(comparison.runs) == 2:
        return [what, "A", "B", "B / A", "noise", ""]
    return [what, "A", "", "", "by A", "noise", ""]


def lines(comparison: Comparison, response: str) -> Iterator[list[str]]:
    """Treatments as lines of text, one for each run but the first; what belongs to a figure stands below it."""
    for row in comparison.rows:
        for place, change in enumerate(row.changes, start=1) if row.response == response else ():
            first = [name_of(comparison, row.treatment), cell_words(row.cells[0])] if place == 1 else ["", ""]
            run = [letter(place)] if len(comparison.runs) > 2 else []
            yield [*first, *run, cell_words(row.cells[place]), *change_words(change)]


def cell_words(cell: TreatmentCell) -> str:
    """A cell, and below it how many trials stand behind it."""
    left = f", {cell.excluded} excluded" if cell.excluded else ""
    return f"{cell.text}\nn {cell.summary.n}{left}" if cell.summary else cell.text


def change_words(change: Change) -> tuple[str, str, str]:
    """The ratio with its interval, the noise floor, and the word with its mark."""
    floor = f"± {100 * change.floor.share:.2g} %" if change.floor else "–"
    return _ratio(change.ratio), floor, f"{_MARKS.get(change.word, '')} {change.word}".strip()


def _ratio(ratio: MedianSummary | None) -> str:
    if ratio is None:
        return "–"
    middle, low, high = (quantity("amplification", value) for value in (ratio.middle, ratio.low, ratio.high))
    return middle if ratio.n < 2 else f"{middle}\n{ratio.kind} {span(low, high)}"


def about(comparison: Comparison, response: str) -> str:
    """What all treatments come to together, and of what kind the noise floor is."""
    overall = zip(comparison.runs[1:], comparison.overall[response], strict=True)
    parts = [_overall(place, summary) for place, (_, summary) in enumerate(overall, start=1) if summary]
    changes = [change for row in comparison.rows for change in row.changes]
    kinds = dict.fromkeys(_KINDS[change.floor.kind] for change in changes if change.floor)
    return "; ".join([*parts, *(f"noise: {kind}" for kind in kinds)]) or "no figure on both sides"


def _overall(place: int, summary: MedianSummary) -> str:
    interval = told("", summary, is_ratio=True)
    what = "whole blocks drawn" if summary.kind != "range" else "range of the treatments"
    return f"all treatments together, {letter(place)} / A: {interval}, {what}"


def _differences(comparison: Comparison) -> Iterator[Any]:
    for place, names in enumerate(comparison.lacking):
        if names:
            yield f"[dim]not compared, in {letter(place)} alone or not in all: {escape(', '.join(names))}[/]"
    if not comparison.differences:
        yield NOTHING_DIFFERS
        return
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in ("what differs", *(letter(place) for place in range(len(comparison.runs)))):
        table.add_column(name, overflow="fold")
    for difference in comparison.differences:
        table.add_row(escape(difference.name), *map(escape, difference.values))
    yield table


def _gates(comparison: Comparison) -> Iterator[str]:
    for (verdict, gate, run, why), where in judged(comparison).items():
        mark = f"[{_COLOURS[verdict]}]{verdict}[/]"
        yield f"{mark} [bold]{escape(gate)}[/] {run} / A, {escape(why)}: {escape('; '.join(where))}"


def judged(comparison: Comparison) -> dict[tuple[str, str, str, str], list[str]]:
    """Treatments by what a gate says of them (verdict, gate, run, reason), failures first."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for one in sorted(comparison.judgements, key=lambda one: list(_COLOURS).index(one.verdict)):
        where = found.setdefault((one.verdict, one.gate.text, letter(one.run), one.reason), [])
        where.append(name_of(comparison, one.treatment))
    return found


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as data; docs/FORMAT.md lists the keys."""
    return {
        "runs": [
            {"run_id": run.plan["run_id"], "experiment": run.plan["experiment"], "size": run.plan["size"],
             "emulated": run.is_emulated, "included_by_name": included_by_name(run)}
            for run in comparison.runs
        ],
        "obstacles": [asdict(one) for one in comparison.obstacles],
        "rows": [_row_json(row) for row in comparison.rows],
        "overall": {name: [one and asdict(one) for one in ones] for name, ones in comparison.overall.items()},
        "differences": [asdict(one) for one in comparison.differences],
        "lacking": [list(names) for names in comparison.lacking],
        "gates": [
            {"gate": one.gate.text, "run": one.run, "treatment": dict(one.treatment), "verdict": one.verdict,
             "reason": one.reason}
            for one in comparison.judgements
        ],
    }  # fmt: skip


def _row_json(row: ComparisonRow) -> dict[str, Any]:
    cells = [
        {"summary": cell.summary and asdict(cell.summary), "bca": interval, "killed": cell.killed,
         "excluded": cell.excluded, "unanswered": cell.unanswered, "is_all_excluded": cell.is_all_excluded,
         "is_extrapolated": cell.is_extrapolated}
        for cell, interval in zip(row.cells, row.intervals, strict=True)
    ]  # fmt: skip
    changes = [asdict(change) for change in row.changes]
    return {"treatment": dict(row.treatment), "response": row.response, "cells": cells, "changes": changes}


def as_csv(comparison: Comparison) -> str:
    """A line for each treatment, response and compared run."""
    factors = list(comparison.rows[0].treatment)
    figures = ("median", "low", "high", "kind", "n", "excluded", "killed")
    header = [
        *factors, "response", *(f"a_{name}" for name in figures), "run", *(f"b_{name}" for name in figures),
        "ratio", "ratio_low", "ratio_high", "ratio_kind", "noise_floor", "word",
    ]  # fmt: skip
    return csv_text(header, _csv_rows(comparison))


def _csv_rows(comparison: Comparison) -> Iterator[list[Any]]:
    for row in comparison.rows:
        for place, change in enumerate(row.changes, start=1):
            yield [
                *row.treatment.values(), row.response, *_csv_cell(row.cells[0]), letter(place),
                *_csv_cell(row.cells[place]), *csv_summary(change.ratio)[:4],
                change.floor.share if change.floor else None, change.word,
            ]  # fmt: skip


def _csv_cell(cell: TreatmentCell) -> list[Any]:
    return [*csv_summary(cell.summary), cell.excluded, cell.killed]


def csv_summary(summary: MedianSummary | None) -> list[Any]:
    """Median, low, high, kind and number of trials; nothing known without a summary."""
    if summary is None:
        return [None] * 5
    return [summary.middle, summary.low, summary.high, summary.kind, summary.n]


def as_markdown(comparison: Comparison) -> str:
    """Runs, tables and differences for a ticket or a pull request."""
    parts = [f"- {letter(place)}: `{run.plan['run_id']}`\n" for place, run in enumerate(comparison.runs)]
    parts += [f"- compared anyway, {one.what}: {one.reason}\n" for one in comparison.obstacles]
    for response in comparison.responses:
        parts += ["\n", markdown_table(header(comparison, response), lines(comparison, response))]
        parts += ["\n", f"{about(comparison, response)}\n"]
    if comparison.differences:
        names = ["what differs", *(letter(place) for place in range(len(comparison.runs)))]
        parts += ["\n", markdown_table(names, [[one.name, *one.values] for one in comparison.differences])]
    else:
        parts += ["\n", f"{NOTHING_DIFFERS}\n"]
    gates = [
        f"- {verdict}: `{gate}` {run} / A, {why}: {'; '.join(where)}\n"
        for (verdict, gate, run, why), where in judged(comparison).items()
    ]
    return "".join([*parts, *(["\n"] if gates else []), *gates])
