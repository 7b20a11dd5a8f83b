"""The experiment of a sweep: one limit of a cage takes several values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pagecage.definitions.experiment import Experiment
from pagecage.errors import PagecageError
from pagecage.model.cage import IO_MAX_KEY, MEMORY_EVENT, Cage
from pagecage.model.json_codec import Json, JsonView
from pagecage.planning.plan import level_of_new_cage
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
