"""The report of a comparison, with bars of changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from math import isfinite
from typing import Any

from analysis.cells import TreatmentCell
from analysis.comparison import Change, Comparison, ComparisonRow, run_letter, varying_label
from analysis.data.load import Run, included_by_name
from analysis.exchange import figures_of
from analysis.formatting import (
    format_quantity,
    format_range,
    format_summary,
    response_title,
    treatment_label,
)
from analysis.stats import MedianSummary
from pagecage.report.model import (
    BarChart,
    Block,
    Cell,
    Heading,
    Image,
    Paragraph,
    Report,
    Table,
    Tone,
    csv_text,
    make_table,
)


def change_bars(comparison: Comparison, rows: Sequence[ComparisonRow]) -> BarChart | None:
    """Return how many percent the last run differs from the first; None without a ratio.

    A treatment with a figure of zero in the first run has no ratio, and no bar. Nor has a single
    run.
    """
    found = [
        (varying_label(comparison, row.treatment), ratio.middle)
        for row in rows
        if row.changes and (ratio := row.changes[-1].ratio) and isfinite(ratio.middle)
    ]
    if not found:
        return None
    last = run_letter(len(comparison.runs) - 1)
    title = f"{response_title(rows[0].response)}: change from A to {last}, percent"
    return _chart(title, [(label, 100 * (ratio - 1)) for label, ratio in found])


def median_image(run: Run) -> Image:
    """Return the medians of the main response as a figure that only Markdown has."""
    return Image(lambda: None, _median_bars(run))


def _median_bars(run: Run) -> BarChart | None:
    """Return the medians; None without an included trial."""
    constant = run.layout.constant
    found = [
        (
            treatment_label({k: v for k, v in one.treatment.items() if k not in constant}),
            one.summary.middle,
        )
        for one in figures_of(run, (run.response,))
    ]
    title = f"{response_title(run.response)}, medians of included trials"
    return _chart(title, found) if found else None


def _chart(title: str, bars: Sequence[tuple[str, float]]) -> BarChart:
    return BarChart(title, tuple(label for label, _ in bars), tuple(value for _, value in bars))


_MARKS = {"higher": "▲", "lower": "▼", "inconclusive": "≈"}
GATE_TONES: dict[str, Tone] = {"failed": "bad", "undecided": "warning", "passed": "good"}
_NOISE = {
    "a_a_pair": "an A/A pair of treatments",
    "range": "the range of two to four repeats",
}
NOTHING_DIFFERS = (
    "Nothing that is recorded differs between these runs: a change is noise, or what is not"
    " recorded."
)


def comparison_report(comparison: Comparison) -> Report:
    """Return the report: runs, obstacles, a table per response, gates and differences."""
    blocks: list[Block] = [_runs(comparison)]
    blocks += [
        Paragraph(f"compared anyway, {one.what}: {one.reason}", tone="warning")
        for one in comparison.obstacles
    ]
    for response in comparison.responses:
        rows = [row for row in comparison.rows if row.response == response]
        blocks += [Heading(response_title(response)), ratio_image(comparison, rows)]
        blocks += [
            _response_table(comparison, response),
            Paragraph(_note(comparison, response), tone="soft"),
        ]
    blocks += [*_gates(comparison), *_differences(comparison)]
    return Report(f"{comparison.runs[0].plan['experiment']}, compared", tuple(blocks))


def ratio_image(comparison: Comparison, rows: Sequence[ComparisonRow]) -> Image:
    """Return the figure of the ratios, to be drawn only if the report becomes HTML."""
    return Image(partial(_ratio_svg, comparison, rows), change_bars(comparison, rows))


def _ratio_svg(comparison: Comparison, rows: Sequence[ComparisonRow]) -> str | None:
    from analysis.figures.charts import RATIO_ALT, ratio_figure
    from analysis.figures.style import drawing_style, svg

    with drawing_style():
        figure = ratio_figure(comparison, rows)
        return svg(figure, RATIO_ALT) if figure else None


def _runs(comparison: Comparison) -> Table:
    rows = [[run_letter(number), *_run_row(run)] for number, run in enumerate(comparison.runs)]
    return make_table(["", "run", "size", "trials"], rows)


def _run_row(run: Run) -> list[str]:
    included, planned, named = (
        sum(trial.is_included for trial in run.trials),
        len(run.plan["trials"]),
        included_by_name(run),
    )
    size = f"{run.plan['size']}{', emulated' if run.is_emulated else ''}"
    note = f"\nincluded by name: {', '.join(named)}" if named else ""
    return [run.plan["run_id"], size, f"{included} included, {planned - included} not{note}"]


def _response_table(comparison: Comparison, response: str) -> Table:
    """Return a row per treatment and run but the first; the first run's figure is written once."""
    title, is_pair = f"{response_title(response)} of", len(comparison.runs) == 2
    columns = (
        [title, "A", "B", "B / A", "noise", ""]
        if is_pair
        else [title, "A", "run", "", "by A", "noise", ""]
    )
    rows: list[list[str | Cell]] = []
    for row in comparison.rows:
        for number, change in enumerate(row.changes, start=1) if row.response == response else ():
            label = varying_label(comparison, row.treatment)
            first = [label, figure_cell(row.cells[0])] if number == 1 else ["", ""]
            run = [] if is_pair else [run_letter(number)]
            rows.append([*first, *run, figure_cell(row.cells[number]), *change_cells(change)])
    return make_table(columns, rows)


