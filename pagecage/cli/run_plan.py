"""Choice of host and size for a run, and its plan."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pagecage.checkout import IS_INSTALLED, TOP
from pagecage.cli.enforcement import EMULATED_DISK, enforced
from pagecage.cli.init import place_files
from pagecage.cli.options import FleetOptions, RunOptions, chosen_conditions, definitions, is_group
from pagecage.cli.output import Notify
from pagecage.errors import PagecageError, nearest
from pagecage.hosts.disk_speed import ASSUMED
from pagecage.hosts.host import SizedHost
from pagecage.hosts.local import LocalHost
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.experiment import SIZES, Experiment, Level
from pagecage.planning.plan import (
    Plan,
    PlanOptions,
    make_plan,
    make_trials,
    treatments,
    with_levels,
)
from pagecage.planning.size import (
    DEFAULT_BUDGET_SECONDS,
    FittingSize,
    fitting_size,
    has_datasets,
    making_seconds,
    trial_seconds,
)
from pagecage.process import find_tool, run
from pagecage.runner.resource_needs import needed_disk_bytes
from pagecage.runner.run_folder import new_run_id
from pagecage.units import parse_seconds
from pagecage.version import VERSION

MOST_REPEATS = 30
"""The default of --max-repeats."""


def check_options(options: RunOptions, fleet_options: FleetOptions) -> None:
    """Raise PagecageError for options that no host could satisfy, before a host is contacted."""
    _check_size(options.size)
    budget_seconds(options)
    _check_repeats(options)
    until_ci(options)
    if not is_group(options.host) and fleet_options != FleetOptions():
        defaults = FleetOptions()
        option = next(
            name for name, value in vars(fleet_options).items() if value != getattr(defaults, name)
        )
        raise PagecageError(
            f"--{option.replace('_', '-')} applies only to a group of hosts, and {options.host} is"
            " not a group",
            "name a group: --host GROUP",
        )


def choose_size(name: str, host: SizedHost, notify: Notify) -> tuple[str, str]:
    """Return the name of the size and the reason for it."""
    _check_size(name)
    if name != "auto":
        return name, "asked for"
    if host.is_emulated(notify):
        return (
            "emulated",
            f"the {host.name} host translates instructions, so sizes and caps are small",
        )
    return "default", f"the {host.name} host runs instructions in hardware"


def budget_seconds(options: RunOptions) -> float | None:
    """Return the time that `--budget` gives to the plan; None without the option."""
    if options.budget is None:
        return None
    if options.size != "auto":
        raise PagecageError(
            "--budget chooses the size, so --size cannot be given too", "remove one of them"
        )
    if is_group(options.host):
        raise PagecageError(
            f"--budget applies to one host, and {options.host} is a group", "use --size"
        )
    return parse_seconds(options.budget, "--budget")


def _fitting_size(
    options: RunOptions, experiment: Experiment, host: SizedHost, notify: Notify
) -> FittingSize | None:
    """Return the size that fits the budget; None if the size does not depend on one.

    Without a budget, an emulated guest gets the size that the definition gives for it. Without
    datasets the work of a size is unknown.
    """
    budget = budget_seconds(options)
    if budget is not None and not has_datasets(experiment):
        raise PagecageError(
            f"--budget: {experiment.name} has no datasets whose size could be chosen",
            "use --size",
        )
    if options.size != "auto" or not has_datasets(experiment):
        return None
    if budget is None and host.is_emulated(notify):
        return None
    if isinstance(host, LocalHost):
        disk = host.disk_speed()
    elif budget is not None:
        disk = EMULATED_DISK if host.is_emulated(notify) else ASSUMED
    else:
        return None

    def estimate(experiment: Experiment, size: str) -> tuple[float, float]:
        cages = _cages(options, experiment, size, host, lambda _: None)
        one = _plan_options(options, experiment, host, size, repeats=1, seed=0)
        trials = make_trials(experiment, cages, one)
        return making_seconds(trials, disk), sum(trial_seconds(trial, disk) for trial in trials)

    return fitting_size(experiment, options.repeats, budget or DEFAULT_BUDGET_SECONDS, estimate)


def _check_size(name: str) -> None:
    if name not in ("auto", *SIZES):
        raise PagecageError(f"there is no size {name!r}", nearest(name, ["auto", *SIZES]))


def with_cage(experiment: Experiment, cage: str | None) -> Experiment:
    """Return the experiment with one cage instead of all its caged levels; the control stays."""
    if cage is None:
        return experiment
    if any(
        level.cage
        for factor, table in experiment.levels.items()
        if factor != "cage"
        for level in table.values()
    ):
        raise PagecageError(
            f"the levels of {experiment.name} set its cages", "leave out CAGE (--cage)"
        )
    if "cage" not in experiment.factors:
        levels = {**experiment.levels, "cage": {cage: Level(cage=cage)}}
        return _with_factors(replace(experiment, levels=levels), {"cage": (cage,)})
    control = tuple(level for level in experiment.factors["cage"] if level == "uncaged")
    names = (*control, cage) if cage not in control else control
    levels = {name: table for name, table in experiment.levels.items() if name != "cage"}
    return _with_factors(replace(experiment, levels=levels), {"cage": names})


def _with_factors(experiment: Experiment, changed: Mapping[str, tuple[str, ...]]) -> Experiment:
    """Return the experiment with these levels, also in the definition that a plan stores."""
    factors = {**changed, **experiment.factors, **changed}
    written = {name: list(levels) for name, levels in factors.items()}
    definition = {**experiment.definition, "factors": written}
    return replace(experiment, factors=factors, definition=definition)


def with_driver(experiment: Experiment, driver: str | None) -> Experiment:
    """Return the experiment with one driver for all its workloads."""
    if driver is None:
        return experiment
    if any(level.driver for table in experiment.levels.values() for level in table.values()):
        raise PagecageError(f"the levels of {experiment.name} set its drivers", "remove --driver")
    return replace(experiment, driver=driver)


def with_conditions(experiment: Experiment, options: RunOptions) -> Experiment:
    """Return the experiment with the conditions of its trials that the options add."""
    wanted = dict.fromkeys((*experiment.conditions, *chosen_conditions(options)))
    return replace(experiment, conditions=tuple(wanted))


def check_levels(experiment: Experiment, treatment: Mapping[str, str]) -> None:
    """Raise PagecageError unless the experiment has a treatment with all of these levels."""
    for factor, level in treatment.items():
        if level not in experiment.factors.get(factor, ()):
            known = [
                f"{name}={one}" for name, levels in experiment.factors.items() for one in levels
            ]
            raise PagecageError(
                f"--treatment: {experiment.name} has no {factor}={level}",
                nearest(f"{factor}={level}", known),
            )
    if not with_levels(list(treatments(experiment)), treatment):
        levels = " and ".join(f"{factor}={level}" for factor, level in treatment.items())
        raise PagecageError(
            f"--treatment: {experiment.name} excludes {levels}",
            f"see its treatments: pagecage run {experiment.name} --dry-run",
        )


def build_plan(
    options: RunOptions,
    experiment: Experiment,
    host: SizedHost,
    command: str,
    notify: Notify,
    cages: Mapping[str, Cage] | None = None,
) -> Plan:
    """Return the plan with every value resolved.

    `cages` replaces the cages of cgroups/.
    """
    experiment, copies = place_files(with_conditions(experiment, options), host)
    if fitting := None if cages else _fitting_size(options, experiment, host, notify):
        experiment, size, reason = fitting.experiment, fitting.size, fitting.reason
    else:
        size, reason = choose_size(options.size, host, notify)
    repeats = choose_repeats(options, experiment, size)
    if fitting and options.until_ci is None:
        repeats = fitting.repeats
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    plan_options = replace(
        _plan_options(options, experiment, host, size, repeats, seed),
        size_reason=reason,
        budget_seconds=(budget_seconds(options) or DEFAULT_BUDGET_SECONDS) if fitting else None,
        expected_seconds=fitting.expected_seconds if fitting else None,
    )
    cages = (
        enforced(cages, options.enforced_by, options.dilate, host, notify)
        if cages
        else _cages(options, experiment, size, host, notify)
    )
    run_id = new_run_id(experiment.name, host.name)
    plan = make_plan(run_id, experiment, cages, plan_options, command, harness(), copies=copies)
    if isinstance(host, LocalHost) and (needed_bytes := needed_disk_bytes(plan.trials)):
        host.require_free_space(needed_bytes)
    return plan


def _cages(
    options: RunOptions, experiment: Experiment, size: str, host: SizedHost, notify: Notify
) -> dict[str, Cage]:
    """Return the cages of cgroups/ at a size, as the run enforces them."""
    dataset_bytes = experiment.sizes[size].total_bytes
    names = experiment.cage_names() | {UNCAGED}
    cages = {name: definitions().cage(name, dataset_bytes) for name in names}
    return enforced(cages, options.enforced_by, options.dilate, host, notify)


def _plan_options(
    options: RunOptions,
    experiment: Experiment,
    host: SizedHost,
    size: str,
    repeats: int,
    seed: int,
) -> PlanOptions:
    return PlanOptions(
        size=size,
        size_reason="",
        host=host.name,
        fresh=_choose_fresh(options, experiment, host),
        repeats=repeats,
        until_ci=until_ci(options),
        seed=seed,
        default_driver=default_driver(host),
        treatment=parse_treatment(options.treatment),
    )


def _choose_fresh(options: RunOptions, experiment: Experiment, host: SizedHost) -> str:
    """Return when the machine state is restored.

    Raises PagecageError for a host without a saved state.
    """
    fresh = options.fresh or experiment.fresh
    if host.name != "vm" and fresh != "never":
        raise PagecageError(
            f'fresh = "{fresh}" needs a saved machine state; host {host.name} has none',
            "use --host vm",
        )
    return fresh


def parse_treatment(words: Sequence[str]) -> dict[str, str]:
    """Return the levels by factor that `--treatment` gives."""
    for word in words:
        if "=" not in word:
            raise PagecageError(
                f"--treatment: {word!r} has no level", "write FACTOR=LEVEL, as in load=lazy-random"
            )
    pairs = [word.partition("=") for word in words]
    return {factor: level for factor, _, level in pairs}


def default_driver(host: SizedHost) -> str | None:
    """Return the driver of trials that name none; None for systemd's, as on every other host."""
    return host.default_driver() if isinstance(host, LocalHost) else None


