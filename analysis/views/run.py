"""A run in the terminal: its table, what its verdicts say, its claims. No pandas, no figures: it must start at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from analysis.claims.evaluate import ClaimResult, evaluate_claims
from analysis.claims.findings import Finding, find
from analysis.data.include import included_by_name, included_by_name_sentence
from analysis.data.load import Run
from analysis.formatting import MARKS, claim_figure, label, published_figure, spans, title, words_of
from analysis.summaries.cells import TreatmentCell, make_cell, published_figures, treatments
from analysis.summaries.diagnoses import fidelity, stopping, told_by_treatment
from analysis.summaries.sweeps import rows, sentences, sweep_of
from pagecage.report.export import csv_text, markdown_table
from pagecage.verdicts.evaluate import verdicts_to_json

_COLOUR = {"held": "green", "not_held": "red", "not_comparable": "yellow", "no_data": "yellow"}


def show(run: Run, console: Console) -> None:
    """Print the question, what answers it, the table, the verdict summary and the claims."""
    console.print(f"[bold]{run.plan['experiment']}[/]: {escape(run.definition['question'])}")
    for line in _head(run):
        console.print(line, style="dim")
    for finding in find(run):
        console.print(_finding(finding))
    console.print()
    console.print(_cells(run))
    for part in _sweep(run):
        console.print(part)
    for line in _verdicts(run):
        console.print(line)
    for part in _diagnoses(run):
        console.print(part)
    claims = evaluate_claims(run)
    for part in _claims(claims) if claims else ():
        console.print(part)


def as_json(run: Run) -> dict[str, Any]:
    """The same as data: cells, claims, and each trial's verdicts."""
    return {
        "run_id": run.plan["run_id"],
        "experiment": run.plan["experiment"],
        "size": run.plan["size"],
        "emulated": run.is_emulated,
        "response": run.response,
        "included_by_name": included_by_name(run),
        "findings": [asdict(finding) for finding in find(run)],
        "cells": [_plain(make_cell(run, treatment, run.response)) for treatment in treatments(run)],
        "sweep": asdict(sweep) if (sweep := sweep_of(run)) else None,
        "claims": [asdict(result) for result in evaluate_claims(run)],
        "trials": [
            {"trial_id": t.record.trial_id, "outcome": t.record.outcome, "is_included": t.is_included,
             "response": dict(t.record.response), "verdicts": verdicts_to_json(t.verdicts)}
            for t in run.trials
        ],
    }  # fmt: skip


def _plain(cell: TreatmentCell) -> dict[str, Any]:
    return {**asdict(cell), "treatment": dict(cell.treatment), "text": cell.text, "spread": cell.spread}


def _sweep(run: Run) -> Iterator[Table | str]:
    """Measured beside predicted, and the knee, of a run that varied one limit."""
    sweep = sweep_of(run)
    if sweep is None:
        return
    made = rows(sweep)
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in made[0]:
        table.add_column(name)
    for row in made:
        table.add_row(*row.values())
    yield ""
    yield table
    yield from (f"  {escape(sentence)}" for sentence in sentences(sweep))


def _head(run: Run) -> Iterator[str]:
    yield f"size {run.plan['size']}: {run.plan.get('size_reason') or 'as asked for'}"
    if run.plan.get("until_ci"):
        yield stopping(run)
    if said := included_by_name_sentence(run):
        yield said
    if run.is_emulated:
        yield "emulated (TCG): times that the CPU decides are far too long, not comparable with published ones"


def _finding(finding: Finding) -> str:
    """A sentence of the answer; one without its figure says why."""
    question = f"[dim]{finding.question}[/] " if finding.question else ""
    note = escape(finding.note)
    if finding.value is None:
        return f"  [yellow]?[/] {question}{escape(finding.sentence)} [yellow]not measured[/]: {note}"
    mark = "[green]•[/]" if finding.is_proven else "[yellow]•[/]"
    return f"  {mark} {question}{escape(finding.sentence)}" + (f" [dim]({note})[/]" if note else "")


def _cells(run: Run) -> Table:
    plan, published = run.layout, published_figures(run, run.response)
    levels = run.factors[plan.across] if plan.across else [title(run.response)]
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in [*plan.down, *levels, *([] if plan.across else [""])]:
        table.add_column(name)
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for treatment in treatments(run):
        cell = make_cell(run, treatment, run.response)
        then = published.get(label(dict(treatment)))
        beside = f" [dim]({escape(then)})[/]" if then else ""
        place = rows.setdefault(tuple(treatment[name] for name in plan.down), {})
        told, spread = f"{cell.text}{beside}", f"[dim]{cell.spread}[/]"
        place |= {treatment[plan.across]: f"{told}\n{spread}"} if plan.across else {levels[0]: told, "": spread}
    for key, row in rows.items():
        table.add_row(*key, *(row.get(level, "") for level in (levels if plan.across else [*levels, ""])))
    notes = [*(f"{name} {level} throughout" for name, level in plan.constant.items())]
    table.caption = "; ".join([*notes, *(["in brackets: published"] if published else [])]) or None
    table.caption_justify = "left"
    return table


