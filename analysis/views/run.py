"""The report of a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from analysis.articles.evaluate import ClaimResult, evaluate_claims
from analysis.articles.findings import evaluate_findings, unmeasured
from analysis.articles.ratios import published_ratios, real_cpu_sentence
from analysis.articles.sides import minima, per_unit, per_unit_heading
from analysis.articles.tables import (
    CLAIM_COLUMNS,
    claim_cells,
    contradiction_sentence,
    ratio_sections,
)
from analysis.cells import (
    BindingCause,
    TreatmentCell,
    cache_state_tally,
    causes,
    common_spread,
    fidelity_lines,
    footnotes,
    gap_sentence,
    legend,
    main_cells,
    median_table,
    published_by_treatment,
    repeat_differences,
    stopping_rule_status,
)
from analysis.data.load import Run, included_by_name, included_by_name_sentence
from analysis.exchange import is_rate
from analysis.formatting import (
    format_id_ranges,
    format_published,
    format_quantity,
    format_verdict,
    response_title,
    tally,
    treatment_label,
)
from analysis.memory import memory_json, memory_run, step_rows
from analysis.strip import run_strip
from analysis.sweep import sweep_of, sweep_rows, sweep_sentences
from analysis.volumes import volume_summaries
from pagecage.report.model import (
    SHADES,
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


def main_table(run: Run) -> Table:
    """Return the experiment's table, with one factor across if its levels fit.

    Figures are shaded if they differ by a factor of two: the darkest is the slowest.
    """
    layout, published = run.layout, published_by_treatment(run, run.response)
    title = response_title(run.response)
    heading = per_unit_heading(run.response) if published else None
    columns = run.factors[layout.across] if layout.across else [title, str(heading), ""]
    made = main_cells(run)
    common, shade_of, below_table = common_spread(made), _shading(run, made), footnotes(run)
    rows: dict[tuple[str, ...], dict[str, Cell]] = {}
    for cell in made:
        treatment, shade = cell.treatment, shade_of(cell)
        note = cell.note(common, has_footnote=True)
        row = rows.setdefault(tuple(treatment[name] for name in layout.down), {})
        figure = published.get(treatment_label(treatment))
        text = below_table.marked(cell.text, treatment)
        text = f"{text} ({figure})" if figure else text
        unit = _per_unit_text(run, cell, heading if layout.across else heading and "")
        if layout.across:
            below = "\n".join(filter(None, (note, unit)))
            row[treatment[layout.across]] = Cell(text, below, shade=shade)
        else:
            row |= {title: Cell(text, shade=shade), str(heading): Cell(unit)}
            row[""] = Cell(note, tone="soft")
    used = [one for one in columns if any(one in row and row[one].text for row in rows.values())]
    cells, above = list[list[str | Cell]](), tuple[str, ...]()
    for key, row in rows.items():  # levels that repeat the row above are blank
        differs = [one != other for one, other in zip(above, key, strict=False)]
        same = differs.index(True) if True in differs else 0
        cells.append([*[""] * same, *key[same:], *(row.get(name, Cell("")) for name in used)])
        above = key
    parts = [title] if layout.across else []
    parts += [f"{name} {level} throughout" for name, level in layout.constant.items()]
    parts += [common.sentence if common else "medians, with their intervals", *legend(made)]
    parts += ["in brackets: published"] if published else []
    table = make_table([*layout.down, *used], cells, "; ".join(parts))
    return replace(table, footnotes=below_table.notes)


_LEAST_RATIO = 2.0
"""The least ratio of the slowest to the fastest figure for which shades are drawn."""


def _shading(run: Run, cells: Sequence[TreatmentCell]) -> Callable[[TreatmentCell], int | None]:
    """Return the shade of a cell by its slowness, on a logarithmic scale."""
    sign = -1 if is_rate(run, run.response) else 1
    known = [c.summary.middle for c in cells if c.summary and c.summary.middle > 0]
    if run.response.endswith("_fraction"):  # which is neither slow nor fast
        known = []
    ends = sorted(sign * math.log(one) for one in (min(known), max(known))) if known else [0.0, 0.0]
    span = ends[1] - ends[0]

    def shade_of(cell: TreatmentCell) -> int | None:
        if span < math.log(_LEAST_RATIO) or not cell.summary or cell.summary.middle <= 0:
            return None
        share = (sign * math.log(cell.summary.middle) - ends[0]) / span
        return min(SHADES - 1, int(share * SHADES))

    return shade_of


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
        yield _rows_table(rows, _STEP_COLUMNS)


def _volume_section(run: Run) -> Iterator[Block]:
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


def run_report(run: Run) -> Report:
    results, search, sweep = evaluate_claims(run), memory_run(run), sweep_of(run)
    table, limits = main_table(run), causes(run)
    first: list[Block] = [run_strip(run, limits)]
    rest: list[Block] = [*_findings(run), *_notes(run, results)]
    if search and search.steps:
        first.append(_rows_table(step_rows(search), _STEP_COLUMNS))
        rest[:0] = [Paragraph(sentence, marker="•") for sentence in search.sentences]
    elif sweep:
        first.append(_rows_table(sweep_rows(sweep)))
        rest[:0] = [Paragraph(sentence, marker="•") for sentence in sweep_sentences(sweep)]
    else:
        first.append(table)
    rest = [Heading("Findings"), *rest, *([table] if table not in first else [])]
    rest += [*ratio_sections(run), *_volume_section(run), *_diagnosis(run, limits), *_verdicts(run)]
    rest += [*claims_section(results), *minima_section(run)]
    if line := claims_line(run, results):
        first.append(Paragraph(line, tone="soft"))
    return Report(run.experiment, tuple(first), tuple(rest))


def _rows_table(rows: Sequence[Mapping[str, str]], caption: str = "") -> Table:
    return make_table(list(rows[0]), [list(row.values()) for row in rows], caption)


def claims_report(run: Run) -> Report:
    results = evaluate_claims(run)
    return Report(run.experiment, (*claims_section(results), *minima_section(run)))


def claims_line(run: Run, results: Sequence[ClaimResult]) -> str:
    counted, name = claims_tally(results), run.run_id
    return f"published figures: {counted}: pagecage show {name} --claims" if counted else ""


_TALLIED = {
    "held": "held",
    "not_held": "not",
    "by_construction": "by construction",
    "undecided": "undecided",
}


def claims_tally(results: Sequence[ClaimResult]) -> str:
    """Return the numbers of claims by verdict, such as `12 held, 6 not, 2 undecided`."""
    counts = Counter(one.verdict for one in results)
    parts = [f"{counts[one]} {word}" for one, word in _TALLIED.items() if counts[one]]
    others = len(results) - sum(counts[one] for one in _TALLIED)
    return ", ".join([*parts, *([f"{others} not compared"] if others else [])])


def _notes(run: Run, results: Sequence[ClaimResult]) -> Iterator[Paragraph]:
    if sentence := contradiction_sentence(results):
        yield Paragraph(sentence, "see Published and measured", tone="bad")
    reason = run.plan.get("size_reason") or "as requested"
    yield Paragraph(f"size {run.size}: {reason}", tone="soft")
    if run.plan.get("until_ci"):
        yield Paragraph(stopping_rule_status(run), tone="soft")
    if sentence := included_by_name_sentence(run):
        yield Paragraph(sentence, tone="warning")
    if sentence := gap_sentence(run):
        yield Paragraph(sentence, tone="soft")
    if machine := real_cpu_sentence(run):
        yield Paragraph(f"{machine}.", tone="soft")


def _findings(run: Run) -> Iterator[Paragraph]:
    found = evaluate_findings(run)
    for finding, published in zip(found, published_ratios(run), strict=True):
        if finding.value is None:
            continue
        question = f"{finding.question} " if finding.question else ""
        note = "; ".join(filter(None, (published and f"published: {published}", finding.note)))
        tone: Tone = "plain" if finding.is_proven else "warning"
        yield Paragraph(question + finding.sentence, note, tone, "•")
    for reason, missing in unmeasured(found).items():
        what = f"{len(missing)} findings" if len(missing) > 1 else missing[0].sentence
        yield Paragraph(f"not measured: {what}: {reason}", tone="warning", marker="?")


def _diagnosis(run: Run, limits: Sequence[BindingCause]) -> Iterator[Block]:
    lines = fidelity_lines(run)
    if limits or lines:
        yield Heading("Diagnosis")
        yield make_table(["limit", "diagnosis"], map(cause_row, limits))
        yield from (Paragraph(f"{line}.", tone="soft") for line in lines)


def cause_row(cause: BindingCause) -> list[str]:
    """Return a cause with its share of the time, its treatments, and its explanation."""
    names = [treatment_label(treatment) for treatment, _ in cause.diagnoses]
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    treatment, worst = cause.worst
    example = f"{treatment_label(treatment)}: " if len(names) > 1 else ""
    listed = "; ".join([*names[:_MOST_NAMED], *more])
    return ["\n".join(filter(None, [cause.words, cause.share, listed])), example + worst.sentence]


_MOST_NAMED = 6
"""Treatments that a cause names; the evidence has all of them."""


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
        again = f"pagecage run {run.experiment} --resume --repeat-excluded"
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
        counted = tally(words).replace("_", " ") or "none"
        yield Paragraph(f"{name}: {counted}", marker="•")


def claims_section(claims: Sequence[ClaimResult]) -> Iterator[Block]:
    """Yield the claims with numbered reasons, the reasons, and the claims without a figure."""
    numbers: dict[str, int] = {}
    silent: dict[str, list[str]] = {}
    rows: list[list[str | Cell]] = []
    for claim in claims:
        if claim.is_silent:
            silent.setdefault(claim.reason, []).append(claim.id)
            continue
        number = numbers.setdefault(claim.reason, len(numbers) + 1)
        rows.append([*claim_cells(claim), str(number)])
    if claims:
        yield Heading("Published and measured")
    yield make_table(CLAIM_COLUMNS, rows)
    for reason, number in numbers.items():
        yield Paragraph(f"reason {number}: {reason}", tone="soft", marker="•")
    for reason, ids in silent.items():
        text = f"{format_verdict('no_data')} {format_id_ranges(ids)}: {reason}"
        yield Paragraph(text, tone="soft", marker="•")


def _per_unit_text(run: Run, cell: TreatmentCell, heading: str | None) -> str:
    measured, published = per_unit(run, cell) if heading is not None else ("", "")
    known = f" ({published})" if published else ""
    return f"{heading} {measured}{known}".strip() if measured else ""


def as_json(run: Run) -> dict[str, Any]:
    return {
        **{key: run.plan[key] for key in ("run_id", "experiment", "size")},
        "emulated": run.is_emulated,
        "response": run.response,
        "included_by_name": included_by_name(run),
        "findings": [asdict(finding) for finding in evaluate_findings(run)],
        "cells": [
            {**asdict(cell), "text": cell.text, "spread": cell.spread} for cell in main_cells(run)
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
    columns, rows = median_table(run, run.response)
    words = ([str(x).lower() if isinstance(x, bool) else x for x in row] for row in rows)
    return csv_text(columns, words)
