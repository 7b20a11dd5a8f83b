"""Report of a run, and the run as JSON and CSV.

Neither pandas nor matplotlib is imported, so that `pagecage show` starts quickly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from analysis.claims.evaluate import ClaimResult, evaluate_claims
from analysis.claims.findings import Finding, evaluate_findings
from analysis.claims.hosts import real_cpu_sentence
from analysis.claims.published_ratios import published_ratios
from analysis.data.include import included_by_name, included_by_name_sentence
from analysis.data.load import JudgedTrial, Run
from analysis.formatting import (
    break_at_semicolons,
    format_id_ranges,
    format_measured,
    format_published,
    format_verdict,
    response_title,
    treatment_label,
)
from analysis.summaries.cells import TreatmentCell, make_cell, published_by_treatment, treatments
from analysis.summaries.diagnoses import (
    diagnosis_by_treatment,
    fidelity_lines,
    stopping_rule_status,
)
from analysis.summaries.memory import memory_json
from analysis.summaries.per_unit import per_unit, per_unit_heading
from analysis.summaries.proof import cache_state_tally, gap_sentence, repeat_differences
from analysis.summaries.sweeps import sweep_of, sweep_rows, sweep_sentences
from analysis.views.bars import median_image
from analysis.views.comparison import csv_summary
from analysis.views.contradictions import contradiction_sentence
from analysis.views.rare_sections import memory_section, minima_section, volume_section
from analysis.views.ratio_tables import ratio_sections
from analysis.views.scorecard import TONES
from pagecage.report.export import csv_text
from pagecage.report.model import Block, Cell, Heading, Paragraph, Report, Table, Tone, make_table
from pagecage.verdicts.evaluate import verdicts_to_json
from pagecage.verdicts.verdict import limit_title

_EMULATED = (
    "Emulated (TCG): times that depend on the CPU are far too long and not comparable with"
    " published ones."
)


def run_report(run: Run) -> Report:
    """Return the report: question, findings, table, verdicts, diagnoses and claims."""
    blocks: list[Block] = [Paragraph(run.definition["question"], tone="strong")]
    results = evaluate_claims(run)
    blocks += _contradictions(results)
    blocks += _limitations(run)
    blocks += memory_section(run)
    blocks += map(_finding, evaluate_findings(run), published_ratios(run))
    blocks += ratio_sections(run)
    blocks += [Heading(response_title(run.response)), _response_table(run)]
    blocks += [median_image(run)]
    blocks += volume_section(run)
    blocks += [*_sweep(run), *_verdicts(run), *_diagnoses(run), *_claims(results)]
    blocks += minima_section(run)
    return Report(run.plan["experiment"], tuple(blocks))


def _contradictions(results: Sequence[ClaimResult]) -> Iterator[Block]:
    if sentence := contradiction_sentence(results):
        yield Paragraph(sentence, "see Published and measured", tone="bad")


def _limitations(run: Run) -> Iterator[Paragraph]:
    yield Paragraph(
        f"size {run.plan['size']}: {run.plan.get('size_reason') or 'as requested'}", tone="soft"
    )
    if run.plan.get("until_ci"):
        yield Paragraph(stopping_rule_status(run), tone="soft")
    if sentence := included_by_name_sentence(run):
        yield Paragraph(sentence, tone="warning")
    if machine := real_cpu_sentence(run):
        yield Paragraph(f"{machine}.", tone="soft")
    if run.is_emulated:
        yield Paragraph(_EMULATED, tone="warning")


def _finding(finding: Finding, published: str) -> Paragraph:
    """Return a sentence of the answer; one without a figure states the reason."""
    question = f"{finding.question} " if finding.question else ""
    if finding.value is None:
        text = f"{question}{finding.sentence} not measured: {finding.note}"
        return Paragraph(text, tone="warning", marker="?")
    note = "; ".join(
        part for part in (published and f"published: {published}", finding.note) if part
    )
    tone: Tone = "plain" if finding.is_proven else "warning"
    return Paragraph(question + finding.sentence, note, tone, "•")


def _response_table(run: Run) -> Table:
    """Return the experiment's table, laid out as the run's layout says."""
    layout, published = run.layout, published_by_treatment(run, run.response)
    levels = run.factors[layout.across] if layout.across else [response_title(run.response), ""]
    heading = per_unit_heading(run.response)
    rows: dict[tuple[str, ...], dict[str, Cell]] = {}
    for treatment in treatments(run):
        cell = make_cell(run, treatment, run.response)
        row = rows.setdefault(tuple(treatment[name] for name in layout.down), {})
        figure = published.get(treatment_label(treatment))
        text = f"{cell.text} ({figure})" if figure else cell.text
        if layout.across:
            unit = _per_unit_text(run, cell, heading)
            row[treatment[layout.across]] = Cell(text, "\n".join(filter(None, (cell.spread, unit))))
        else:
            row |= {levels[0]: Cell(text), "": Cell(cell.spread, tone="soft")}
            if heading:
                row[heading] = Cell(_per_unit_text(run, cell, ""))
    if any(heading in row and row[heading].text for row in rows.values()):
        levels = [levels[0], str(heading), levels[1]]
    cells: list[list[str | Cell]] = [
        [*key, *(row.get(level, Cell("")) for level in levels)] for key, row in rows.items()
    ]
    notes = [f"{name} {level} throughout" for name, level in layout.constant.items()]
    if gap := gap_sentence(run):
        notes.append(gap)
    caption = "; ".join([*notes, *(["in brackets: published"] if published else [])])
    return make_table([*layout.down, *levels], cells, caption)


def _per_unit_text(run: Run, cell: TreatmentCell, heading: str | None) -> str:
    """Return the time per unit of work, after its name, with the published one in brackets."""
    found = per_unit(run, cell) if heading is not None else None
    if found is None or not found.measured:
        return ""
    published = f" ({found.published})" if found.published else ""
    return f"{heading} {found.measured}{published}".strip()


def _sweep(run: Run) -> Iterator[Block]:
    sweep = sweep_of(run)
    if sweep is not None:
        rows = sweep_rows(sweep)
        yield Heading(f"Sweep of {sweep.property}")
        yield make_table(list(rows[0]), [list(row.values()) for row in rows])
        yield from (Paragraph(sentence, marker="•") for sentence in sweep_sentences(sweep))


def _verdicts(run: Run) -> Iterator[Block]:
    planned, included = len(run.plan["trials"]), sum(trial.is_included for trial in run.trials)
    yield Heading("Trials and verdicts")
    yield Paragraph(f"{planned} trials: {included} included, {planned - included} not.")
    reasons = Counter(
        reason for trial in run.trials if not trial.is_included for reason in _reasons(trial)
    )
    for reason, count in reasons.most_common():
        yield Paragraph(f"not included: {count} × {reason}", marker="•")
    if any(trial.is_valid_apart_from_noise and trial.is_excluded for trial in run.trials):
        again = f"pagecage run {run.plan['experiment']} --resume --repeat-excluded"
        yield Paragraph(f"{again} measures them once more, if no newer run exists", marker="•")
    verdicts = [trial.verdicts for trial in run.trials]
    for sentence in repeat_differences(run):
        yield Paragraph(sentence, tone="warning", marker="•")
    yield Paragraph(f"cache state: {cache_state_tally(run.trials) or 'none'}", marker="•")
    for name, words in (
        (
            "limits",
            [f"{limit_title(limit)} {limit.verdict}" for one in verdicts for limit in one.limits],
        ),
        ("host", [one.host_quiet.verdict for one in verdicts]),
        ("binding limit", [one.binding_limit.verdict for one in verdicts]),
    ):
        counts = Counter(words).most_common()
        tally = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in counts) or "none"
        yield Paragraph(f"{name}: {tally}", marker="•")


def _reasons(trial: JudgedTrial) -> Sequence[str]:
    reasons = [reason.split(":")[0] for reason in trial.verdicts.reasons]
    return reasons or [trial.record.outcome.replace("_", " ")]


def _diagnoses(run: Run) -> Iterator[Block]:
    rows = [
        (treatment_label(treatment), diagnosis)
        for treatment, diagnosis in diagnosis_by_treatment(run)
    ]
    lines = fidelity_lines(run)
    if rows or lines:
        yield Heading("Diagnosis")
        yield make_table(["treatment", "diagnosis"], rows)
        yield from (Paragraph(f"{line}.", tone="soft") for line in lines)


def _claims(claims: Sequence[ClaimResult]) -> Iterator[Block]:
    """Yield the claims with numbered reasons, the reasons, and the claims without a figure."""
    if claims:
        yield Heading("Published and measured")
    with_figure = [claim for claim in claims if not claim.is_silent]
    reasons = dict.fromkeys(claim.reason for claim in with_figure)
    numbers = {reason: number for number, reason in enumerate(reasons, start=1)}
    rows = [_claim_row(claim, numbers[claim.reason]) for claim in with_figure]
    yield make_table(["claim", "statement", "published", "measured", "verdict", "reason"], rows)
    yield from (
        Paragraph(f"reason {number}: {reason}", tone="soft", marker="•")
        for reason, number in numbers.items()
    )
    silent = [claim for claim in claims if claim.is_silent]
    for reason in dict.fromkeys(claim.reason for claim in silent):
        ids = format_id_ranges([claim.id for claim in silent if claim.reason == reason])
        yield Paragraph(f"{format_verdict('no_data')} {ids}: {reason}", tone="soft", marker="•")


def _claim_row(claim: ClaimResult, reason_number: int) -> list[str | Cell]:
    return [
        claim.id,
        break_at_semicolons(claim.says),
        format_published(claim.published, claim.unit),
        format_measured(claim.measured, claim.unit, claim.verdict),
        Cell(format_verdict(claim.verdict), tone=TONES.get(claim.verdict, "plain")),
        str(reason_number),
    ]


def as_json(run: Run) -> dict[str, Any]:
    """Return the run as JSON data; docs/FORMAT.md lists the keys."""
    return {
        "run_id": run.plan["run_id"],
        "experiment": run.plan["experiment"],
        "size": run.plan["size"],
        "emulated": run.is_emulated,
        "response": run.response,
        "included_by_name": included_by_name(run),
        "findings": [asdict(finding) for finding in evaluate_findings(run)],
        "cells": [
            _cell_json(make_cell(run, treatment, run.response)) for treatment in treatments(run)
        ],
        "sweep": asdict(sweep) if (sweep := sweep_of(run)) else None,
        "memory": memory_json(run),
        "claims": [asdict(result) for result in evaluate_claims(run)],
        "trials": [
            {
                "trial_id": t.record.trial_id,
                "outcome": t.record.outcome,
                "is_included": t.is_included,
                "response": dict(t.record.response),
                "verdicts": verdicts_to_json(t.verdicts),
            }
            for t in run.trials
        ],
    }


def _cell_json(cell: TreatmentCell) -> dict[str, Any]:
    return {
        **asdict(cell),
        "treatment": dict(cell.treatment),
        "text": cell.text,
        "spread": cell.spread,
    }


def as_csv(run: Run) -> str:
    """Return a line per treatment, with all digits, in the response's own unit."""
    header = [
        *run.factors,
        "response",
        "median",
        "low",
        "high",
        "kind",
        "n",
        "killed",
        "excluded",
        "unanswered",
        "is_extrapolated",
        "is_all_excluded",
        "unproven",
    ]
    return csv_text(header, _csv_rows(run))


def _csv_rows(run: Run) -> Iterator[list[Any]]:
    for treatment in treatments(run):
        cell = make_cell(run, treatment, run.response)
        figures = csv_summary(cell.summary) if cell.summary else [None, None, None, None, 0]
        flags = [str(flag).lower() for flag in (cell.is_extrapolated, cell.is_all_excluded)]
        yield [
            *treatment.values(),
            run.response,
            *figures,
            cell.killed,
            cell.excluded,
            cell.unanswered,
            *flags,
            cell.unproven,
        ]
