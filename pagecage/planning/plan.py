"""A plan: the treatments of an experiment, changed by options, and the order of their trials."""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pagecage.definitions.cage_file import DatasetFraction
from pagecage.definitions.experiment import Experiment
from pagecage.definitions.trial_tables import LevelTable, SizeTable
from pagecage.errors import PagecageError, nearest
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.plan import Plan
from pagecage.model.run_files import PLAN_VERSION
from pagecage.model.trial import (
    DRIVERS,
    WITHOUT_LIMITS,
    CommandSpec,
    Dataset,
    Trial,
    TrialData,
    Workload,
    recorded_trial,
)
from pagecage.planning.treatments import Treatment, combinations, covering
from pagecage.units import LEAST_PAGE_BYTES, format_bytes, format_seconds, page_floor_bytes


def treatments(experiment: Experiment) -> Iterator[Treatment]:
    """Yield all combinations of levels in the definition's order, without the excluded ones."""
    yield from combinations(experiment.factors, experiment.exclude)


def with_levels(every: list[Treatment], levels: Mapping[str, tuple[str, ...]]) -> list[Treatment]:
    """Return the treatments that have one of the given levels of each given factor."""
    return [
        treatment
        for treatment in every
        if all(treatment.get(factor) in allowed for factor, allowed in levels.items())
    ]


def selected(
    experiment: Experiment, size: str, levels: Mapping[str, tuple[str, ...]] | None = None
) -> list[Treatment]:
    """Return the treatments of a run of this size, in the definition's order."""
    every = with_levels(list(treatments(experiment)), levels or {})
    if experiment.sizes[size].treatments != "covering":
        return every
    chosen = covering(every)
    return [treatment for treatment in every if treatment in chosen]


def level_of_new_cage(experiment: Experiment) -> tuple[LevelTable, Json]:
    """Return what a cage takes over from the caged levels that it replaces, such as a cold cache.

    The second is the table that the definition stores. Both are without the cage. Raises
    PagecageError if the replaced levels differ.
    """
    factor, table = experiment.factors.get("cage", ()), experiment.levels.get("cage", {})
    names = [name for name in factor if name != UNCAGED] or list(factor)
    without = {"cage": None}
    levels = [table.get(name, LevelTable()).model_copy(update=without) for name in names]
    if any(vars(level) != vars(levels[0]) for level in levels):
        raise PagecageError(
            f"the caged levels of {experiment.name} differ in more than the cage: {names}",
            "give them the same settings, or add the cage to the experiment's levels",
        )
    stored = experiment.definition.get("levels", {}).get("cage", {})
    kept = dict(stored.get(names[0], {})) if names else {}
    kept.pop("cage", None)
    return (levels[0] if names else LevelTable()), kept


def with_cage(experiment: Experiment, *cages: str) -> Experiment:
    """Return the experiment with these cages instead of its caged levels; the control stays."""
    if not cages:
        return experiment
    levels = {name: table for name, table in experiment.levels.items() if name != "cage"}
    if any(level.cage for table in levels.values() for level in table.values()):
        raise PagecageError(
            f"the levels of {experiment.name} set its cages", "leave out CAGE (--cage)"
        )
    control = tuple(name for name in experiment.factors.get("cage", ()) if name == UNCAGED)
    new = [name for name in dict.fromkeys(cages) if name not in control]
    level, stored = level_of_new_cage(experiment)
    table = {name: level.model_copy(update={"cage": name}) for name in new}
    table |= _of_names(control, experiment.levels.get("cage", {}))
    names = (*control, *new)
    factors = {"cage": names, **experiment.factors} | {"cage": names}  # the cage comes first
    definition = {  # a plan stores it
        **experiment.definition,
        "factors": {name: list(levels) for name, levels in factors.items()},
    }
    if "cage" in (written := experiment.definition.get("levels", {})):
        kept = dict.fromkeys(new, stored) | _of_names(control, written["cage"])
        definition["levels"] = {**written, "cage": kept}
    levels = {**levels, "cage": table}
    return replace(experiment, levels=levels, factors=factors, definition=definition)


def _of_names(names: Sequence[str], table: JsonView) -> Json:
    return {name: table[name] for name in names if name in table}


def with_driver(experiment: Experiment, driver: str | None) -> Experiment:
    if driver is None:
        return experiment
    if any(level.driver for table in experiment.levels.values() for level in table.values()):
        raise PagecageError(f"the levels of {experiment.name} set its drivers", "remove --driver")
    return replace(experiment, driver=driver)


