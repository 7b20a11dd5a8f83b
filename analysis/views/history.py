"""Report of a history, and the history as JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from analysis.formatting import format_quantity, format_summary, response_title, treatment_label
from analysis.stats.gates import Gate
from analysis.summaries.history import History, LevelChange, TreatmentHistory
from analysis.views.comparison import GATE_TONES, csv_summary, marked
from pagecage.report.export import csv_text
from pagecage.report.model import (
    Block,
    Cell,
    Heading,
    Image,
    Paragraph,
    Report,
    Table,
    make_table,
)


def history_report(history: History, gates: Sequence[Gate] = ()) -> Report:
    """Return the report: the changes of level, the figure, the newest levels and the gates."""
    runs = history.runs
    first, last = runs[0].plan["run_id"], runs[-1].plan["run_id"]
    blocks: list[Block] = [Paragraph(f"{len(runs)} runs, {first} to {last}", tone="soft")]
    blocks += [
        Paragraph(f"{count} runs left out: another {reason}", tone="soft")
        for reason, count in history.left_out
    ]
    blocks += [Heading("Changes of level"), *_changes(history)]
    blocks += [Heading(response_title(history.response)), Image(partial(_svg, history))]
    blocks += [_levels(history), *_gates(history, gates)]
    return Report(f"History of {runs[-1].plan['experiment']}", tuple(blocks))


def _changes(history: History) -> Iterator[Block]:
    rows = [
        [treatment_label(one.treatment), change.run_id, *_change_cells(change)]
        for one in history.treatments
        for change in one.changes
    ]
    if rows:
        yield make_table(["treatment", "from run", "after / before", ""], rows)
    else:
        yield Paragraph("No treatment changed its level.", tone="good")


def _change_cells(change: LevelChange) -> tuple[str, str]:
    ratio = format_summary("", change.ratio, is_ratio=True)
    return ratio, marked(change.word).replace("trials", "runs")


def _levels(history: History) -> Table:
    rows = [
        [
            treatment_label(one.treatment),
            format_quantity(one.response, one.points[0].summary.middle),
            format_quantity(one.response, one.points[-1].summary.middle),
            str(len(one.points)),
        ]
        for one in history.treatments
    ]
    return make_table(["treatment", "oldest", "newest", "runs"], rows)


def _gates(history: History, gates: Sequence[Gate]) -> Iterator[Block]:
    if gates:
        yield Heading("Gates")
    for gate in gates:
        rows: list[list[str | Cell]] = [
            [gate.text, treatment_label(one.treatment), Cell(word, tone=GATE_TONES[word]), reason]
            for one, word, reason in history.gate_verdicts(gate)
        ]
        yield make_table(["gate", "treatment", "verdict", "reason"], rows)


def _svg(history: History) -> str | None:
    from analysis.figures.history import HISTORY_ALT, history_figure
    from analysis.figures.style import drawing_style, svg

    with drawing_style():
        return svg(history_figure(history), HISTORY_ALT)


def as_json(history: History, gates: Sequence[Gate] = ()) -> dict[str, Any]:
    """Return the history as JSON data; docs/FORMAT.md lists the keys."""
    return {
        "experiment": history.runs[-1].plan["experiment"],
        "response": history.response,
        "runs": [run.plan["run_id"] for run in history.runs],
        "left_out": dict(history.left_out),
        "treatments": [_treatment_json(one) for one in history.treatments],
        "gates": [
            {
                "gate": gate.text,
                "treatment": dict(one.treatment),
                "verdict": word,
                "reason": reason,
            }
            for gate in gates
            for one, word, reason in history.gate_verdicts(gate)
        ],
    }


def _treatment_json(history: TreatmentHistory) -> dict[str, Any]:
    return {
        "treatment": dict(history.treatment),
        "points": [asdict(point) for point in history.points],
        "changes": [asdict(change) for change in history.changes],
    }


def as_csv(history: History) -> str:
    """Return a line per run and treatment, with all digits, in the response's own unit."""
    factors = list(history.runs[-1].factors)
    rows = (
        [point.run_id, *one.treatment.values(), one.response, *csv_summary(point.summary)]
        for one in history.treatments
        for point in one.points
    )
    return csv_text(["run", *factors, "response", "median", "low", "high", "kind", "n"], rows)