def figure_cell(cell: TreatmentCell) -> Cell:
    """Return a treatment's figure with the number of its trials."""
    excluded = f", {cell.excluded} excluded" if cell.excluded else ""
    return Cell(cell.text, f"n {cell.summary.n}{excluded}" if cell.summary else "")


def change_cells(change: Change) -> tuple[Cell, Cell, Cell]:
    """Return the ratio with its interval, the noise floor, and the word with its mark."""
    floor = f"± {100 * change.floor.share:.2g} %" if change.floor else "–"
    return _ratio_cell(change.ratio), Cell(floor), Cell(marked(change.word))


def marked(word: str) -> str:
    """Return the word of a change behind its mark."""
    return f"{_MARKS.get(word, '')} {word}".strip()


def _ratio_cell(ratio: MedianSummary | None) -> Cell:
    if ratio is None:
        return Cell("–")
    middle, low, high = (
        format_quantity("amplification", value) for value in (ratio.middle, ratio.low, ratio.high)
    )
    return Cell(middle, f"{ratio.kind} {format_range(low, high)}" if ratio.n > 1 else "")


def _note(comparison: Comparison, response: str) -> str:
    """Return the ratio over all treatments, and the kind of the noise floor."""
    overall = enumerate(comparison.overall[response], start=1)
    parts = [_overall(number, summary) for number, summary in overall if summary]
    changes = [change for row in comparison.rows for change in row.changes]
    kinds = dict.fromkeys(_NOISE[change.floor.kind] for change in changes if change.floor)
    return "; ".join([*parts, *(f"noise: {kind}" for kind in kinds)]) or "no figure on both sides"


def _overall(number: int, summary: MedianSummary) -> str:
    interval = format_summary("", summary, is_ratio=True)
    method = "by blocks" if summary.kind != "range" else "range of the treatments"
    return f"all treatments together, {run_letter(number)} / A: {interval}, {method}"


def _gates(comparison: Comparison) -> Iterator[Block]:
    """Yield the gates with their treatments, grouped by verdict and reason, failures first."""
    treatments: dict[tuple[str, str, str, str], list[str]] = {}
    for one in sorted(comparison.gate_results, key=lambda one: list(GATE_TONES).index(one.verdict)):
        key = one.verdict, one.gate.text, f"{run_letter(one.run)} / A", one.reason
        treatments.setdefault(key, []).append(varying_label(comparison, one.treatment))
    if treatments:
        yield Heading("Gates")
        rows: list[list[str | Cell]] = [
            [Cell(verdict, tone=GATE_TONES[verdict]), gate, run, reason, "; ".join(labels)]
            for (verdict, gate, run, reason), labels in treatments.items()
        ]
        yield make_table(["verdict", "gate", "runs", "reason", "treatments"], rows)


