"""Comparison of runs, treatment by treatment."""

from __future__ import annotations

import json
import string
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.cells import (
    NoiseFloor,
    TreatmentCell,
    included_by_block,
    included_values,
    largest_floor,
    make_cell,
    noise_floor,
    treatments,
    trials_of,
)
from analysis.data.baseline import load_baseline
from analysis.data.load import (
    VERDICTS,
    Run,
    Treatment,
    excluded_ids_named,
    excluded_trials,
    flattened,
    load_run,
    with_included,
)
from analysis.formatting import depends_on_cpu_speed, treatment_label
from analysis.stats import (
    MIN_TRIALS_PER_RUN,
    Gate,
    MedianSummary,
    evaluate_gate,
    median_ratio,
    overall_ratio,
    summarise,
)
from pagecage.errors import EXIT_GATE_UNDECIDED, EXIT_USAGE, PagecageError

LETTERS = string.ascii_uppercase


def run_letter(index: int) -> str:
    """Return A, B, C for the first, second and third run; AA follows Z."""
    before, index = divmod(index, len(LETTERS))
    return (run_letter(before - 1) if before else "") + LETTERS[index]


def load_runs(paths: Sequence[Path], include: Sequence[str] = ()) -> list[Run]:
    """Load runs, or baselines, in the given order, with the excluded trials that `include` names.

    A name is a trial or a verdict: `r1_x` or `host_quiet` in every run, `B:r1_x` in one. A verdict
    may select none: a build names it whether the host was quiet or not. Raises PagecageError if a
    run is given twice, or if the name of a trial selects none that is excluded.
    """
    if len(paths) > len(LETTERS):
        raise PagecageError(
            f"{len(paths)} runs are too many for one table", f"compare {len(LETTERS)} at most"
        )
    if len({path.resolve() for path in paths}) < len(paths):
        raise PagecageError("a run cannot be compared with itself", "name another run")
    runs = [run_or_baseline(path) for path in paths]
    names_by_run: list[list[str]] = [[] for _ in runs]
    for name in include:
        letter, _, selector = name.rpartition(":")
        candidates = [index for index in range(len(runs)) if letter in ("", run_letter(index))]
        selected = candidates
        if selector not in VERDICTS:
            selected = [one for one in candidates if excluded_ids_named(runs[one], [selector])]
        if not selected:
            names = "; ".join(
                f"{run_letter(index)}: {', '.join(t.record.trial_id for t in excluded)}"
                for index in candidates
                if (excluded := excluded_trials(runs[index]))
            )
            message = f"--include: {name} is not an excluded trial"
            raise PagecageError(message, f"excluded are {names or 'none'}")
        for index in selected:
            names_by_run[index].append(selector)
    pairs = zip(runs, names_by_run, strict=True)
    return [with_included(run, excluded_ids_named(run, names)) for run, names in pairs]


def run_or_baseline(path: Path) -> Run:
    return load_baseline(path) if path.is_file() else load_run(path)


_DETAILS = ("clock_error_seconds", "start_seconds", "kept_since_unix_seconds", "up_seconds")
_TRANSIENT = frozenset(
    {
        *("boot_id", "free_bytes", "machine.state_id", "machine.restore_seq"),
        *(f"machine.details.{name}" for name in _DETAILS),
    }
)
"""Facts that differ between any two starts of the same machine."""
_MACHINE = ("cpu_model", "cpus", "disk.filesystem", "disk.queue_settings.rotational")
"""Facts on which times depend, and which are equal on machines of one kind."""
_DATA = ("files", "dataset", "writes_bytes")
_PROGRAM = ("workload", "before")


