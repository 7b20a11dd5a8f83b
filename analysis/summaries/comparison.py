"""Comparison of runs with the first one: ratios compared with the noise floor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.data.load import Run, Treatment
from analysis.formatting import treatment_label
from analysis.stats.gates import MIN_TRIALS_PER_RUN, Gate, evaluate_gate
from analysis.stats.intervals import Block, MedianSummary, median_ratio, overall_ratio
from analysis.summaries.cells import (
    TreatmentCell,
    included_by_block,
    included_values,
    make_cell,
    treatments,
)
from analysis.summaries.compared_runs import run_letter
from analysis.summaries.differences import (
    Difference,
    Incompatibility,
    find_differences,
    find_gate_obstacles,
    find_incompatibilities,
)
from analysis.summaries.noise import NoiseFloor, largest_floor, noise_floor
from pagecage.errors import EXIT_GATE_UNDECIDED, EXIT_USAGE, PagecageError


@dataclass(frozen=True)
class Change:
    """The change of one run against the first, in one treatment.

    `word` is `higher` or `lower` (the interval excludes 1 and the change exceeds the noise floor),
    `inconclusive` or `too few trials`. If there is no `ratio`, it states the reason.
    """

    ratio: MedianSummary | None
    floor: NoiseFloor | None
    word: str


@dataclass(frozen=True)
class ComparisonRow:
    """One treatment and response: a cell per run, and a change for each run but the first."""

    treatment: Treatment
    response: str
    cells: tuple[TreatmentCell, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class GateResult:
    """A gate's verdict on one run's change in one treatment; `run` counts from 0, the first run."""

    gate: Gate
    run: int
    treatment: Treatment
    verdict: str
    reason: str


@dataclass(frozen=True)
class Comparison:
    """A comparison of runs.

    `overall` holds, by response, the geometric mean of each run's ratios over all treatments.
    `lacking` holds for each run its treatments that are not in all runs.
    """

    runs: tuple[Run, ...]
    responses: tuple[str, ...]
    rows: tuple[ComparisonRow, ...]
    overall: Mapping[str, tuple[MedianSummary | None, ...]]
    differences: tuple[Difference, ...]
    obstacles: tuple[Incompatibility, ...]
    lacking: tuple[tuple[str, ...], ...]
    gate_results: tuple[GateResult, ...]

    def verdicts(self) -> set[str]:
        """Return the verdicts of all gates."""
        return {result.verdict for result in self.gate_results}


def compare(runs: Sequence[Run], gates: Sequence[Gate] = (), *, anyway: bool = False) -> Comparison:
    """Compare each run with the first.

    Raises PagecageError if the runs are not comparable, unless `anyway` is set, or if they share no
    treatment, or no treatment with figures on both sides. With gates its exit code is
    EXIT_GATE_UNDECIDED.
    """
    refusal = EXIT_GATE_UNDECIDED if gates else EXIT_USAGE
    found = find_incompatibilities(runs)
    found += find_gate_obstacles(runs, [gate.response for gate in gates])
    if found and not anyway:
        reasons = "; ".join(f"{one.what}: {one.reason}" for one in found)
        message = f"these runs are not comparable: {reasons}"
        raise PagecageError(message, "--anyway compares them and reports this", refusal)
    common = _common_treatments(runs, refusal)
    responses = _responses(runs, gates)
    rows = tuple(
        comparison_row(runs, treatment, response) for response in responses for treatment in common
    )
    _check_figures(runs, rows, refusal)
    return Comparison(
        tuple(runs),
        responses,
        rows,
        {response: _overall(runs, common, response) for response in responses},
        tuple(find_differences(runs)),
        tuple(found),
        lacking=tuple(
            tuple(treatment_label(t) for t in treatments(run) if t not in common) for run in runs
        ),
        gate_results=tuple(
            result
            for gate in gates
            for row in rows
            if row.response == gate.response
            for result in _gate_results(gate, row)
        ),
    )


def _common_treatments(runs: Sequence[Run], refusal: int) -> list[Treatment]:
    """Return the treatments of the first run that all runs have.

    Raises PagecageError for none, with `refusal` as its exit code.
    """
    common = [t for t in treatments(runs[0]) if all(_is_in_plan(run, t) for run in runs[1:])]
    if not common:
        raise PagecageError(
            "these runs have no treatment in common",
            "compare runs of one experiment and size",
            refusal,
        )
    return common


def _is_in_plan(run: Run, treatment: Treatment) -> bool:
    return any(trial["treatment"] == dict(treatment) for trial in run.plan["trials"])


def _responses(runs: Sequence[Run], gates: Sequence[Gate]) -> tuple[str, ...]:
    """Return the experiment's response and those that gates name."""
    check_responses(runs, gates)
    return tuple(dict.fromkeys((runs[0].response, *(gate.response for gate in gates))))