def with_ready_port(experiment: Experiment, port: int | None) -> Experiment:
    """Return an experiment of a command whose trials end once it listens on a port."""
    if port is None:
        return experiment
    others = [level for table in experiment.levels.values() for level in table.values()]
    if experiment.workload.kind != "command" or any(level.workload for level in others):
        raise PagecageError(
            f"--ready-port applies to one command, and {experiment.name} measures"
            f" {'several' if experiment.workload.kind == 'command' else 'another program'}",
            "remove --ready-port",
        )
    workload = experiment.workload
    command = replace(workload.command or CommandSpec(), ready_port=port, ready_when=None)
    written = {**experiment.definition["workload"], "ready_port": port}
    written.pop("ready_when", None)
    changes = {"workload": written, "response": "ready_seconds"}
    definition = {**experiment.definition, **changes}
    experiment = replace(experiment, response="ready_seconds", definition=definition)
    return replace(experiment, workload=replace(workload, command=command))


def parse_treatment(words: Sequence[str]) -> dict[str, str]:
    """Return the level of each factor that `--treatment` gives.

    Raises PagecageError if a factor is given twice.
    """
    levels = parse_levels(words)
    for factor, several in levels.items():
        if len(several) > 1:
            both = " and ".join(several)
            raise PagecageError(f"--treatment: {factor} cannot be {both} here", "give one level")
    return {factor: level for factor, (level,) in levels.items()}