def choose_repeats(options: RunOptions, experiment: Experiment, size: str) -> int:
    """Return the planned repeats of each treatment: with --until-ci the upper bound."""
    _check_repeats(options)
    if options.until_ci is not None:
        return options.max_repeats or MOST_REPEATS
    return options.repeats or experiment.sizes[size].repeats or experiment.repeats


def _check_repeats(options: RunOptions) -> None:
    if options.until_ci is None and options.max_repeats is not None:
        raise PagecageError(
            "--max-repeats requires --until-ci", "add --until-ci 5%, or use --repeats"
        )
    if options.until_ci is not None and options.repeats is not None:
        raise PagecageError(
            "--repeats and --until-ci are mutually exclusive",
            "set the upper bound with --max-repeats",
        )


def until_ci(options: RunOptions) -> float | None:
    """Return the share that `--until-ci` gives, as 0.05 for `5%`; None without the option."""
    if options.until_ci is None:
        return None
    match = re.fullmatch(r"([0-9]{1,2}(?:\.[0-9]+)?)\s*%", options.until_ci)
    if not match or not float(match[1]):
        raise PagecageError(
            f"--until-ci: {options.until_ci!r} is not a percentage below 100%", "write it as 5%"
        )
    return float(match[1]) / 100


def harness() -> dict[str, object]:
    """Return version and git revision of this checkout; the revision is None without git."""
    if IS_INSTALLED:
        return _built_from((TOP / "revision").read_text())
    if find_tool("git") is None:
        return {"version": VERSION, "git_revision": None, "git_dirty": None}
    head = run(["git", "-C", TOP, "rev-parse", "HEAD"], check=False)
    dirty = run(["git", "-C", TOP, "status", "--porcelain", "--untracked-files=no"], check=False)
    known = head.ok
    return {
        "version": VERSION,
        "git_revision": head.stdout.strip() if known else None,
        "git_dirty": bool(dirty.stdout.strip()) if known else None,
    }


def _built_from(text: str) -> dict[str, object]:
    """Return the version of a wheel, and the revision that it was built from (build/revision)."""
    revision, _, state = text.strip().partition(" ")
    dirty = state == "dirty" if revision else None
    return {"version": VERSION, "git_revision": revision or None, "git_dirty": dirty}
