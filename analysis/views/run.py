"""The report of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from analysis.articles.evaluate import ClaimResult, evaluate_claims
from analysis.articles.findings import evaluate_findings
from analysis.articles.ratios import published_ratios, real_cpu_sentence
from analysis.articles.sides import minima, per_unit, per_unit_heading
from analysis.articles.tables import (
    TONES,
    contradiction_sentence,
    format_scored_measurement,
    ratio_sections,
)
from analysis.cells import (
    TreatmentCell,
    cache_state_tally,
    diagnosis_by_treatment,
    fidelity_lines,
    gap_sentence,
    make_cell,
    published_by_treatment,
    repeat_differences,
    stopping_rule_status,
    treatments,
)
from analysis.data.load import Run, included_by_name, included_by_name_sentence
from analysis.formatting import (
    break_at_semicolons,
    format_id_ranges,
    format_published,
    format_quantity,
    format_verdict,
    response_title,
    treatment_label,
)
from analysis.memory import memory_json, memory_run, step_rows
from analysis.sweep import sweep_of, sweep_rows, sweep_sentences
from analysis.views.comparison import SUMMARY_COLUMNS, csv_summary, median_image
from analysis.volumes import volume_summaries
from pagecage.report.model import (
    Block,
    Cell,
    Heading,
    Paragraph,
    Report,
    Table,
    Tone,
    csv_text,
    make_table,
)
from pagecage.verdicts.evaluate import verdicts_to_json
from pagecage.verdicts.verdict import limit_title

if TYPE_CHECKING:
    import pandas as pd


def cell_table(run: Run, response: str | None = None) -> pd.DataFrame:
    """Return the experiment's table, with one factor across if its levels fit."""
    import pandas as pd

    response, plan = response or run.response, run.layout
    published = published_by_treatment(run, response)
    heading = per_unit_heading(response)
    rows: dict[tuple[str, ...], dict[tuple[str, str], str]] = {}
    for treatment in treatments(run):
        cell = make_cell(run, treatment, response)
        key = tuple(treatment[name] for name in plan.down)
        levels = {(name, ""): level for name, level in zip(plan.down, key, strict=True)}
        row = rows.setdefault(key, levels)
        position = treatment[plan.across] if plan.across else response_title(response)
        row[position, "measured"] = f"{cell.text}\n{cell.spread}" if plan.across else cell.text
        if published:
            row[position, "published"] = published.get(treatment_label(treatment), "")
        if heading and (unit := per_unit(run, cell)).measured:
            below = f"\npublished {unit.published}" if unit.published else ""
            row[position, heading] = unit.measured + below
        if not plan.across:
            row[position, "of"] = cell.spread
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    if plan.across:
        order = run.factors[plan.across]
        columns.sort(key=lambda column: order.index(column[0]) if column[1] else -1)
    cells = [[row.get(column, "") for column in columns] for row in rows.values()]
    return pd.DataFrame(cells, columns=pd.MultiIndex.from_tuples(columns))


def response_table(run: Run, table: Mapping[str, Any]) -> pd.DataFrame:
    """Return a further table: the treatments of its `where` down, its responses across."""
    import pandas as pd

    chosen = [t for t in treatments(run) if (table.get("where") or {}).items() <= dict(t).items()]
    varying = [name for name in run.factors if len({t[name] for t in chosen}) > 1]
    rows = []
    for treatment in chosen:
        row = {(name, ""): treatment[name] for name in varying}
        for position, (heading, response) in enumerate(table["columns"].items()):
            cell = make_cell(run, treatment, response)
            published = published_by_treatment(run, response).get(treatment_label(treatment), "")
            row[heading, "published"] = published
            row[heading, "measured"] = cell.text if position else f"{cell.text}\n{cell.spread}"
        rows.append(row)
    shown = [
        column
        for column in dict.fromkeys(column for row in rows for column in row)
        if column[1] != "published" or any(row.get(column) for row in rows)
    ]
    cells = [[row.get(column, "") for column in shown] for row in rows]
    if not any(below == "published" for _, below in shown):
        return pd.DataFrame(cells, columns=[heading for heading, _ in shown] if shown else None)
    return pd.DataFrame(cells, columns=pd.MultiIndex.from_tuples(shown))


LEAST_SHARE = 0.005
"""Limits that were met for less than this share of the time are left out."""
_COLUMNS = (
    "waited for: limits of the volume or its instance, with the share of the time in which requests"
    " waited; read, write: mean latency by the volume's clock; late: replies later than the model"
    " decided; path: the way to the volume, with its latency, which was taken off; witnesses: the"
    " diagnosis and the volume's account"
)
_STEP_COLUMNS = (
    "medians of the trials that count; loss: of time, against all of the memory; refaults,"
    " anonymous, major faults: pages of the measured part; in brackets: no trial counts"
)
_DILATED = (
    "The volume was slowed down by the factor in the table: its rates were divided and its"
    " latencies multiplied. Times at full speed are the measured ones divided by it."
)


