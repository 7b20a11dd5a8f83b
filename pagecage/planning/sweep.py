"""The plan of a sweep: one limit of a cage takes several values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cyclopts import Parameter

from pagecage.definitions.experiment import Experiment
from pagecage.errors import PagecageError
from pagecage.hosts.host import Host
from pagecage.model.cage import IO_MAX_KEY, MEMORY_EVENT, Cage
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.plan import Plan
from pagecage.planning import replay_plan
from pagecage.planning.cage_choice import choose_cage
from pagecage.planning.host_choice import plan_on_host
from pagecage.planning.options import (
    REPEATS,
    Dataset,
    Fresh,
    ReplayOptions,
    RunOptions,
    ServiceOptions,
    Treatments,
    definitions,
    given_options,
)
from pagecage.planning.plan import level_of_new_cage, parse_treatment
from pagecage.planning.replay_plan import replay_cages
from pagecage.planning.run_plan import build_plan, choose_size
from pagecage.runner.resource_needs import check_memory_floor
from pagecage.terminal import Notify
from pagecage.units import LEAST_PAGE_BYTES, parse_size_bytes

SWEEP_PREFIX = "sweep-"
"""Prefix of a sweep's name; the experiment's name follows."""
_MOST_VALUES = 100
VARIED = (*MEMORY_EVENT, *IO_MAX_KEY, "CPUQuota")


@dataclass(frozen=True)
class LimitVariation:
    """A systemd property and its values, by the words that the user wrote."""

    property: str
    values: Mapping[str, int]
    own: str | None


def parse_vary(text: str, cage: Cage) -> LimitVariation:
    """Parse the value of `--vary`, such as `IOReadIOPSMax=500,1000`, for this cage."""
    prop, equals, listed = text.partition("=")
    if not equals or prop not in VARIED:
        message = f"--vary: {text!r} does not name a limit"
        raise PagecageError(message, f"write PROPERTY=VALUE,VALUE; {', '.join(VARIED)}")
    values = {word: _value(prop, word) for word in listed.replace(" ", "").split(",") if word}
    present = cage.properties.get(prop)
    own = next((word for word, value in values.items() if value == present), None)
    if present is not None and own is None:
        own = str(present) if _counts(prop) else f"{present}B"
        values[own] = present
    if len(values) > _MOST_VALUES:
        raise PagecageError(
            f"--vary: {len(values)} values are too many", f"give at most {_MOST_VALUES}"
        )
    if len(values) < 2 or len(set(values.values())) < len(values):
        message = f"--vary: {text!r} has too few different values"
        raise PagecageError(message, f"give two or more, as in {_example(prop)}")
    return LimitVariation(prop, dict(sorted(values.items(), key=lambda item: item[1])), own)


def _example(prop: str) -> str:
    return f"{prop}=500,1000" if _counts(prop) else f"{prop}=64MiB,128MiB"


def _counts(prop: str) -> bool:
    return "IOPS" in prop or prop == "CPUQuota"


def _value(prop: str, word: str) -> int:
    where = f"--vary {prop}"
    if not _counts(prop):
        size_bytes = parse_size_bytes(word, where)
        if size_bytes < (LEAST_PAGE_BYTES if prop in MEMORY_EVENT else 1):
            raise PagecageError(
                f"{where}: {word} is too small", f"write values as in {_example(prop)}"
            )
        return size_bytes
    if not re.fullmatch(r"0*[1-9][0-9]{0,17}", word):
        message = f"{where}: {word!r} is not a positive number"
        raise PagecageError(message, "write plain numbers, as in 500,1000,2000")
    return int(word)


def cages_of(cage: Cage, vary: LimitVariation) -> dict[str, Cage]:
    """Return the cage with each value, by a name that contains the value."""
    prop, burst = vary.property, cage.burst
    bucket = burst and (
        burst.iops if "IOPS" in prop else burst.bandwidth if "Bandwidth" in prop else None
    )
    cages = {}
    for word, value in vary.values.items():
        if bucket and value >= bucket.rate:
            message = f"--vary: {prop} of {value} is not below the burst rate of {bucket.rate}"
            raise PagecageError(message, f"give values below {bucket.rate}")
        name = level_cage(cage.name, prop, word)
        cages[name] = replace(cage, name=name, properties={**cage.properties, prop: value})
    return cages


def level_cage(name: str, prop: str, word: str) -> str:
    return f"{name}, {prop} {word}"


def sweep_experiment(
    experiment: Experiment, cage: str, vary: LimitVariation, chosen: Mapping[str, str]
) -> Experiment:
    """Return the experiment with one treatment under each value, without claims or control."""
    pinned = _pinned(experiment, chosen)
    names = {word: level_cage(cage, vary.property, word) for word in vary.values}
    factors = {**{name: (level,) for name, level in pinned.items()}, vary.property: tuple(names)}
    kept = {
        name: {level: table[level]}
        for name, level in pinned.items()
        if level in (table := experiment.levels.get(name, {}))
    }
    level, stored = level_of_new_cage(experiment)
    varied = {word: level.model_copy(update={"cage": name}) for word, name in names.items()}
    return replace(
        experiment,
        name=f"{SWEEP_PREFIX}{experiment.name}",
        factors=factors,
        exclude=(),
        claims=(),
        levels={**kept, vary.property: varied},
        definition=_definition(experiment, factors, vary, cage, stored),
    )


def _pinned(experiment: Experiment, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return one level of every factor except the cage."""
    factors = {name: levels for name, levels in experiment.factors.items() if name != "cage"}
    for name, level in chosen.items():
        if level not in factors.get(name, ()):
            known = [f"{factor}={word}" for factor, levels in factors.items() for word in levels]
            message = f"--treatment: {experiment.name} has no {name}={level}"
            raise PagecageError(message, f"known: {', '.join(known)}")
    for name, levels in factors.items():
        if name not in chosen and len(levels) > 1:
            message = f"{experiment.name} has several {name}s"
            raise PagecageError(message, f"choose one: --treatment {name}={levels[0]}")
        if any(level.cage for level in experiment.levels.get(name, {}).values()):
            raise PagecageError(
                f"{experiment.name} sets its cages in its levels", "sweep another experiment"
            )
    return {name: chosen.get(name, levels[0]) for name, levels in factors.items()}


