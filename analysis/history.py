"""History of an experiment over its runs: figures, picture and page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis.cells import NoiseFloor, included_values, largest_floor, noise_of, treatments
from analysis.comparison import change_word, find_gate_obstacles, find_incompatibilities
from analysis.data.load import Run, Treatment
from analysis.figures.charts import WIDTH
from analysis.figures.style import COLOURS, GREY
from analysis.formatting import format_quantity, format_summary, response_title, treatment_label
from analysis.stats import (
    Gate,
    MedianSummary,
    change_points,
    evaluate_gate,
    median_ratio,
    summarise,
)
from analysis.views.comparison import GATE_TONES, csv_summary, marked
from pagecage.errors import PagecageError
from pagecage.report.model import (
    Block,
    Cell,
    Heading,
    Image,
    Paragraph,
    Report,
    Table,
    csv_text,
    make_table,
)

FEWEST_RUNS = 2


@dataclass(frozen=True)
class HistoryPoint:
    """One run's figure of a treatment."""

    run_id: str
    summary: MedianSummary


@dataclass(frozen=True)
class LevelChange:
    """A change of level: its first run, and the ratio of the runs after to those before it.

    Each side reaches to the next change. `floor` and `word` (`higher`, `lower`, `inconclusive` or
    `too few trials`) are those of a comparison, in which each run counts as one trial.
    """

    run_id: str
    ratio: MedianSummary
    floor: NoiseFloor | None
    word: str

    @property
    def is_proven(self) -> bool:
        """True if at least three runs on each side show it."""
        return self.word in ("higher", "lower")


@dataclass(frozen=True)
class TreatmentHistory:
    """The figures of a treatment over the runs that have one, oldest first."""

    treatment: Treatment
    response: str
    points: tuple[HistoryPoint, ...]
    changes: tuple[LevelChange, ...]


@dataclass(frozen=True)
class History:
    """The comparable runs of an experiment, oldest first, and a history for each treatment.

    `left_out` counts the other runs by the reason why they are not comparable with the newest.
    """

    runs: tuple[Run, ...]
    response: str
    treatments: tuple[TreatmentHistory, ...]
    left_out: tuple[tuple[str, int], ...]

    def gate_verdicts(self, gate: Gate) -> Iterator[tuple[TreatmentHistory, str, str]]:
        """Yield each treatment with the gate's verdict on its newest change, and the reason."""
        for history in self.treatments:
            if not history.changes:
                yield history, "passed", "the level did not change"
            else:
                newest = history.changes[-1]
                share = newest.floor.share if newest.floor else 0.0
                yield history, *evaluate_gate(gate, newest.ratio, share)


def history_of(runs: Sequence[Run], response: str | None = None) -> History:
    """Return the history of the newest run's experiment, from runs in any order.

    Raises PagecageError for fewer than two comparable runs.
    """
    ordered = sorted(runs, key=lambda run: str(run.plan["run_id"]))
    newest = ordered[-1]
    chosen = response or newest.response
    reasons = {id(run): _obstacle(newest, run, chosen) for run in ordered}
    kept = tuple(run for run in ordered if not reasons[id(run)])
    if len(kept) < FEWEST_RUNS:
        name = newest.plan["experiment"]
        raise PagecageError(
            f"{name} has {len(kept)} comparable run, and a history needs two",
            f"pagecage run {name}",
        )
    histories = (_history(kept, treatment, chosen) for treatment in treatments(newest))
    found = tuple(history for history in histories if history.points)
    if not found:
        raise PagecageError(f"no trial has {chosen!r}", "pagecage show RUN --json lists responses")
    counts = Counter(reason for reason in reasons.values() if reason)
    return History(kept, chosen, found, tuple(counts.most_common()))


def _obstacle(newest: Run, run: Run, response: str) -> str:
    pair = [newest, run]
    found = [*find_incompatibilities(pair), *find_gate_obstacles(pair, [response])]
    return found[0].what if found else ""


def _history(runs: Sequence[Run], treatment: Treatment, response: str) -> TreatmentHistory:
    points = tuple(
        HistoryPoint(str(run.plan["run_id"]), summarise(values))
        for run in runs
        if (values := included_values(run, treatment, response))
    )
    return TreatmentHistory(treatment, response, points, tuple(_changes(points)))


def _changes(points: Sequence[HistoryPoint]) -> Iterator[LevelChange]:
    levels = [point.summary.middle for point in points]
    edges = [0, *change_points(levels), len(levels)]
    for before, begin, after in zip(edges, edges[1:], edges[2:], strict=False):
        sides = levels[begin:after], levels[before:begin]
        ratio, floor = median_ratio(*sides), largest_floor([noise_of(side) for side in sides])
        yield LevelChange(points[begin].run_id, ratio, floor, change_word(ratio, floor))


HISTORY_ALT = "Medians with their intervals over the runs; a line marks each change of level"
_ACROSS = 3
_PANEL_HEIGHT = 1.9


def history_figure(history: History) -> Figure:
    """Draw a panel for each treatment: runs from left to right, each panel with its own scale."""
    count = len(history.treatments)
    rows = -(-count // _ACROSS)
    figure = Figure(figsize=(WIDTH, 0.5 + _PANEL_HEIGHT * rows), layout="constrained")
    positions = {str(run.plan["run_id"]): n for n, run in enumerate(history.runs)}
    panels = figure.subplots(rows, min(count, _ACROSS), squeeze=False, sharex=True).flat
    for number, axes in enumerate(panels):
        if number < count:
            _draw(axes, history.treatments[number], positions)
        else:
            axes.set_visible(False)
    return figure


def _draw(axes: Axes, history: TreatmentHistory, positions: dict[str, int]) -> None:
    at = [positions[point.run_id] for point in history.points]
    middle = [point.summary.middle for point in history.points]
    axes.vlines(
        at,
        [point.summary.low for point in history.points],
        [point.summary.high for point in history.points],
        color=COLOURS[0],
        lw=1,
    )
    axes.plot(at, middle, "o-", color=COLOURS[0], ms=3.5, lw=1)
    for change in history.changes:
        style = "-" if change.is_proven else ":"
        colour = COLOURS[1] if change.is_proven else GREY
        axes.axvline(positions[change.run_id] - 0.5, color=colour, ls=style, lw=1.2)
    low, high = min(middle), max(middle)
    if high <= low * 1.02:  # a steady level must not look like noise
        axes.set_ylim(0, high * 1.4 or 1)
    axes.set_title(treatment_label(history.treatment), fontsize=9)
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: format_quantity(history.response, value))
    )
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlim(-0.7, len(positions) - 0.3)


def history_report(history: History, gates: Sequence[Gate] = ()) -> Report:
    """Return the report: the changes of level, the figure, the newest levels and the gates."""
    runs = history.runs
    first, last = runs[0].plan["run_id"], runs[-1].plan["run_id"]
    blocks: list[Block] = [Paragraph(f"{len(runs)} runs, {first} to {last}", tone="soft")]
    blocks += [
        Paragraph(f"{count} runs left out: another {reason}", tone="soft")
        for reason, count in history.left_out
    ]
    blocks += [Heading("Changes of level"), *_change_rows(history)]
    blocks += [Heading(response_title(history.response)), Image(partial(_svg, history))]
    blocks += [_levels(history), *_gates(history, gates)]
    return Report(f"History of {runs[-1].plan['experiment']}", tuple(blocks))


def _change_rows(history: History) -> Iterator[Block]:
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