def _verdicts(run: Run) -> Iterator[str]:
    planned, included = len(run.plan["trials"]), sum(t.is_included for t in run.trials)
    yield f"{planned} trials: {included} averaged in, {planned - included} not."
    for reason, count in Counter(r for t in run.trials if not t.is_included for r in _reasons(t)).most_common():
        yield f"  not averaged in: {count} × {reason}"
    limits = Counter(f"{limit.property} {limit.verdict}" for t in run.trials for limit in t.verdicts.limits)
    for name, words in (
        ("limits", limits),
        ("cache state", Counter(t.verdicts.cache_state_reached.verdict for t in run.trials)),
        ("host", Counter(t.verdicts.host_quiet.verdict for t in run.trials)),
        ("held back by", Counter(t.verdicts.binding_limit.verdict for t in run.trials)),
    ):
        yield f"  {name}: " + (", ".join(f"{n} {word.replace('_', ' ')}" for word, n in words.most_common()) or "none")


def _diagnoses(run: Run) -> Iterator[Table | str]:
    """What held each caged treatment, and how nearly a provider's ways were met."""
    table = Table(box=None, pad_edge=False, show_header=False, show_edge=False, padding=(0, 1, 0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for treatment, told in told_by_treatment(run):
        table.add_row(escape(label(dict(treatment))), escape(told))
    if table.row_count:
        yield table
    yield from (f"  [dim]{escape(told)}.[/]" for told in fidelity(run))


def _reasons(trial: Any) -> tuple[str, ...]:
    return tuple(r.split(":")[0] for r in trial.verdicts.reasons) or (trial.record.outcome.replace("_", " "),)


def _claims(claims: list[ClaimResult]) -> Iterator[Table | str]:
    """The claims, below them each reason once, and those that the run says nothing about."""
    silent = [claim for claim in claims if claim.is_silent]
    claims = [claim for claim in claims if not claim.is_silent]
    reasons = {reason: number for number, reason in enumerate(dict.fromkeys(c.reason for c in claims), start=1)}
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in ("claim", "says", "published", "measured", "verdict"):
        table.add_column(name, overflow="fold")
    for c in claims:
        published, measured = published_figure(c.published, c.unit), claim_figure(c.measured, c.unit, c.verdict)
        verdict = f"[{_COLOUR[c.verdict]}]{MARKS[c.verdict]}[/] [dim]{reasons[c.reason]}[/]"
        table.add_row(c.id, escape(words_of(c.says)), escape(published), escape(measured), verdict)
    if claims:
        yield table
    for why in dict.fromkeys(claim.reason for claim in silent):
        yield f"[dim]{MARKS['no_data']} {spans([c.id for c in silent if c.reason == why])}: {escape(why)}[/]"
    yield from (f"[dim]{number}  {escape(reason)}[/]" for reason, number in reasons.items())


EMULATED = "Emulated (TCG): times that the CPU decides are far too long and comparable with none."


def as_csv(run: Run) -> str:
    """A line a treatment: figures in the response's own unit, with all digits."""
    header = [
        *run.factors, "response", "median", "low", "high", "kind", "n", "killed", "excluded", "unanswered",
        "is_extrapolated", "is_all_excluded",
    ]  # fmt: skip
    return csv_text(header, _csv_rows(run))


def _csv_rows(run: Run) -> Iterator[list[Any]]:
    for treatment in treatments(run):
        cell = make_cell(run, treatment, run.response)
        one = cell.summary
        figures = [one.middle, one.low, one.high, one.kind, one.n] if one else [None, None, None, None, 0]
        flags = [str(flag).lower() for flag in (cell.is_extrapolated, cell.is_all_excluded)]
        yield [*treatment.values(), run.response, *figures, cell.killed, cell.excluded, cell.unanswered, *flags]


def as_markdown(run: Run) -> str:
    """Question, answer, table and claims."""
    parts = [f"**{run.plan['experiment']}**: {run.definition['question']}\n"]
    parts += [f"\n{EMULATED}\n"] if run.is_emulated else []
    found = [f"- {one.sentence}{f' ({one.note})' if one.note else ''}\n" for one in find(run)]
    parts += ["\n", *found] if found else []
    parts += ["\n", _cell_rows(run)]
    claims = [claim for claim in evaluate_claims(run) if not claim.is_silent]
    names = ["claim", "says", "published", "measured", "verdict", "why"]
    parts += ["\n", markdown_table(names, map(_claim, claims))] if claims else []
    return "".join(parts)


def _cell_rows(run: Run) -> str:
    """A line a treatment, without the factors that have one level throughout."""
    factors = [name for name in run.factors if name not in run.layout.constant]
    published = published_figures(run, run.response)
    rows = []
    for treatment in treatments(run):
        cell = make_cell(run, treatment, run.response)
        then = [published.get(label(dict(treatment)), "")] if published else []
        rows.append([*(treatment[name] for name in factors), cell.text, cell.spread, *then])
    constant = "; ".join(f"{name} {level}" for name, level in run.layout.constant.items())
    about = f"\nThroughout: {constant}.\n" if constant else ""
    return markdown_table([*factors, title(run.response), "of", *(["published"] if published else [])], rows) + about


def _claim(claim: ClaimResult) -> list[str]:
    published = published_figure(claim.published, claim.unit)
    measured = claim_figure(claim.measured, claim.unit, claim.verdict)
    return [claim.id, words_of(claim.says), published, measured, MARKS[claim.verdict], claim.reason]