def minima_section(run: Run) -> Iterator[Block]:
    """Yield a table of the least figure per treatment; nothing without a published minimum."""
    rows = []
    for one in minima(run):
        published = (
            f"{format_published(*figure)} ({id_})" for id_, figure in one.published.items()
        )
        minimum = format_quantity(one.response, one.minimum)
        rows.append([one.label, minimum, str(one.n), ", ".join(published)])
    if rows:
        about = "The article publishes the minimum of its trials, so that minima are compared."
        yield from (Heading("Minima"), Paragraph(about))
        yield make_table(["treatment", "minimum", "trials", "published"], rows)


def memory_section(run: Run) -> Iterator[Block]:
    """Yield the answer of a search for memory and a table of its steps; nothing for other runs."""
    found = memory_run(run)
    if found is None:
        return
    answer, *others = found.sentences
    yield Paragraph(answer, tone="strong", marker="•")
    yield from (Paragraph(sentence, marker="•") for sentence in others)
    rows = step_rows(found)
    if rows:
        yield Heading("Memory and time")
        yield make_table(list(rows[0]), [list(row.values()) for row in rows], _STEP_COLUMNS)


def _volume_section(run: Run) -> Iterator[Block]:
    """Yield a table of the simulated volumes; nothing if a cgroup enforces all limits."""
    found = volume_summaries(run)
    if not found:
        return
    is_dilated = any(one.dilation != 1 for one in found)
    yield Heading("Simulated volumes")
    if is_dilated:
        yield Paragraph(_DILATED, tone="soft")
    titles = ["treatment", *(["slowed down", "at full speed"] if is_dilated else [])]
    titles += ["waited for", "read", "write", "late", "path", "witnesses"]
    rows = []
    for one in found:
        speed = format_quantity(run.response, one.undilated) if one.undilated is not None else ""
        shares = (f"{name} {share:.0%}" for name, share in one.met.items() if share >= LEAST_SHARE)
        path_us = "" if one.path_us is None else f", {one.path_us:.0f} us"
        row = [treatment_label(one.treatment) + ("" if one.disk is None else f", disk {one.disk}")]
        row += [f"{one.dilation:g}x", speed] if is_dilated else []
        row.append(", ".join(shares) or "no limit")
        row += ["" if mean is None else f"{mean / 1000:.2f} ms" for mean in one.latencies_us]
        row += [f"{one.late_share:.1%}", ", ".join(one.paths) + path_us]
        rows.append([*row, f"agree {one.trials - one.disagreeing}/{one.trials}"])
    yield make_table(titles, rows, _COLUMNS)


_EMULATED = (
    "Emulated (TCG): times that depend on the CPU are far too long and not comparable with"
    " published ones."
)


def run_report(run: Run) -> Report:
    """Return the report: question, findings, table, verdicts, diagnoses and claims."""
    results = evaluate_claims(run)
    blocks: list[Block] = [*_head(run, results), *memory_section(run), *_findings(run)]
    blocks += ratio_sections(run)
    blocks += [Heading(response_title(run.response)), _response_table(run), median_image(run)]
    blocks += _volume_section(run)
    if sweep := sweep_of(run):
        rows = sweep_rows(sweep)
        blocks += [Heading(f"Sweep of {sweep.property}")]
        blocks += [make_table(list(rows[0]), [list(row.values()) for row in rows])]
        blocks += [Paragraph(sentence, marker="•") for sentence in sweep_sentences(sweep)]
    blocks += _verdicts(run)
    diagnoses = [
        (treatment_label(treatment), one) for treatment, one in diagnosis_by_treatment(run)
    ]
    lines = fidelity_lines(run)
    if diagnoses or lines:
        blocks += [Heading("Diagnosis"), make_table(["treatment", "diagnosis"], diagnoses)]
        blocks += [Paragraph(f"{line}.", tone="soft") for line in lines]
    return Report(run.plan["experiment"], (*blocks, *_claims(results), *minima_section(run)))


def _head(run: Run, results: Sequence[ClaimResult]) -> Iterator[Paragraph]:
    yield Paragraph(run.definition["question"], tone="strong")
    if sentence := contradiction_sentence(results):
        yield Paragraph(sentence, "see Published and measured", tone="bad")
    reason = run.plan.get("size_reason") or "as requested"
    yield Paragraph(f"size {run.plan['size']}: {reason}", tone="soft")
    if run.plan.get("until_ci"):
        yield Paragraph(stopping_rule_status(run), tone="soft")
    if sentence := included_by_name_sentence(run):
        yield Paragraph(sentence, tone="warning")
    if machine := real_cpu_sentence(run):
        yield Paragraph(f"{machine}.", tone="soft")
    if run.is_emulated:
        yield Paragraph(_EMULATED, tone="warning")