def _differences(comparison: Comparison) -> Iterator[Block]:
    yield Heading("Differences")
    for number, labels in enumerate(comparison.lacking):
        if labels:
            yield Paragraph(
                f"not in all runs, and not compared, in {run_letter(number)}: {', '.join(labels)}",
                tone="soft",
            )
    if comparison.differences:
        columns = ["property", *(run_letter(number) for number in range(len(comparison.runs)))]
        yield make_table(columns, [[one.name, *one.values] for one in comparison.differences])
    else:
        yield Paragraph(NOTHING_DIFFERS)


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON data; docs/FORMAT.md lists the keys."""
    return {
        "runs": [
            {
                "run_id": run.plan["run_id"],
                "experiment": run.plan["experiment"],
                "size": run.plan["size"],
                "emulated": run.is_emulated,
                "included_by_name": included_by_name(run),
            }
            for run in comparison.runs
        ],
        "obstacles": [asdict(one) for one in comparison.obstacles],
        "rows": [_row_json(row) for row in comparison.rows],
        "overall": {
            name: [one and asdict(one) for one in ones] for name, ones in comparison.overall.items()
        },
        "differences": [asdict(one) for one in comparison.differences],
        "lacking": [list(labels) for labels in comparison.lacking],
        "gates": [
            {
                "gate": one.gate.text,
                "run": one.run,
                "treatment": dict(one.treatment),
                "verdict": one.verdict,
                "reason": one.reason,
            }
            for one in comparison.gate_results
        ],
    }


def _row_json(row: ComparisonRow) -> dict[str, Any]:
    cells = [
        {
            "summary": cell.summary and asdict(cell.summary),
            "killed": cell.killed,
            "excluded": cell.excluded,
            "unanswered": cell.unanswered,
            "is_all_excluded": cell.is_all_excluded,
            "is_extrapolated": cell.is_extrapolated,
        }
        for cell in row.cells
    ]
    changes = [asdict(change) for change in row.changes]
    return {
        "treatment": dict(row.treatment),
        "response": row.response,
        "cells": cells,
        "changes": changes,
    }


def as_csv(comparison: Comparison) -> str:
    """Return a line for each treatment, response and run but the first."""
    factors = list(comparison.rows[0].treatment)
    figures = ("median", "low", "high", "kind", "n", "excluded", "killed")
    header = [
        *factors,
        "response",
        *(f"a_{name}" for name in figures),
        "run",
        *(f"b_{name}" for name in figures),
        "ratio",
        "ratio_low",
        "ratio_high",
        "ratio_kind",
        "noise_floor",
        "word",
    ]
    return csv_text(header, _csv_rows(comparison))


def _csv_rows(comparison: Comparison) -> Iterator[list[Any]]:
    for row in comparison.rows:
        for number, change in enumerate(row.changes, start=1):
            yield [
                *row.treatment.values(),
                row.response,
                *_csv_cell(row.cells[0]),
                run_letter(number),
                *_csv_cell(row.cells[number]),
                *csv_summary(change.ratio)[:4],
                change.floor.share if change.floor else None,
                change.word,
            ]


def _csv_cell(cell: TreatmentCell) -> list[Any]:
    return [*csv_summary(cell.summary), cell.excluded, cell.killed]


def csv_summary(summary: MedianSummary | None) -> list[Any]:
    """Return median, low, high, kind and number of trials; None for each without a summary."""
    if summary is None:
        return [None] * 5
    return [summary.middle, summary.low, summary.high, summary.kind, summary.n]