def check_responses(runs: Sequence[Run], gates: Sequence[Gate]) -> None:
    """Raise PagecageError for a gate on a response that no trial has."""
    names = sorted({name for run in runs for trial in run.trials for name in trial.record.response})
    for gate in gates:
        if gate.response not in names:
            raise PagecageError(
                f"--fail-if: no trial has {gate.response!r}", f"one of {', '.join(names)}"
            )


def comparison_row(runs: Sequence[Run], treatment: Treatment, response: str) -> ComparisonRow:
    """Return the row of one treatment in all runs, each compared with the first."""
    values = [included_values(run, treatment, response) for run in runs]
    cells = tuple(make_cell(run, treatment, response) for run in runs)
    floors = [noise_floor(run, treatment, response) for run in runs]
    changes = tuple(_change(values, cells, floors, index) for index in range(1, len(runs)))
    return ComparisonRow(treatment, response, cells, changes)


def _change(
    values: Sequence[Sequence[float]],
    cells: Sequence[TreatmentCell],
    floors: Sequence[NoiseFloor | None],
    index: int,
) -> Change:
    floor = largest_floor([floors[0], floors[index]])
    if not values[0] or not values[index]:
        return Change(None, floor, _reason_without_ratio(values, cells, index))
    ratio = median_ratio(values[index], values[0])
    return Change(ratio, floor, change_word(ratio, floor))


def change_word(ratio: MedianSummary, floor: NoiseFloor | None) -> str:
    """Return the word of `Change` for a ratio and its noise floor."""
    if ratio.n < MIN_TRIALS_PER_RUN:
        return "too few trials"
    least = 1 + (floor.share if floor else 0)
    if ratio.low > 1 and ratio.middle > least:
        return "higher"
    return "lower" if ratio.high < 1 and ratio.middle < 1 / least else "inconclusive"


def _reason_without_ratio(
    values: Sequence[Sequence[float]], cells: Sequence[TreatmentCell], index: int
) -> str:
    """Return the reason why there is no ratio, by the letters of the runs."""
    letters_by_state: dict[str, list[str]] = {}
    for run in (0, index):
        if not values[run]:
            letters_by_state.setdefault(_state(cells[run]), []).append(run_letter(run))
    return ", ".join(
        f"{state} in {' and '.join(letters)}" for state, letters in letters_by_state.items()
    )


def _state(cell: TreatmentCell) -> str:
    if cell.is_all_excluded:
        return "excluded"
    if cell.killed:
        return "killed"
    return "wrong answer" if cell.wrong else "no figure"


def _check_figures(runs: Sequence[Run], rows: Sequence[ComparisonRow], refusal: int) -> None:
    for index in range(1, len(runs)):
        if any(row.changes[index - 1].ratio for row in rows):
            continue
        words = ", ".join(dict.fromkeys(row.changes[index - 1].word for row in rows))
        raise PagecageError(
            f"{run_letter(0)} and {run_letter(index)} have no treatment with figures on both sides:"
            f" {words}",
            "pagecage show RUN prints why trials are excluded; --include NAME includes a trial, or"
            " those of a verdict such as host_quiet",
            refusal,
        )


def _overall(
    runs: Sequence[Run], common: Sequence[Treatment], response: str
) -> tuple[MedianSummary | None, ...]:
    blocks = [_blocks(run, common, response) for run in runs]
    return tuple(overall_ratio(other, blocks[0]) for other in blocks[1:])


def _blocks(run: Run, common: Sequence[Treatment], response: str) -> list[Block]:
    """Return the figures of included trials by block and treatment."""
    found: dict[int, dict[str, list[float]]] = defaultdict(dict)
    for treatment in common:
        for number, values in included_by_block(run, treatment, response).items():
            found[number][treatment_label(treatment)] = values
    return [found[number] for number in sorted(found)]


def _gate_results(gate: Gate, row: ComparisonRow) -> list[GateResult]:
    """Return the gate's result for each run.

    A run is left out if neither it nor the first run has a figure.
    """
    results = []
    for index, change in enumerate(row.changes, start=1):
        if change.ratio is None and not (row.cells[0].summary or row.cells[index].summary):
            continue
        verdict, reason = evaluate_gate(
            gate, change.ratio, change.floor.share if change.floor else 0
        )
        results.append(
            GateResult(gate, index, row.treatment, verdict, reason if change.ratio else change.word)
        )
    return results


def varying_label(comparison: Comparison, treatment: Treatment) -> str:
    """Return a treatment's label without the factors that have one level throughout."""
    constant = comparison.runs[0].layout.constant
    return treatment_label(
        {name: level for name, level in treatment.items() if name not in constant}
    )