def _findings(run: Run) -> Iterator[Paragraph]:
    for finding, published in zip(evaluate_findings(run), published_ratios(run), strict=True):
        question = f"{finding.question} " if finding.question else ""
        if finding.value is None:
            text = f"{question}{finding.sentence} not measured: {finding.note}"
            yield Paragraph(text, tone="warning", marker="?")
            continue
        note = "; ".join(filter(None, (published and f"published: {published}", finding.note)))
        tone: Tone = "plain" if finding.is_proven else "warning"
        yield Paragraph(question + finding.sentence, note, tone, "•")


def _verdicts(run: Run) -> Iterator[Block]:
    planned, included = len(run.plan["trials"]), sum(trial.is_included for trial in run.trials)
    yield Heading("Trials and verdicts")
    yield Paragraph(f"{planned} trials: {included} included, {planned - included} not.")
    reasons = Counter[str]()
    for trial in run.trials:
        if not trial.is_included:
            named = [reason.split(":")[0] for reason in trial.verdicts.reasons]
            reasons.update(named or [trial.record.outcome.replace("_", " ")])
    for reason, count in reasons.most_common():
        yield Paragraph(f"not included: {count} × {reason}", marker="•")
    if any(trial.is_valid_apart_from_noise and trial.is_excluded for trial in run.trials):
        again = f"pagecage run {run.plan['experiment']} --resume --repeat-excluded"
        yield Paragraph(f"{again} measures them once more, if no newer run exists", marker="•")
    for sentence in repeat_differences(run):
        yield Paragraph(sentence, tone="warning", marker="•")
    yield Paragraph(f"cache state: {cache_state_tally(run.trials) or 'none'}", marker="•")
    verdicts = [trial.verdicts for trial in run.trials]
    limits = [f"{limit_title(limit)} {limit.verdict}" for one in verdicts for limit in one.limits]
    for name, words in (
        ("limits", limits),
        ("host", [one.host_quiet.verdict for one in verdicts]),
        ("binding limit", [one.binding_limit.verdict for one in verdicts]),
    ):
        counts = Counter(words).most_common()
        tally = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in counts) or "none"
        yield Paragraph(f"{name}: {tally}", marker="•")


def _claims(claims: Sequence[ClaimResult]) -> Iterator[Block]:
    """Yield the claims with numbered reasons, the reasons, and the claims without a figure."""
    numbers: dict[str, int] = {}
    silent: dict[str, list[str]] = {}
    rows: list[list[str | Cell]] = []
    for claim in claims:
        if claim.is_silent:
            silent.setdefault(claim.reason, []).append(claim.id)
            continue
        row: list[str | Cell] = [
            claim.id,
            break_at_semicolons(claim.says),
            format_published(claim.published, claim.unit),
            format_scored_measurement(claim),
            Cell(format_verdict(claim.verdict), tone=TONES.get(claim.verdict, "plain")),
            str(numbers.setdefault(claim.reason, len(numbers) + 1)),
        ]
        rows.append(row)
    if claims:
        yield Heading("Published and measured")
    yield make_table(["claim", "statement", "published", "measured", "verdict", "reason"], rows)
    for reason, number in numbers.items():
        yield Paragraph(f"reason {number}: {reason}", tone="soft", marker="•")
    for reason, ids in silent.items():
        text = f"{format_verdict('no_data')} {format_id_ranges(ids)}: {reason}"
        yield Paragraph(text, tone="soft", marker="•")


def _response_table(run: Run) -> Table:
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
    found = per_unit(run, cell) if heading is not None else None
    if found is None or not found.measured:
        return ""
    published = f" ({found.published})" if found.published else ""
    return f"{heading} {found.measured}{published}".strip()


def as_json(run: Run) -> dict[str, Any]:
    """Return the run as JSON data; docs/FORMAT.md lists the keys."""
    made = (make_cell(run, treatment, run.response) for treatment in treatments(run))
    return {
        "run_id": run.plan["run_id"],
        "experiment": run.plan["experiment"],
        "size": run.plan["size"],
        "emulated": run.is_emulated,
        "response": run.response,
        "included_by_name": included_by_name(run),
        "findings": [asdict(finding) for finding in evaluate_findings(run)],
        "cells": [
            {
                **asdict(cell),
                "treatment": dict(cell.treatment),
                "text": cell.text,
                "spread": cell.spread,
            }
            for cell in made
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


def as_csv(run: Run) -> str:
    """Return a line per treatment, with all digits, in the response's own unit."""
    counts = ("killed", "excluded", "unanswered")
    flags = ("is_extrapolated", "is_all_excluded")
    rows = []
    for treatment in treatments(run):
        cell = make_cell(run, treatment, run.response)
        row = [*treatment.values(), run.response, *csv_summary(cell.summary)[:4]]
        row += [cell.summary.n if cell.summary else 0, *(getattr(cell, name) for name in counts)]
        row += [str(getattr(cell, name)).lower() for name in flags]
        rows.append([*row, cell.unproven])
    header = [*run.factors, "response", *SUMMARY_COLUMNS, *counts, *flags, "unproven"]
    return csv_text(header, rows)
