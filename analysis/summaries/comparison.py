"""Runs against the first of them: for each treatment the ratio of medians, beside what mere noise would show."""

from __future__ import annotations

import string
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.data.include import excluded_ids_named
from analysis.data.load import Run, Treatment, excluded_trials, load_run, with_included
from analysis.formatting import label
from analysis.stats.bootstrap import Interval
from analysis.stats.gates import FEWEST_A_SIDE, Gate, judge_gate
from analysis.stats.intervals import Block, MedianSummary, bca, overall_ratio, ratio
from analysis.summaries.cells import TreatmentCell, figure, figures, make_cell, matching, treatments
from analysis.summaries.differences import Difference, Incompatibility, differences, obstacles
from analysis.summaries.noise import NoiseFloor, noise_floor
from pagecage.errors import PagecageError

LETTERS = string.ascii_uppercase


@dataclass(frozen=True)
class Change:
    """One run against the first, in one treatment. Without a `ratio` the `word` says why there is none.

    Words: `higher`, `lower` (the interval leaves out 1, and the change is above the noise floor), `not told apart`,
    `too few trials`.
    """

    ratio: MedianSummary | None
    floor: NoiseFloor | None
    word: str


@dataclass(frozen=True)
class ComparisonRow:
    """One treatment and response: a cell a run, and a change for each run but the first."""

    treatment: Treatment
    response: str
    cells: tuple[TreatmentCell, ...]
    intervals: tuple[Interval | None, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class GateResult:
    """What a gate says of one run's change in one treatment; `run` counts from 0, which is the first."""

    gate: Gate
    run: int
    treatment: Treatment
    verdict: str
    reason: str


@dataclass(frozen=True)
class Comparison:
    """`overall` has for each response one ratio a run: the geometric mean of its treatments."""

    runs: tuple[Run, ...]
    responses: tuple[str, ...]
    rows: tuple[ComparisonRow, ...]
    overall: Mapping[str, tuple[MedianSummary | None, ...]]
    differences: tuple[Difference, ...]
    obstacles: tuple[Incompatibility, ...]
    lacking: tuple[tuple[str, ...], ...]
    judgements: tuple[GateResult, ...]

    def verdicts(self) -> set[str]:
        """The verdicts of all gates."""
        return {judgement.verdict for judgement in self.judgements}


def compare(runs: Sequence[Run], gates: Sequence[Gate] = (), *, anyway: bool = False) -> Comparison:
    """Compare each run with the first. Raises PagecageError for runs that are not comparable, unless `anyway`.

    Runs without a treatment in common, or without a figure on both sides of any, cannot be compared in any way.
    """
    found = obstacles(runs)
    if found and not anyway:
        said = "; ".join(f"{one.what}: {one.reason}" for one in found)
        raise PagecageError(f"these runs are not comparable: {said}", "--anyway compares them and says so")
    common = [t for t in treatments(runs[0]) if all(_has(run, t) for run in runs[1:])]
    if not common:
        raise PagecageError("these runs have no treatment in common", "compare runs of one experiment and size")
    responses = _responses(runs, gates)
    rows = tuple(make_row(runs, treatment, response) for response in responses for treatment in common)
    _check_figures(runs, rows)
    overall = {response: _overall(runs, common, response) for response in responses}
    judged = tuple(one for gate in gates for row in rows if row.response == gate.response for one in _judge(gate, row))
    lacking = tuple(tuple(label(dict(t)) for t in treatments(run) if t not in common) for run in runs)
    return Comparison(tuple(runs), responses, rows, overall, tuple(differences(runs)), tuple(found), lacking, judged)


def _has(run: Run, treatment: Treatment) -> bool:
    return any(trial["treatment"] == dict(treatment) for trial in run.plan["trials"])


def _responses(runs: Sequence[Run], gates: Sequence[Gate]) -> tuple[str, ...]:
    """What the experiment is about, and what gates name. Raises PagecageError for a name that no trial has."""
    known = sorted({name for run in runs for trial in run.trials for name in trial.record.response})
    for gate in gates:
        if gate.response not in known:
            raise PagecageError(f"--fail-if: no trial has {gate.response!r}", f"one of {', '.join(known)}")
    return tuple(dict.fromkeys((runs[0].response, *(gate.response for gate in gates))))


def make_row(runs: Sequence[Run], treatment: Treatment, response: str) -> ComparisonRow:
    """One treatment in all runs, each against the first."""
    values = [figures(run, treatment, response) for run in runs]
    cells = tuple(make_cell(run, treatment, response) for run in runs)
    floors = [noise_floor(run, treatment, response) for run in runs]
    changes = tuple(_change(values, cells, floors, place) for place in range(1, len(runs)))
    return ComparisonRow(treatment, response, cells, tuple(map(bca, values)), changes)


def _change(
    values: Sequence[Sequence[float]], cells: Sequence[TreatmentCell], floors: Sequence[NoiseFloor | None], place: int
) -> Change:
    floor = max((f for f in (floors[0], floors[place]) if f), key=lambda f: f.share, default=None)
    if not values[0] or not values[place]:
        return Change(None, floor, _why_none(values, cells, place))
    made = ratio(values[place], values[0])
    return Change(made, floor, word_of(made, floor))


def word_of(made: MedianSummary, floor: NoiseFloor | None) -> str:
    """What a ratio and its floor come to, in the words of `Change`."""
    if made.n < FEWEST_A_SIDE:
        return "too few trials"
    least = 1 + (floor.share if floor else 0)
    if made.low > 1 and made.middle > least:
        return "higher"
    return "lower" if made.high < 1 and made.middle < 1 / least else "not told apart"


def _why_none(values: Sequence[Sequence[float]], cells: Sequence[TreatmentCell], place: int) -> str:
    """What stands in the way of a ratio, by the run's letter."""
    where: dict[str, list[str]] = {}
    for one in (0, place):
        if not values[one]:
            where.setdefault(_state(cells[one]), []).append(letter(one))
    return ", ".join(f"{state} in {' and '.join(letters)}" for state, letters in where.items())


def _state(cell: TreatmentCell) -> str:
    if cell.is_all_excluded:
        return "excluded"
    if cell.killed:
        return "killed"
    return "wrong answer" if cell.wrong else "no figure"


def letter(place: int) -> str:
    """A, B, C for the first, second, third run; AA after Z."""
    before, place = divmod(place, len(LETTERS))
    return (letter(before - 1) if before else "") + LETTERS[place]


def _check_figures(runs: Sequence[Run], rows: Sequence[ComparisonRow]) -> None:
    for place in range(1, len(runs)):
        if any(row.changes[place - 1].ratio for row in rows):
            continue
        words = ", ".join(dict.fromkeys(row.changes[place - 1].word for row in rows))
        raise PagecageError(
            f"{letter(0)} and {letter(place)} have no treatment with figures on both sides: {words}",
            "pagecage show RUN prints why trials are excluded; --include TRIAL includes one",
        )


def _overall(runs: Sequence[Run], common: Sequence[Treatment], response: str) -> tuple[MedianSummary | None, ...]:
    blocks = [_blocks(run, common, response) for run in runs]
    return tuple(overall_ratio(other, blocks[0]) for other in blocks[1:])


def _blocks(run: Run, common: Sequence[Treatment], response: str) -> list[Block]:
    """Figures of included trials by block and treatment."""
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for treatment in common:
        for trial in matching(run.trials, treatment):
            value = figure(trial, response)
            if trial.is_included and not trial.is_killed and value is not None:
                found[trial.record.block][label(dict(treatment))].append(value)
    return [found[number] for number in sorted(found)]


def _judge(gate: Gate, row: ComparisonRow) -> list[GateResult]:
    """Each run's change; nothing is said of a treatment that has no figure on either side."""
    told = []
    for place, change in enumerate(row.changes, start=1):
        if change.ratio is None and not (row.cells[0].summary or row.cells[place].summary):
            continue
        verdict, why = judge_gate(gate, change.ratio)
        told.append(GateResult(gate, place, row.treatment, verdict, why if change.ratio else change.word))
    return told


def load_sides(paths: Sequence[Path], include: Sequence[str] = ()) -> list[Run]:
    """The runs in the order given, with the excluded trials that `include` names averaged in.

    A name is a trial's or a verdict's: `r1_x` or `host_quiet` in every run, `B:r1_x` in one.
    Raises PagecageError for the same run twice, and for a name that excludes nothing.
    """
    if len(paths) > len(LETTERS):
        raise PagecageError(f"{len(paths)} runs are too many for one table", f"compare {len(LETTERS)} at most")
    if len({path.resolve() for path in paths}) < len(paths):
        raise PagecageError("a run compared with itself says nothing", "name another run")
    runs = [load_run(path) for path in paths]
    asked = [_asked(name, runs) for name in include]
    mine = [[name for name, places in asked if place in places] for place in range(len(runs))]
    return [with_included(run, excluded_ids_named(run, names)) for run, names in zip(runs, mine, strict=True)]


def _asked(name: str, runs: Sequence[Run]) -> tuple[str, set[int]]:
    """The trial or the verdict that a name means, and the places of the runs in which it excludes something."""
    side, _, wanted = name.rpartition(":")
    asked = [place for place in range(len(runs)) if side in ("", letter(place))]
    places = {place for place in asked if excluded_ids_named(runs[place], [wanted])}
    if not places:
        excluded = {letter(place): [t.record.trial_id for t in excluded_trials(runs[place])] for place in asked}
        known = "; ".join(f"{run}: {', '.join(ids)}" for run, ids in excluded.items() if ids)
        raise PagecageError(f"--include: {name} is no excluded trial", f"excluded are {known or 'none'}")
    return wanted, places


def name_of(comparison: Comparison, treatment: Treatment) -> str:
    """A treatment without the factors that have one level throughout."""
    constant = comparison.runs[0].layout.constant
    return label({name: level for name, level in treatment.items() if name not in constant})
