"""The report of a comparison, with bars of changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import isfinite, log
from typing import Any

from analysis.cells import TreatmentCell, causes, varying_label
from analysis.comparison import Change, Comparison, ComparisonRow, GateResult, run_letter
from analysis.data.load import included_by_name
from analysis.formatting import (
    format_interval,
    format_quantity,
    format_range,
    format_summary,
    response_title,
    sentence_case,
    treatment_label,
)
from analysis.stats import MedianSummary
from analysis.strip import MOST_BARS, bar_chart
from pagecage.report.model import (
    BarChart,
    Block,
    Cell,
    Heading,
    Image,
    Paragraph,
    Report,
    Strip,
    Table,
    Tone,
    csv_text,
    make_table,
)

_MARKS = {"higher": "▲", "lower": "▼", "inconclusive": "≈"}
GATE_TONES: dict[str, Tone] = {"failed": "bad", "undecided": "warning", "passed": "good"}
_NOISE = {"a_a_pair": "an A/A pair of treatments", "range": "the range of two to four repeats"}


def comparison_report(comparison: Comparison) -> Report:
    first: list[Block] = [comparison_strip(comparison), _runs_table(comparison)]
    first += [
        Paragraph(f"compared anyway, {one.what}: {one.reason}", tone="warning")
        for one in comparison.obstacles
    ]
    first += _gates(comparison)
    rest: list[Block] = []
    for number, response in enumerate(comparison.responses):
        rows = [row for row in comparison.rows if row.response == response]
        blocks = first if number == 0 else rest
        blocks += [Heading(response_title(response)), ratio_image(comparison, rows)]
        blocks += _response_blocks(comparison, response, rows)
    rest.append(Heading("Differences"))
    for number, labels in enumerate(comparison.lacking):
        if labels:
            text = f"not in all runs, and not compared, in {run_letter(number)}"
            rest.append(Paragraph(f"{text}: {', '.join(labels)}", tone="soft"))
    if comparison.differences:
        columns = ["property", *(run_letter(number) for number in range(len(comparison.runs)))]
        lines = [[one.name, *one.values] for one in comparison.differences]
        rest.append(make_table(columns, lines))
    else:
        nothing = "Nothing that is recorded differs between these runs: a change is noise, or what"
        rest.append(Paragraph(f"{nothing} is not recorded."))
    title = f"{comparison.runs[0].experiment}, compared"
    return Report(title, tuple(first), tuple(rest))


def comparison_strip(comparison: Comparison) -> Strip:
    response, last = comparison.responses[0], run_letter(len(comparison.runs) - 1)
    rows = [row for row in comparison.rows if row.response == response and row.changes]
    words = Counter(row.changes[-1].word for row in rows)
    parts = [f"{word} in {count} of {len(rows)} treatments" for word, count in words.items()]
    overall = comparison.overall.get(response) or [None]
    if overall[-1]:
        middle, interval = format_interval("amplification", overall[-1])
        parts.insert(0, f"{middle} ({interval}) of A" if interval else f"{middle} of A")
    gates = Counter(one.verdict for one in comparison.gate_results)
    if gates:
        parts.append(f"gates: {', '.join(f'{n} {word}' for word, n in gates.items())}")
    runs = [(run_letter(number), run) for number, run in enumerate(comparison.runs)]
    held = [(letter, causes(run)) for letter, run in runs if not run.is_baseline]
    limits = [f"{letter}: {found[0].text}" for letter, found in held if found]
    counts = [
        f"{letter}: {sum(t.is_included for t in run.trials)} of {len(run.plan['trials'])} trials"
        for letter, run in runs
    ]
    text = f"{response_title(response)}, {last}: {'; '.join(parts)}"
    emulated = any(run.is_emulated for _, run in runs)
    cpu = "emulated CPU (times not comparable)" if emulated else "real CPU"
    return Strip(
        sentence_case(text),
        "; ".join(limits),
        "; ".join([*counts, cpu]),
        _changes_chart(comparison, rows),
        is_proven=not gates["failed"],
    )


def _changes_chart(comparison: Comparison, rows: Sequence[ComparisonRow]) -> BarChart | None:
    found = [(row, row.changes[-1].ratio) for row in rows]
    known = [(row, one) for row, one in found if one and one.middle and isfinite(one.middle)]
    greatest = sorted(known, key=lambda pair: -abs(log(pair[1].middle)))[:MOST_BARS]
    shown = [pair for pair in known if pair in greatest]
    title = f"{response_title(comparison.responses[0])}, {run_letter(len(comparison.runs) - 1)} / A"
    bars = (
        (
            varying_label(comparison.runs[0], row.treatment) or "all",
            ratio.middle,
            format_interval("amplification", ratio)[0],
        )
        for row, ratio in shown
    )
    title += "" if len(shown) == len(known) else ": the greatest changes"
    return bar_chart(title, bars) if shown else None


def _runs_table(comparison: Comparison) -> Table:
    runs = []
    for number, run in enumerate(comparison.runs):
        included, planned = sum(t.is_included for t in run.trials), len(run.plan["trials"])
        named, emulated = included_by_name(run), ", emulated" if run.is_emulated else ""
        note = f"\nincluded by name: {', '.join(named)}" if named else ""
        trials = f"{included} included, {planned - included} not{note}"
        size = f"{run.size}{emulated}"
        runs.append([run_letter(number), run.run_id, size, trials])
    return make_table(["", "run", "size", "trials"], runs)


def _response_blocks(
    comparison: Comparison, response: str, rows: Sequence[ComparisonRow]
) -> Iterator[Block]:
    """Yield a row per treatment and run but the first, whose figure is written once, and a note."""
    title, is_pair = f"{response_title(response)} of", len(comparison.runs) == 2
    columns = ["B", "B / A"] if is_pair else ["run", "", "by A"]
    lines: list[list[str | Cell]] = []
    numbers = {cell.summary.n for row in rows for cell in row.cells if cell.summary}
    common = f"n {min(numbers)}" if len(numbers) == 1 else ""
    for row in rows:
        figures = []
        for cell in row.cells:
            excluded = f", {cell.excluded} excluded" if cell.excluded else ""
            count = f"n {cell.summary.n}{excluded}" if cell.summary else ""
            figures.append(Cell(cell.text, "" if count == common else count))
        for number, change in enumerate(row.changes, start=1):
            label = varying_label(comparison.runs[0], row.treatment)
            first = [label, figures[0]] if number == 1 else ["", ""]
            run = [] if is_pair else [run_letter(number)]
            lines.append([*first, *run, figures[number], *change_cells(change)])
    yield make_table([title, "A", *columns, "noise", ""], lines)
    parts = []
    for number, summary in enumerate(comparison.overall[response], start=1):
        if summary:
            interval = format_summary("", summary, is_ratio=True)
            method = "by blocks" if summary.kind != "range" else "range of the treatments"
            parts.append(f"all treatments together, {run_letter(number)} / A: {interval}, {method}")
    floors = (change.floor for row in comparison.rows for change in row.changes)
    kinds = dict.fromkeys(_NOISE[floor.kind] for floor in floors if floor)
    parts += [f"noise: {kind}" for kind in kinds]
    parts += [f"{common} on every side"] if common else []
    yield Paragraph("; ".join(parts) or "no figure on both sides", tone="soft")


def _gates(comparison: Comparison) -> Iterator[Block]:
    treatments: dict[tuple[str, str, str, str], list[str]] = {}
    for one in _failures_first(comparison.gate_results):
        letters = run_letter(one.run) + (" / A" if one.gate.bound is None else "")
        key = one.verdict, one.gate.text, letters, one.reason
        treatments.setdefault(key, []).append(varying_label(comparison.runs[0], one.treatment))
    if treatments:
        yield Heading("Gates")
        rows: list[list[str | Cell]] = [
            [Cell(verdict, tone=GATE_TONES[verdict]), *key, "; ".join(labels)]
            for (verdict, *key), labels in treatments.items()
        ]
        yield make_table(["verdict", "gate", "runs", "reason", "treatments"], rows)


def gates_report(results: Sequence[GateResult]) -> Report:
    rows: list[list[str | Cell]] = [
        [
            Cell(one.verdict, tone=GATE_TONES[one.verdict]),
            one.gate.text,
            treatment_label(one.treatment),
            one.reason,
        ]
        for one in _failures_first(results)
    ]
    return Report("Gates", (make_table(["verdict", "gate", "treatment", "reason"], rows),))


def _failures_first(results: Sequence[GateResult]) -> list[GateResult]:
    return sorted(results, key=lambda one: list(GATE_TONES).index(one.verdict))


def gates_json(results: Sequence[GateResult]) -> list[dict[str, Any]]:
    return [
        {**asdict(one), "gate": one.gate.text, "treatment": dict(one.treatment)} for one in results
    ]


def ratio_image(comparison: Comparison, rows: Sequence[ComparisonRow]) -> Image:
    """Return the figure of the ratios, to be drawn only if the report becomes HTML."""

    def draw() -> str | None:
        from analysis.figures.charts import RATIO_ALT, ratio_figure
        from analysis.figures.style import drawing_style, svg

        with drawing_style():
            figure = ratio_figure(comparison, rows)
            return svg(figure, RATIO_ALT) if figure else None

    return Image(draw)


def change_cells(change: Change) -> tuple[Cell, Cell, Cell]:
    floor = Cell(f"± {100 * change.floor.share:.2g} %" if change.floor else "–")
    word, ratio = Cell(marked(change.word)), change.ratio
    if ratio is None:
        return Cell("–"), floor, word
    values = ratio.middle, ratio.low, ratio.high
    middle, low, high = (format_quantity("amplification", value) for value in values)
    interval = f"{ratio.kind} {format_range(low, high)}" if ratio.n > 1 else ""
    return Cell(middle, interval), floor, word


def marked(word: str) -> str:
    return f"{_MARKS.get(word, '')} {word}".strip()


def as_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "runs": [
            {
                **{key: run.plan[key] for key in ("run_id", "experiment", "size")},
                "emulated": run.is_emulated,
                "included_by_name": included_by_name(run),
            }
            for run in comparison.runs
        ],
        "obstacles": [asdict(one) for one in comparison.obstacles],
        "rows": [
            {
                "treatment": dict(row.treatment),
                "response": row.response,
                "cells": [
                    {
                        **cell_json(cell),
                        "is_all_excluded": cell.is_all_excluded,
                        "is_extrapolated": cell.is_extrapolated,
                    }
                    for cell in row.cells
                ],
                "changes": [asdict(change) for change in row.changes],
            }
            for row in comparison.rows
        ],
        "overall": {
            name: [one and asdict(one) for one in ones] for name, ones in comparison.overall.items()
        },
        "differences": [asdict(one) for one in comparison.differences],
        "lacking": [list(labels) for labels in comparison.lacking],
        "gates": gates_json(comparison.gate_results),
    }


def cell_json(cell: TreatmentCell) -> dict[str, Any]:
    counts = {"excluded": cell.excluded, "unanswered": cell.unanswered}
    return {"summary": cell.summary and asdict(cell.summary), "killed": cell.killed, **counts}


def as_csv(comparison: Comparison) -> str:
    figures = (*SUMMARY_COLUMNS, "excluded", "killed")
    before, after = ([f"{side}_{name}" for name in figures] for side in ("a", "b"))
    ratio = ("ratio", "ratio_low", "ratio_high", "ratio_kind", "noise_floor", "word")
    rows = []
    for row in comparison.rows:
        first, *others = (
            [*csv_summary(cell.summary), cell.excluded, cell.killed] for cell in row.cells
        )
        for number, (change, cell) in enumerate(zip(row.changes, others, strict=True), start=1):
            floor = change.floor.share if change.floor else None
            about = [*row.treatment.values(), row.response, *first, run_letter(number), *cell]
            rows.append([*about, *csv_summary(change.ratio)[:4], floor, change.word])
    factors = list(comparison.rows[0].treatment)
    return csv_text([*factors, "response", *before, "run", *after, *ratio], rows)


SUMMARY_COLUMNS = ("median", "low", "high", "kind", "n")


def csv_summary(summary: MedianSummary | None) -> list[Any]:
    """Return median, low, high, kind and number of trials; None for each without one."""
    if summary is None:
        return [None] * 5
    return [summary.middle, summary.low, summary.high, summary.kind, summary.n]
