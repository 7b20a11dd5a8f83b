"""The history of an experiment: its comparable runs in order, and where a figure changed level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.data.load import Run, Treatment
from analysis.stats.change_points import change_points
from analysis.stats.gates import Gate, evaluate_gate
from analysis.stats.intervals import MedianSummary, median_ratio, summarise
from analysis.summaries.cells import included_values, treatments
from analysis.summaries.comparison import change_word
from analysis.summaries.differences import find_gate_obstacles, find_incompatibilities
from analysis.summaries.noise import NoiseFloor, largest_floor, noise_of
from pagecage.errors import PagecageError

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