def _definition(
    experiment: Experiment,
    factors: Mapping[str, tuple[str, ...]],
    vary: LimitVariation,
    cage: str,
    stored: JsonView,
) -> Json:
    others = ", ".join(levels[0] for name, levels in factors.items() if name != vary.property)
    name = f"{experiment.name} ({others})" if others else experiment.name
    how = "How does {} fare" if experiment.workload.service else "How long does {} take"
    kept = dict(experiment.definition)
    for key in ("claims", "headline", "findings", "story", "exclude"):
        kept.pop(key, None)
    tables = dict(kept.get("levels", {}))
    tables |= {vary.property: dict.fromkeys(vary.values, stored)} if stored else {}
    return {
        **kept,
        "question": f"{how.format(name)} in {cage} under other values of {vary.property}?",
        "factors": {name: list(levels) for name, levels in factors.items()},
        "claims": [],
        "findings": [],
        "levels": {name: table for name, table in tables.items() if name in factors},
    }


_OF_REPLAY = (
    *("cold", "cache", "ready_when", "ready_port", "copy", "copy_program", "timeout"),
    "collectors",
)


@Parameter(name="*", group=REPEATS)
@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """Options of a sweep of an experiment.

    Parameters
    ----------
    treatment
        Level of a factor of the experiment; needed for each one with several, except the cage
    dataset
        Size of an experiment's data: auto, full, default, emulated or smoke
    fresh
        When to restore the guest's saved state, in a sweep of an experiment
    """

    treatment: Treatments = ()
    dataset: Dataset | None = None
    fresh: Fresh | None = None


@dataclass(frozen=True)
class SweepOptions:
    """All options of a sweep. `replay` holds those that both forms share and those of a command."""

    base: str
    words: tuple[str, ...]
    vary: str
    experiment: ExperimentOptions
    replay: ReplayOptions
    served: ServiceOptions = ServiceOptions()  # noqa: RUF009 - frozen

    def check(self, *, of_command: bool) -> None:
        kind = "an experiment" if of_command else "a command after --"
        mistaken = (self.experiment,) if of_command else (self.replay, _OF_REPLAY)
        for option in given_options(*mistaken):
            raise PagecageError(f"{option} applies only to {kind}", "pagecage sweep --help")


def plan_of_experiment(options: SweepOptions, command: str, notify: Notify) -> tuple[Plan, Host]:
    """Return the plan of one treatment of an experiment under each value, and its host."""
    options.check(of_command=False)
    if len(options.words) != 1:
        message = f"{' '.join(options.words)!r} is not an experiment"
        message = message if options.words else "no experiment and no command was given"
        raise PagecageError(message, "name an experiment, or put -- before a command")
    experiment, shared = definitions().experiment(options.words[0]), options.replay
    treatment = parse_treatment(options.experiment.treatment)
    volume = shared.volume
    choose_cage(options.base, volume, experiment.sizes["full"].total_bytes)

    def make(host: Host) -> Plan:
        size, reason = choose_size(options.experiment.dataset or "auto", host, notify)
        cage = choose_cage(options.base, volume, experiment.sizes[size].total_bytes)
        vary = parse_vary(options.vary, cage)
        run_options = RunOptions(
            dataset=size, repeats=shared.repeats, seed=shared.seed, fresh=options.experiment.fresh
        )
        varied = sweep_experiment(experiment, cage.name, vary, treatment)
        plan = build_plan(run_options, varied, host, command, notify, cages_of(cage, vary))
        check_memory_floor(plan)
        levels = {word: word for word in vary.values}
        swept = _with_sweep(plan, cage.name, vary, vary.property, levels)
        return replace(swept, document={**swept.document, "size_reason": reason})

    return plan_on_host(shared, make, notify)


def plan_of_command(options: SweepOptions, command: str, notify: Notify) -> tuple[Plan, Host]:
    """Return the plan of a replay of any program in one cage per value, and its host."""
    options.check(of_command=True)
    shared = options.replay
    (cage,) = replay_cages([options.base], shared).values()
    vary = parse_vary(options.vary, cage)
    cages = cages_of(cage, vary)
    plan, host = replay_plan.plan_for(cages, options.words, shared, command, notify, options.served)
    levels = {word: level_cage(cage.name, vary.property, word) for word in vary.values}
    return _with_sweep(plan, cage.name, vary, "cage", levels), host


def _with_sweep(
    plan: Plan, base: str, vary: LimitVariation, factor: str, levels: dict[str, str]
) -> Plan:
    sweep = {
        "property": vary.property,
        "factor": factor,
        "values": {levels[word]: value for word, value in vary.values.items()},
        "own": None if vary.own is None else levels[vary.own],
        "cage": base,
    }
    return replace(plan, document={**plan.document, "sweep": sweep})