def parse_levels(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the levels of each factor that `--treatment` gives."""
    levels: dict[str, tuple[str, ...]] = {}
    for word in words:
        if "=" not in word:
            raise PagecageError(
                f"--treatment: {word!r} has no level", "write FACTOR=LEVEL, as in load=lazy-random"
            )
        factor, level = word.split("=", 1)
        levels[factor] = tuple(dict.fromkeys([*levels.get(factor, ()), level]))
    return levels


def check_levels(experiment: Experiment, treatment: Mapping[str, tuple[str, ...]]) -> None:
    """Raise PagecageError unless the experiment has these levels, and a treatment with them."""
    known = [f"{name}={one}" for name, levels in experiment.factors.items() for one in levels]
    wanted = [f"{factor}={level}" for factor, levels in treatment.items() for level in levels]
    for level in wanted:
        if level not in known:
            message = f"--treatment: {experiment.name} has no {level}"
            raise PagecageError(message, nearest(level, known))
    if not with_levels(list(treatments(experiment)), treatment):
        raise PagecageError(
            f"--treatment: {experiment.name} excludes {' and '.join(wanted)}",
            f"see its treatments: pagecage run {experiment.name} --dry-run",
        )


_NAME_LENGTH = 100
# For a workload to get ready and to end, besides its measured part and checks that take as long.
_SETUP_SECONDS = 120.0


@dataclass(frozen=True)
class PlanOptions:
    """The options of one run.

    `seed` decides the order of the trials. `fresh` is how often the machine state is restored.
    `until_ci` is the largest half width of an interval, as a share of the median; `repeats` is
    then the largest number of repeats (pagecage/verdicts/stopping.py). `default_driver`
    starts trials whose experiment names no driver; None for the first of DRIVERS, as for trials
    with limits if it serves only those without. `treatment` has levels by factor: only treatments
    with one of them for each factor are planned.
    `budget_seconds` is the time for which the size was chosen, and `expected_seconds` the estimate
    of the plan's duration by the measured speed of the disk; None if the size was not so chosen.
    """

    size: str
    size_reason: str
    repeats: int
    seed: int
    host: str
    fresh: str
    until_ci: float | None = None
    default_driver: str | None = None
    treatment: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    budget_seconds: float | None = None
    expected_seconds: float | None = None

    def to_json(self) -> Json:
        """Return the part of a plan's document that repeats these options."""
        levels = {name: one[0] if len(one) == 1 else [*one] for name, one in self.treatment.items()}
        optional = ("treatment", "budget_seconds", "expected_seconds")
        left_out = {"default_driver", *(name for name in optional if not vars(self)[name])}
        found = {**vars(self), "treatment": levels}
        return {key: value for key, value in found.items() if key not in left_out}


def make_trials(
    experiment: Experiment, cages: Mapping[str, Cage], options: PlanOptions
) -> tuple[Trial, ...]:
    shuffle = random.Random(options.seed)
    names = _names(list(treatments(experiment)))
    trials: list[Trial] = []
    for repeat in range(1, options.repeats + 1):
        block = selected(experiment, options.size, options.treatment)
        shuffle.shuffle(block)
        for treatment in block:
            name = names[tuple(treatment.values())]
            # Without dashes, because a dash in a unit's name nests slices.
            place: Json = {"trial_id": f"r{repeat}_{name}" if name else f"r{repeat}"}
            place |= {"repeat": repeat, "block": repeat, "position": len(trials)}
            trials.append(_make_trial(experiment, cages, options, treatment, place))
    return tuple(trials)


def _names(all_treatments: list[Treatment]) -> dict[tuple[str, ...], str]:
    words = {
        tuple(t.values()): "_".join(re.sub(r"[^a-z0-9]+", "_", v.lower()) for v in t.values())
        for t in all_treatments
    }
    longest = max(map(len, words.values()), default=0)
    if len(set(words.values())) == len(words) and longest <= _NAME_LENGTH:
        return words
    return {
        key: f"{word[:_NAME_LENGTH]}_{number}"
        for number, (key, word) in enumerate(words.items(), start=1)
    }


_SAME_FOR_ALL_TRIALS = ("collectors", "own_collectors", "packages", "conditions")


def _make_trial(
    experiment: Experiment,
    cages: Mapping[str, Cage],
    options: PlanOptions,
    treatment: Treatment,
    place: JsonView,
) -> Trial:
    size = experiment.sizes[options.size]
    levels = [_level(experiment, factor, level, size) for factor, level in treatment.items()]
    read_ahead_kb, workload = _last(levels, "read_ahead_kb"), _workload(experiment, levels, size)
    files, total_bytes = _last(levels, "files") or size.files, size.total_bytes
    cage, enforced_by = cages[_last(levels, "cage") or UNCAGED], _last(levels, "enforced_by")
    if enforced_by and cage.limits_io:
        cage = replace(cage, enforced_by=enforced_by)
    timeout_seconds = workload.command.timeout_seconds if workload.command else None
    dirty = {name: _last(levels, name) for name in ("dirty_bytes", "dirty_background_bytes")}
    memory = _last(levels, "machine_memory_bytes")
    return Trial(
        experiment=experiment.name,
        treatment=treatment,
        **place,
        workload=workload,
        cage=cage,
        cache=_last(levels, "cache") or "any",
        dataset=_dataset(total_bytes, files, experiment.fill) if total_bytes else None,
        read_ahead_kb=experiment.read_ahead_kb if read_ahead_kb is None else read_ahead_kb,
        max_seconds=size.max_seconds,
        timeout_seconds=timeout_seconds or 2 * (size.max_seconds or 300.0) + _SETUP_SECONDS,
        files=files,
        before=_last(levels, "before"),
        **{name: getattr(experiment, name) for name in _SAME_FOR_ALL_TRIALS},
        storage=_last(levels, "storage") or "data",
        machine_memory_bytes=page_floor_bytes(round((total_bytes or 0) * memory.dataset_fraction))
        if isinstance(memory, DatasetFraction)
        else memory,
        dirty_limits={name: value for name, value in dirty.items() if value is not None},
        writes_bytes=size.writes or 0,
        driver=_driver(levels, experiment, cage, options.default_driver),
        data=_data(experiment.data, size),
    )


def _dataset(total_bytes: int, files: int, fill: str) -> Dataset:
    """Return equal files; one with an index is an array of whole buckets of a page."""
    size = total_bytes // files
    return Dataset(size - size % LEAST_PAGE_BYTES if fill == "index" else size, fill=fill)


def _level(experiment: Experiment, factor: str, level: str, size: SizeTable) -> LevelTable:
    known = experiment.levels.get(factor, {}).get(level, LevelTable())
    cage = known.cage or (level if factor == "cage" else None)
    return known.model_copy(update={"cage": cage and size.filled(cage)})


def _last(levels: list[LevelTable], key: str) -> Any:
    values = [value for level in levels if (value := getattr(level, key)) is not None]
    return values[-1] if values else None


def _driver(
    levels: list[LevelTable], experiment: Experiment, cage: Cage, default: str | None
) -> str:
    if default == WITHOUT_LIMITS and cage.cgroup_part.has_limits:
        default = None
    return str(_last(levels, "driver") or experiment.driver or default or DRIVERS[0])


def _data(data: TrialData | None, size: SizeTable) -> TrialData | None:
    if data is None or not data.prepare:
        return data
    prepare, made_by = (tuple(map(size.filled, words)) for words in (data.prepare, data.made_by))
    return replace(data, prepare=prepare, made_by=made_by, size_bytes=size.prepared or 0)


def _workload(experiment: Experiment, levels: list[LevelTable], size: SizeTable) -> Workload:
    chosen: Workload = _last(levels, "workload") or experiment.workload
    arguments = (*chosen.arguments, *(a for level in levels for a in level.arguments))
    if chosen.command is not None and chosen.command.is_literal:
        return replace(chosen, arguments=arguments)
    service = chosen.service
    if service is not None:
        load = (*service.load, *(a for level in levels for a in level.load_arguments))
        service = replace(service, load=tuple(map(size.filled, load)))
    return replace(chosen, arguments=tuple(map(size.filled, arguments)), service=service)


def make_plan(
    run_id: str,
    experiment: Experiment,
    cages: Mapping[str, Cage],
    options: PlanOptions,
    command: str,
    harness: JsonView,
    replay: JsonView | None = None,
    copies: JsonView | None = None,
) -> Plan:
    """Return the plan with its document (docs/FORMAT.md).

    `replay` holds the further data of a run that has no file in experiments/. `copies` holds the
    files that an experiment copies to the host.
    """
    trials = make_trials(experiment, cages, options)
    document = {
        "plan_version": PLAN_VERSION,
        "run_id": run_id,
        "experiment": experiment.name,
        "definition": dict(experiment.definition),
        "definition_sha256": experiment.definition_sha256,
        **options.to_json(),
        "treatments": experiment.sizes[options.size].treatments or "all",
        "command": command,
        "harness": dict(harness),
        "trials": [recorded_trial(t) for t in trials],
        "replay": None if replay is None else dict(replay),
        "copies": None if copies is None else dict(copies),
        "own_programs": dict(experiment.own_programs),
        "sections": dict(experiment.sections),
    }
    return Plan(run_id, trials, document)


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield a summary of the plan, then one line per trial, in order."""
    document = plan.document
    datasets = {(t.files, t.dataset.size_bytes) for t in plan.trials if t.dataset}
    sizes = (
        f"{files} × {format_bytes(size)}" if files > 1 else format_bytes(size)
        for files, size in sorted(datasets)
    )
    count, repeats = len(plan.trials), document["repeats"]
    yield (
        f"{document['experiment']} on {document['host']}: {count} trials, {repeats} repeats of each"
        " treatment"
    )
    if document.get("until_ci"):
        yield (
            f"stops earlier if every interval is within {100 * document['until_ci']:.3g} % of its"
            " median"
        )
    yield (
        f"size {document['size']} ({document['size_reason']}), dataset {', '.join(sizes) or 'none'}"
    )
    yield f"seed {document['seed']}, fresh: {document['fresh']}"
    yield from _service_lines(plan)
    yield ""
    for trial in plan.trials:
        yield (
            f"{trial.position + 1:>4}  block {trial.block}  {trial.trial_id:<32} cache"
            f" {trial.cache:<9} {_limits(trial.cage)}"
        )


def _service_lines(plan: Plan) -> Iterator[str]:
    workloads: list[Workload] = []
    for workload in (trial.workload for trial in plan.trials):
        service, settings = workload.service, workload.command
        if service is None or settings is None or workload in workloads:
            continue
        workloads.append(workload)
        serves = f"prints {settings.ready_when!r}"
        if settings.ready_port is not None:
            serves = f"listens on port {settings.ready_port}"
        server = shlex.join([workload.program, *workload.arguments])
        yield f"server {server}, ready when it {serves}"
        times = (("warm-up", service.warm_up_seconds), ("pause", service.settle_seconds))
        before = [f"{format_seconds(seconds)} of {name}" for name, seconds in times if seconds]
        after = f", after {' and '.join(before)}" if before else ""
        yield f"load {shlex.join(service.load)}{after}"
        yield from (f"metric {name}: {one.pattern}" for name, one in service.metrics.items())


def _limits(cage: Cage) -> str:
    disks = {"": cage.properties}
    disks |= {f"; disk {name}: ": disk.properties for name, disk in cage.disks.items()}
    limits = "".join(
        name + (" ".join(f"{key}={value}" for key, value in one.items()) or "no limits")
        for name, one in disks.items()
    )
    if not cage.is_volume:
        return limits
    slower = f", {cage.dilation:g} times slower" if cage.dilation != 1 else ""
    latency = f", {cage.latency}" if cage.latency else ""
    return f"{limits} (I/O by a simulated volume{latency}{slower})"