@dataclass(frozen=True)
class Difference:
    """A property in which the runs differ, with its value in each run."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Incompatibility:
    """A reason against comparing runs.

    `what` is `experiment`, `dataset`, `program`, `kernel` or `emulation`, or for gates `size` or
    `machine`; `reason` is a sentence.
    """

    what: str
    reason: str


def find_differences(runs: Sequence[Run]) -> list[Difference]:
    """Return the facts, plan entries, cages and programs in which the runs differ.

    What a baseline does not keep is no difference.
    """
    properties = [dict(_properties(run)) for run in runs]
    kept = [one for run, one in zip(runs, properties, strict=True) if run.is_baseline]
    known = dict.fromkeys(name for one in properties for name in one)
    names = [name for name in known if all(name in one for one in kept)]
    rows = (Difference(name, tuple(one.get(name, "–") for one in properties)) for name in names)
    return [row for row in rows if len(set(row.values)) > 1]


def _properties(run: Run) -> Iterator[tuple[str, str]]:
    plan, records = run.plan, [trial.record for trial in run.trials]
    harness = plan.get("harness") or {}
    for name in ("experiment", "definition_sha256", "host", "size", "fresh"):
        yield name, str(plan.get(name))
    for name in ("version", "git_revision"):
        yield f"pagecage {name}", str(harness.get(name))
    yield "workload sha256", _all(record.workload.sha256 for record in records)
    yield "disk", _all(record.device.name for record in records)
    yield "emulated", _all(record.emulated for record in records)
    yield from sorted(facts_of(run).items())
    for treatment, trial in _trials(run).items():
        properties = sorted((trial.get("cage") or {}).get("properties", {}).items())
        limits = " ".join(f"{name}={value}" for name, value in properties)
        yield f"cage of {treatment}", limits or "no limits"
        yield f"program of {treatment}", _text(trial, _PROGRAM)
        yield f"data of {treatment}", _text(trial, _DATA)
        for key in ("cache", "read_ahead_kb", "storage", "machine_memory_bytes", "dirty_limits"):
            yield f"{key} of {treatment}", str(trial.get(key))


def _all(values: Iterable[Any]) -> str:
    texts = {"not known" if value is None else str(value) for value in values}
    return ", ".join(sorted(texts)) or "–"


def _trials(run: Run) -> dict[str, Mapping[str, Any]]:
    return {treatment_label(trial["treatment"]): trial for trial in reversed(run.plan["trials"])}


def _text(trial: Mapping[str, Any], keys: Sequence[str]) -> str:
    return json.dumps([trial.get(key) for key in keys], sort_keys=True)


def facts_of(run: Run) -> dict[str, str]:
    flat = [dict(flattened(facts)) for facts in run.facts]
    names = dict.fromkeys(name for facts in flat for name in facts if name not in _TRANSIENT)
    return {name: _all(facts.get(name) for facts in flat) for name in names}


def find_incompatibilities(runs: Sequence[Run]) -> list[Incompatibility]:
    return list(dict.fromkeys(one for run in runs[1:] for one in _incompatibilities(runs[0], run)))


def find_gate_obstacles(runs: Sequence[Run], responses: Sequence[str]) -> list[Incompatibility]:
    """Return each reason for which gates on these responses cannot be decided.

    Bytes, I/Os and faults do not depend on the machine; times, rates and metrics of a service do.
    """
    found: list[Incompatibility] = []
    metrics = {name for run in runs for name in run.metrics}
    timed = [name for name in responses if depends_on_cpu_speed(name) or name in metrics]
    for run in runs[1:]:
        sizes = [one.size for one in (runs[0], run)]
        if sizes[0] != sizes[1]:
            found.append(Incompatibility("size", f"size {sizes[0]} against {sizes[1]}"))
        facts = [facts_of(one) for one in (runs[0], run)]
        for name in _MACHINE if timed else ():
            values = [one.get(name, "not known") for one in facts]
            if values[0] != values[1]:
                reason = f"{name} {values[0]} against {values[1]}, on which {timed[0]} depends"
                found.append(Incompatibility("machine", reason))
    return list(dict.fromkeys(found))


def _incompatibilities(first: Run, other: Run) -> Iterator[Incompatibility]:
    names = first.experiment, other.experiment
    for word, (one, two) in (("of", names), ("about", (first.response, other.response))):
        if one != two:
            reason = f"one is {word} {one}, the other {word} {two}"
            yield Incompatibility("experiment", reason)
    ones, others = _trials(first), _trials(other)
    for what, keys, difference in (
        ("dataset", _DATA, "read different data"),
        ("program", _PROGRAM, "run a different program or different arguments"),
    ):
        both = (name for name in ones if name in others)
        differing = [name for name in both if _text(ones[name], keys) != _text(others[name], keys)]
        if differing:
            count = f"{len(differing)} of {len(ones)} treatments"
            yield Incompatibility(what, f"{count} {difference} ({differing[0]})")
    one, two = (facts_of(run).get("kernel", "not known") for run in (first, other))
    if one != two:
        yield Incompatibility("kernel", f"kernel {one} against {two}")
    one, two = (_all(trial.record.emulated for trial in run.trials) for run in (first, other))
    if one != two:
        yield Incompatibility("emulation", f"emulated: {one} against {two}")


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
    """A gate's verdict on one run in one treatment; `run` counts from 0, the first run."""

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
        return {result.verdict for result in self.gate_results}


