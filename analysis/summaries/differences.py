"""Differences between runs other than their figures, and those that forbid a comparison."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.data.load import Run
from analysis.formatting import treatment_label
from analysis.response_units import depends_on_cpu_speed

_TRANSIENT = frozenset(
    {
        "boot_id",
        "free_bytes",
        "machine.state_id",
        "machine.restore_seq",
        "machine.details.clock_error_seconds",
        "machine.details.start_seconds",
        "machine.details.kept_since_unix_seconds",
        "machine.details.up_seconds",
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

    If a run has several machine states, all their values are listed. What a baseline does not keep
    is no difference.
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
    yield from (
        (name, str(plan.get(name)))
        for name in ("experiment", "definition_sha256", "host", "size", "fresh")
    )
    yield from (
        (f"pagecage {name}", str(harness.get(name))) for name in ("version", "git_revision")
    )
    yield "workload sha256", _all(record.workload.sha256 for record in records)
    yield "disk", _all(record.device.name for record in records)
    yield "emulated", _all(record.emulated for record in records)
    yield from sorted(facts_of(run).items())
    for treatment, trial in _trials(run).items():
        cage = trial.get("cage") or {}
        yield f"cage of {treatment}", _limits(cage)
        yield f"program of {treatment}", _program(trial)
        yield f"data of {treatment}", _data(trial)
        for key in ("cache", "read_ahead_kb", "storage", "machine_memory_bytes", "dirty_limits"):
            yield f"{key} of {treatment}", str(trial.get(key))


def facts_of(run: Run) -> dict[str, str]:
    """Return the facts of a run's host, nested names joined by dots.

    If there are several machine states, all their values are listed.
    """
    flat = [dict(flatten_facts(facts)) for facts in run.facts]
    names = dict.fromkeys(name for facts in flat for name in facts if name not in _TRANSIENT)
    return {name: _all(facts.get(name) for facts in flat) for name in names}


def flatten_facts(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return nested facts as pairs, nested names joined by dots."""
    pairs: list[tuple[str, Any]] = []
    for key, value in facts.items():
        name = f"{prefix}{key}"
        pairs += flatten_facts(value, f"{name}.") if isinstance(value, Mapping) else [(name, value)]
    return pairs


def _all(values: Any) -> str:
    """Return each distinct value once, as text."""
    return (
        ", ".join(sorted({"not known" if value is None else str(value) for value in values})) or "–"
    )


def _trials(run: Run) -> dict[str, Mapping[str, Any]]:
    """Return the first planned trial of each treatment."""
    return {treatment_label(trial["treatment"]): trial for trial in reversed(run.plan["trials"])}


def _limits(cage: Mapping[str, Any]) -> str:
    return (
        " ".join(f"{name}={value}" for name, value in sorted(cage.get("properties", {}).items()))
        or "no limits"
    )


def _data(trial: Mapping[str, Any]) -> str:
    return json.dumps([trial.get(key) for key in _DATA], sort_keys=True)


def _program(trial: Mapping[str, Any]) -> str:
    return json.dumps([trial.get(key) for key in _PROGRAM], sort_keys=True)


def find_incompatibilities(runs: Sequence[Run]) -> list[Incompatibility]:
    """Return each reason for which a run is not comparable with the first one."""
    found = dict.fromkeys(one for run in runs[1:] for one in _incompatibilities(runs[0], run))
    return list(found)


def find_gate_obstacles(runs: Sequence[Run], responses: Sequence[str]) -> list[Incompatibility]:
    """Return each reason for which gates on these responses cannot be decided.

    Bytes, I/Os and faults do not depend on the machine. Times, rates and metrics of a service do.
    Runs of another size measure something else.
    """
    found: list[Incompatibility] = []
    metrics = {name for run in runs for name in run.metrics}
    timed = [name for name in responses if depends_on_cpu_speed(name) or name in metrics]
    for run in runs[1:]:
        if run.plan["size"] != runs[0].plan["size"]:
            sizes = f"{runs[0].plan['size']} against {run.plan['size']}"
            found.append(Incompatibility("size", f"size {sizes}"))
        if timed:
            found += _other_machine(runs[0], run, timed[0])
    return list(dict.fromkeys(found))


def _other_machine(first: Run, other: Run, response: str) -> Iterator[Incompatibility]:
    facts = [facts_of(run) for run in (first, other)]
    for name in _MACHINE:
        values = [one.get(name, "not known") for one in facts]
        if values[0] != values[1]:
            reason = f"{name} {values[0]} against {values[1]}, on which {response} depends"
            yield Incompatibility("machine", reason)


def _incompatibilities(first: Run, other: Run) -> Iterator[Incompatibility]:
    if first.plan["experiment"] != other.plan["experiment"]:
        yield Incompatibility(
            "experiment",
            f"one is of {first.plan['experiment']}, the other of {other.plan['experiment']}",
        )
    if first.response != other.response:
        yield Incompatibility(
            "experiment", f"one is about {first.response}, the other about {other.response}"
        )
    yield from _planned_difference(first, other, "dataset", _data, "read different data")
    yield from _planned_difference(
        first, other, "program", _program, "run a different program or different arguments"
    )
    kernels = [facts_of(run).get("kernel", "not known") for run in (first, other)]
    if kernels[0] != kernels[1]:
        yield Incompatibility("kernel", f"kernel {kernels[0]} against {kernels[1]}")
    emulated = [_all(trial.record.emulated for trial in run.trials) for run in (first, other)]
    if emulated[0] != emulated[1]:
        yield Incompatibility("emulation", f"emulated: {emulated[0]} against {emulated[1]}")


def _planned_difference(
    first: Run, other: Run, what: str, describe: Callable[[Mapping[str, Any]], str], difference: str
) -> Iterator[Incompatibility]:
    first_trials, other_trials = _trials(first), _trials(other)
    differing = [
        name
        for name in first_trials
        if name in other_trials and describe(first_trials[name]) != describe(other_trials[name])
    ]
    if differing:
        yield Incompatibility(
            what,
            f"{len(differing)} of {len(first_trials)} treatments {difference} ({differing[0]})",
        )
