"""A run's tables for other programs and other people's documents: the cells, and what became of the claims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.cells import make_cell, published_figures, treatments
from analysis.claims import ClaimResult, evaluate_claims
from analysis.export import csv_text, markdown_table
from analysis.findings import find
from analysis.load import Run
from analysis.wording import MARKS, claim_figure, label, published_figure, title, words_of

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
    return [claim.id, words_of(claim.says), published, measured, MARKS[claim.verdict], claim.why]