def compare(runs: Sequence[Run], gates: Sequence[Gate] = (), *, anyway: bool = False) -> Comparison:
    """Compare each run with the first.

    Raises PagecageError if the runs are not comparable, unless `anyway` is set, or if they share no
    treatment with figures on both sides. With gates its exit code is EXIT_GATE_UNDECIDED.
    """
    refusal = EXIT_GATE_UNDECIDED if gates else EXIT_USAGE
    found = find_incompatibilities(runs)
    gates = [named_gate(gate, runs[-1]) for gate in gates]
    found += find_gate_obstacles(runs, [gate.response for gate in gates if gate.bound is None])
    if found and not anyway:
        reasons = "; ".join(f"{one.what}: {one.reason}" for one in found)
        message = f"these runs are not comparable: {reasons}"
        raise PagecageError(message, "--anyway compares them and reports this", refusal)
    planned = [[trial["treatment"] for trial in run.plan["trials"]] for run in runs[1:]]
    common = [t for t in treatments(runs[0]) if all(dict(t) in one for one in planned)]
    if not common:
        hint = "compare runs of one experiment and size"
        raise PagecageError("these runs have no treatment in common", hint, refusal)
    check_responses(runs, gates)
    responses = tuple(dict.fromkeys((runs[0].response, *(gate.response for gate in gates))))
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
        tuple(
            tuple(treatment_label(t) for t in treatments(run) if t not in common) for run in runs
        ),
        tuple(result for gate in gates for result in _gate_results(gate, rows, runs)),
    )


def _check_figures(runs: Sequence[Run], rows: Sequence[ComparisonRow], refusal: int) -> None:
    for index in range(1, len(runs)):
        changes = [row.changes[index - 1] for row in rows]
        if not any(change.ratio for change in changes):
            words = ", ".join(dict.fromkeys(change.word for change in changes))
            raise PagecageError(
                f"{run_letter(0)} and {run_letter(index)} have no treatment with figures on both"
                f" sides: {words}",
                "pagecage show RUN prints why trials are excluded; --include NAME includes a trial,"
                " or those of a verdict such as host_quiet",
                refusal,
            )


def _overall(
    runs: Sequence[Run], common: Sequence[Treatment], response: str
) -> tuple[MedianSummary | None, ...]:
    blocks = [defaultdict[int, dict[str, list[float]]](dict) for _ in runs]
    for run, found in zip(runs, blocks, strict=True):
        for treatment in common:
            for number, values in included_by_block(run, treatment, response).items():
                found[number][treatment_label(treatment)] = values
    first, *others = ([found[number] for number in sorted(found)] for found in blocks)
    return tuple(overall_ratio(other, first) for other in others)


def _gate_results(
    gate: Gate, rows: Sequence[ComparisonRow], runs: Sequence[Run]
) -> Iterator[GateResult]:
    for row in rows:
        first, *others = row.cells
        for index, (change, other) in enumerate(zip(row.changes, others, strict=True), start=1):
            if row.response == gate.response and (change.ratio or first.summary or other.summary):
                share = change.floor.share if change.floor else 0
                figure, sides = change.ratio, [runs[0], runs[index]]
                if gate.bound is not None:
                    is_proof = not (other.is_all_excluded or other.is_all_wrong)
                    figure, sides = other.summary if is_proof else None, [runs[index]]
                verdict, reason = evaluate_gate(gate, figure, share)
                reason = reason if figure else change.word
                reason = _with_exclusions(reason, figure, sides, row.treatment)
                yield GateResult(gate, index, row.treatment, verdict, reason)


