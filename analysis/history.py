"""History of an experiment over its runs: figures, picture and page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes


from analysis.cells import NoiseFloor, included_values, largest_floor, noise_of, treatments
from analysis.comparison import change_word, find_gate_obstacles, find_incompatibilities
from analysis.data.load import Run, Treatment
from analysis.formatting import (
    format_quantity,
    format_summary,
    response_title,
    sentence_case,
    treatment_label,
)
from analysis.stats import (
    Gate,
    MedianSummary,
    change_points,
    evaluate_gate,
    median_ratio,
    summarise,
)
from analysis.views.comparison import GATE_TONES, SUMMARY_COLUMNS, csv_summary, marked
from pagecage.errors import PagecageError
from pagecage.report.model import (
    Block,
    Cell,
    Heading,
    Image,
    Paragraph,
    Report,
    Strip,
    csv_text,
    make_table,
)


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
    ordered = sorted(runs, key=lambda run: run.run_id)
    newest = ordered[-1]
    chosen, kept, counts = response or newest.response, [], Counter[str]()
    for run in ordered:
        pair = [newest, run]
        obstacles = [*find_incompatibilities(pair), *find_gate_obstacles(pair, [chosen])]
        if obstacles:
            counts[obstacles[0].what] += 1
        else:
            kept.append(run)
    if len(kept) < 2:
        name = newest.experiment
        raise PagecageError(
            f"{name} has {len(kept)} comparable run, and a history needs two",
            f"pagecage run {name}",
        )
    found = []
    for treatment in treatments(newest):
        points = tuple(
            HistoryPoint(run.run_id, summarise(values))
            for run in kept
            if (values := included_values(run, treatment, chosen))
        )
        if points:
            found.append(TreatmentHistory(treatment, points, tuple(_changes(points))))
    if not found:
        raise PagecageError(f"no trial has {chosen!r}", "pagecage show RUN --json lists responses")
    return History(tuple(kept), chosen, tuple(found), tuple(counts.most_common()))


def _changes(points: Sequence[HistoryPoint]) -> Iterator[LevelChange]:
    levels = [point.summary.middle for point in points]
    edges = [0, *change_points(levels), len(levels)]
    for before, begin, after in zip(edges, edges[1:], edges[2:], strict=False):
        sides = levels[begin:after], levels[before:begin]
        ratio, floor = median_ratio(*sides), largest_floor([noise_of(side) for side in sides])
        yield LevelChange(points[begin].run_id, ratio, floor, change_word(ratio, floor))


_ACROSS = 3
_PANEL_HEIGHT = 1.9


def _draw(axes: Axes, history: TreatmentHistory, response: str, positions: dict[str, int]) -> None:
    from matplotlib.ticker import MaxNLocator

    from analysis.figures.style import COLOURS, GREY, quantity_formatter

    at = [positions[point.run_id] for point in history.points]
    middle, lows, highs = (
        [getattr(point.summary, end) for point in history.points]
        for end in ("middle", "low", "high")
    )
    axes.vlines(at, lows, highs, color=COLOURS[0], lw=1)
    axes.plot(at, middle, "o-", color=COLOURS[0], ms=3.5, lw=1)
    for change in history.changes:
        style = "-" if change.is_proven else ":"
        colour = COLOURS[1] if change.is_proven else GREY
        axes.axvline(positions[change.run_id] - 0.5, color=colour, ls=style, lw=1.2)
    low, high = min(middle), max(middle)
    if high <= low * 1.02:  # a steady level must not look like noise
        axes.set_ylim(0, high * 1.4 or 1)
    axes.set_title(treatment_label(history.treatment), fontsize=9)
    axes.yaxis.set_major_formatter(quantity_formatter(response))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlim(-0.7, len(positions) - 0.3)


def history_report(history: History, gates: Sequence[Gate] = ()) -> Report:
    runs = history.runs
    changes, levels = [], []
    for one in history.treatments:
        label = treatment_label(one.treatment)
        for change in one.changes:
            ratio = format_summary("", change.ratio, is_ratio=True)
            word = marked(change.word).replace("trials", "runs")
            changes.append([label, change.run_id, ratio, word])
        ends = one.points[0].summary.middle, one.points[-1].summary.middle
        figures = (format_quantity(history.response, end) for end in ends)
        levels.append([label, *figures, str(len(one.points))])
    proven = sum(change.is_proven for one in history.treatments for change in one.changes)
    title = response_title(history.response)
    result = f"{sentence_case(title)}: {proven or 'no'} proven changes of level"
    span = f"{len(runs)} runs, {runs[0].run_id} to {runs[-1].run_id}"
    blocks: list[Block] = [Strip(result), Paragraph(span, tone="soft")]
    blocks += [
        Paragraph(f"{count} runs left out: another {reason}", tone="soft")
        for reason, count in history.left_out
    ]
    unchanged = Paragraph("No treatment changed its level.", tone="good")
    titles = ["treatment", "from run", "after / before", ""]
    if gates:
        blocks.append(Heading("Gates"))
    for gate in gates:
        rows: list[list[str | Cell]] = [
            [gate.text, treatment_label(one.treatment), Cell(word, tone=GATE_TONES[word]), reason]
            for one, word, reason in history.gate_verdicts(gate)
        ]
        blocks.append(make_table(["gate", "treatment", "verdict", "reason"], rows))
    blocks += [Heading("Changes of level"), make_table(titles, changes) if changes else unchanged]
    rest: list[Block] = [Heading(title), Image(partial(_svg, history))]
    rest += [make_table(["treatment", "oldest", "newest", "runs"], levels)]
    return Report(f"History of {runs[-1].experiment}", tuple(blocks), tuple(rest))


def _svg(history: History) -> str | None:
    from matplotlib.figure import Figure

    from analysis.figures.charts import WIDTH
    from analysis.figures.style import drawing_style, svg

    with drawing_style():
        count = len(history.treatments)
        rows = -(-count // _ACROSS)
        figure = Figure(figsize=(WIDTH, 0.5 + _PANEL_HEIGHT * rows), layout="constrained")
        positions = {run.run_id: n for n, run in enumerate(history.runs)}
        panels = figure.subplots(rows, min(count, _ACROSS), squeeze=False, sharex=True).flat
        for number, axes in enumerate(panels):
            if number < count:
                _draw(axes, history.treatments[number], history.response, positions)
            else:
                axes.set_visible(False)
        alt = "Medians with their intervals over the runs; a line marks each change of level"
        return svg(figure, alt)


def as_json(history: History, gates: Sequence[Gate] = ()) -> dict[str, Any]:
    return {
        "experiment": history.runs[-1].experiment,
        "response": history.response,
        "runs": [run.run_id for run in history.runs],
        "left_out": dict(history.left_out),
        "treatments": [
            {
                "treatment": dict(one.treatment),
                "points": [asdict(point) for point in one.points],
                "changes": [asdict(change) for change in one.changes],
            }
            for one in history.treatments
        ],
        "gates": [
            {"gate": gate.text, "treatment": dict(one.treatment), "verdict": word, "reason": reason}
            for gate in gates
            for one, word, reason in history.gate_verdicts(gate)
        ],
    }


def as_csv(history: History) -> str:
    """Return a line per run and treatment, with all digits, in the response's own unit."""
    factors = list(history.runs[-1].factors)
    rows = (
        [point.run_id, *one.treatment.values(), history.response, *csv_summary(point.summary)]
        for one in history.treatments
        for point in one.points
    )
    return csv_text(["run", *factors, "response", *SUMMARY_COLUMNS], rows)