def _with_exclusions(
    reason: str, figure: MedianSummary | None, runs: Iterable[Run], treatment: Treatment
) -> str:
    """Return a gate's reason, with the reason of excluded trials if too few others are left."""
    if figure and figure.n >= MIN_TRIALS_PER_RUN:
        return reason
    trials = (trial for run in runs for trial in trials_of(run.trials, treatment))
    reasons = (one.split(":")[0] for t in trials if t.is_excluded for one in t.verdicts.reasons)
    if not (why := ", ".join(dict.fromkeys(reasons))):
        return reason
    return f"{reason}: {why}" if reason.startswith("excluded") else f"{reason}; excluded: {why}"


_SHORT = {"iops": "device_reads_per_second", "bandwidth": "device_read_bytes_per_second"}
_DURATIONS = ("ready_seconds", "wall_seconds", "read_seconds")


def check_bounds(gates: Sequence[Gate]) -> None:
    """Raise PagecageError for a change, and for a bound in a unit of another kind."""
    for gate in gates:
        if gate.bound is None:
            raise PagecageError(
                f"--fail-if {gate.text!r} is a change, and there is no run to compare with",
                "--baseline RUN, or a bound, as in 'ready_seconds > 30s'",
            )
        if gate.response not in ("time", *_SHORT):
            _ = gate.threshold  # raises PagecageError for a unit of another kind


def named_gate(gate: Gate, run: Run) -> Gate:
    """Return a gate on a response of the run, for one on `time`, `iops` or `bandwidth`.

    `time` is the run's response if that is a time, else the time until a server serves, until a
    command ends, or of the reads.
    """
    names = {name for trial in run.trials for name in trial.record.response}
    if gate.response in names:
        return gate
    if gate.response == "time":
        times = (run.response, *_DURATIONS)
        known = (name for name in times if name.endswith("_seconds") and name in names)
        return replace(gate, response=next(known, gate.response))
    return replace(gate, response=_SHORT.get(gate.response, gate.response))


def judge(run: Run, gates: Sequence[Gate]) -> tuple[GateResult, ...]:
    """Return the verdicts of gates with bounds on one run; undecided without a figure."""
    named = [named_gate(gate, run) for gate in gates]
    check_responses([run], named)
    results = []
    for gate in named:
        for treatment in treatments(run):
            values = included_values(run, treatment, gate.response)
            figure = summarise(values) if values else None
            verdict, reason = evaluate_gate(gate, figure)
            reason = reason if values else _state(make_cell(run, treatment, gate.response))
            reason = _with_exclusions(reason, figure, [run], treatment)
            results.append(GateResult(gate, 0, treatment, verdict, reason))
    return tuple(results)


def check_responses(runs: Sequence[Run], gates: Sequence[Gate]) -> None:
    """Raise PagecageError for a gate on a response that no trial has."""
    names = sorted({name for run in runs for trial in run.trials for name in trial.record.response})
    for gate in gates:
        if gate.response not in names:
            raise PagecageError(
                f"--fail-if: no trial has {gate.response!r}", f"one of {', '.join(names)}"
            )


def comparison_row(runs: Sequence[Run], treatment: Treatment, response: str) -> ComparisonRow:
    values = [included_values(run, treatment, response) for run in runs]
    cells = tuple(make_cell(run, treatment, response) for run in runs)
    floors = [noise_floor(run, treatment, response) for run in runs]
    changes = []
    for index in range(1, len(runs)):
        floor, ratio = largest_floor([floors[0], floors[index]]), None
        if values[0] and values[index]:
            ratio = median_ratio(values[index], values[0])
            word = change_word(ratio, floor)
        else:
            letters: dict[str, list[str]] = {}
            for run in (0, index):
                if not values[run]:
                    letters.setdefault(_state(cells[run]), []).append(run_letter(run))
            word = ", ".join(f"{state} in {' and '.join(of)}" for state, of in letters.items())
        changes.append(Change(ratio, floor, word))
    return ComparisonRow(treatment, response, cells, tuple(changes))


def _state(cell: TreatmentCell) -> str:
    if cell.is_all_excluded:
        return "excluded"
    return "killed" if cell.killed else "wrong answer" if cell.wrong else "no figure"


def change_word(ratio: MedianSummary, floor: NoiseFloor | None) -> str:
    if ratio.n < MIN_TRIALS_PER_RUN:
        return "too few trials"
    least = 1 + (floor.share if floor else 0)
    if ratio.low > 1 and ratio.middle > least:
        return "higher"
    return "lower" if ratio.high < 1 and ratio.middle < 1 / least else "inconclusive"
