"""The plan of a run: its size, its cages and its host."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from pagecage.checkout import IS_INSTALLED, TOP
from pagecage.definitions.experiment import SIZES, Experiment
from pagecage.errors import PagecageError, nearest
from pagecage.hosts.host import Host, SizedHost
from pagecage.hosts.local import LocalHost
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.disk_speed import ASSUMED
from pagecage.model.plan import Plan
from pagecage.planning.cage_choice import cage_name, choose_cages
from pagecage.planning.enforcement import enforced, missing_latencies
from pagecage.planning.host_choice import can_run_here, plan_on_host
from pagecage.planning.options import (
    FleetOptions,
    RunOptions,
    VolumeOptions,
    chosen_conditions,
    definitions,
    given_options,
    is_group,
    parse_percent,
)
from pagecage.planning.plan import (
    PlanOptions,
    check_levels,
    make_plan,
    make_trials,
    parse_levels,
    with_cage,
    with_driver,
    with_ready_port,
)
from pagecage.planning.size import (
    DEFAULT_BUDGET_SECONDS,
    EMULATED_DISK,
    FittingSize,
    fitting_size,
    has_datasets,
    making_seconds,
    trial_seconds,
)
from pagecage.process import find_tool, run
from pagecage.runner.resource_needs import check_memory_floor, needed_disk_bytes
from pagecage.runner.run_folder import new_run_id
from pagecage.runner.uploads import place_files
from pagecage.terminal import Notify
from pagecage.version import VERSION

_MOST_REPEATS = 30  # of --max-repeats


def plan_for(name: str, options: RunOptions, command: str, notify: Notify) -> tuple[Plan, Host]:
    experiment = definitions().experiment(name)
    if options.volume != VolumeOptions() and not options.cage:
        option = given_options(options.volume)[0]
        other = ", or choose the size of the data with --dataset" if option == "--size" else ""
        message = f"{option} applies to a cloud volume, and the run names none"
        raise PagecageError(message, f"add --cage aws-gp3{other}")
    choose_cages(options.cage, options.volume, experiment.sizes["full"].total_bytes)
    make = partial(_make_plan, experiment, options, command, notify)
    plan, host = plan_on_host(options, make, notify)
    if "expected_seconds" in plan.document:
        notify(f"size: {plan.document['size_reason']}")
    for note in missing_latencies(plan):
        notify(note)
    return plan, host


def runs_here(name: str, options: RunOptions) -> bool:
    """Return whether a run on host auto takes this machine; the guest need not be set up."""
    make = partial(_make_plan, definitions().experiment(name), options, "", lambda _: None)
    return can_run_here(LocalHost(options.data_dir), make)


def _make_plan(
    experiment: Experiment, options: RunOptions, command: str, notify: Notify, host: Host
) -> Plan:
    chosen = with_cage(experiment, *map(cage_name, options.cage))
    chosen = with_ready_port(with_driver(chosen, options.driver), options.ready_port)
    check_levels(chosen, parse_levels(options.treatment))
    plan = build_plan(options, chosen, host, command, notify)
    check_memory_floor(plan)
    return plan


def check_options(options: RunOptions, fleet_options: FleetOptions) -> None:
    """Raise PagecageError for options that no host could satisfy, before a host is contacted."""
    _check_size(options.dataset)
    if (size := options.volume.size) in ("auto", *SIZES):
        raise PagecageError("--size is the size of a cloud volume", f"--dataset {size}")
    budget_seconds(options)
    _check_repeats(options)
    until_ci(options)
    for option in () if is_group(options.host) else given_options(fleet_options):
        message = f"{option} applies only to a group of hosts, and {options.host} is not a group"
        raise PagecageError(message, "name a group: --host GROUP")


def _check_size(name: str) -> None:
    if name not in ("auto", *SIZES):
        raise PagecageError(f"there is no size {name!r}", nearest(name, ["auto", *SIZES]))


def budget_seconds(options: RunOptions) -> float | None:
    """Return the time that `--budget` gives to the plan; None without the option."""
    if options.budget is None:
        return None
    if options.dataset != "auto":
        raise PagecageError(
            "--budget chooses the size, so --dataset cannot be given too", "remove one of them"
        )
    if is_group(options.host):
        raise PagecageError(
            f"--budget applies to one host, and {options.host} is a group", "use --dataset"
        )
    return options.budget


def until_ci(options: RunOptions) -> float | None:
    """Return the share that `--until-ci` gives, as 0.05 for `5%`; None without the option."""
    if options.until_ci is None:
        return None
    return parse_percent("--until-ci", options.until_ci, "below 100%")


def _check_repeats(options: RunOptions) -> None:
    if options.until_ci is None and options.max_repeats is not None:
        raise PagecageError(
            "--max-repeats requires --until-ci", "add --until-ci 5%, or use --repeats"
        )
    if options.until_ci is not None and options.repeats is not None:
        message = "--repeats and --until-ci are mutually exclusive"
        raise PagecageError(message, "set the upper bound with --max-repeats")


def build_plan(
    options: RunOptions,
    experiment: Experiment,
    host: SizedHost,
    command: str,
    notify: Notify,
    cages: Mapping[str, Cage] | None = None,
) -> Plan:
    """Return the plan with every value resolved. `cages` replaces the cages of cgroups/."""
    wanted = dict.fromkeys((*experiment.conditions, *chosen_conditions(options)))
    experiment, copies = place_files(replace(experiment, conditions=tuple(wanted)), host)
    if fitting := None if cages else _fitting_size(options, experiment, host, notify):
        experiment, size, reason = fitting.experiment, fitting.size, fitting.reason
    else:
        size, reason = choose_size(options.dataset, host, notify)
    repeats = choose_repeats(options, experiment, size)
    if fitting and options.until_ci is None:
        repeats = fitting.repeats
    plan_options = replace(
        _plan_options(options, experiment, host, size, repeats, chosen_seed(options.seed)),
        size_reason=reason,
        budget_seconds=(budget_seconds(options) or DEFAULT_BUDGET_SECONDS) if fitting else None,
        expected_seconds=fitting.expected_seconds if fitting else None,
    )
    cages = enforced(cages or _cages(options, experiment, size), options, host, notify)
    run_id = new_run_id(experiment.name, host.name)
    plan = make_plan(run_id, experiment, cages, plan_options, command, harness(), copies=copies)
    needed_bytes = needed_disk_bytes(plan.trials, serves_volumes=True)
    if isinstance(host, LocalHost) and needed_bytes:
        host.require_free_space(needed_bytes)
    return plan


def chosen_seed(seed: int | None) -> int:
    return seed if seed is not None else random.SystemRandom().randrange(2**32)


def _fitting_size(
    options: RunOptions, experiment: Experiment, host: SizedHost, notify: Notify
) -> FittingSize | None:
    """Return the size that fits the budget; None if the size does not depend on one.

    Without a budget, an emulated guest gets the size that the definition gives for it. Without
    datasets the work of a size is unknown.
    """
    budget = budget_seconds(options)
    if budget is not None and not has_datasets(experiment):
        message = f"--budget: {experiment.name} has no datasets whose size could be chosen"
        raise PagecageError(message, "use --dataset")
    if options.dataset != "auto" or not has_datasets(experiment):
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
        cages = enforced(_cages(options, experiment, size), options, host, lambda _: None)
        one = _plan_options(options, experiment, host, size, repeats=1, seed=0)
        trials = make_trials(experiment, cages, one)
        return making_seconds(trials, disk), sum(trial_seconds(trial, disk) for trial in trials)

    return fitting_size(experiment, options.repeats, budget or DEFAULT_BUDGET_SECONDS, estimate)


def choose_size(name: str, host: SizedHost, notify: Notify) -> tuple[str, str]:
    _check_size(name)
    if name != "auto":
        return name, "asked for"
    if host.is_emulated(notify):
        reason = f"the {host.name} host translates instructions, so sizes and caps are small"
        return "emulated", reason
    return "default", f"the {host.name} host runs instructions in hardware"


def choose_repeats(options: RunOptions, experiment: Experiment, size: str) -> int:
    """Return the planned repeats of each treatment: with --until-ci the upper bound."""
    _check_repeats(options)
    if options.until_ci is not None:
        return options.max_repeats or _MOST_REPEATS
    return options.repeats or experiment.sizes[size].repeats or experiment.repeats


def _cages(options: RunOptions, experiment: Experiment, size: str) -> dict[str, Cage]:
    dataset_bytes = experiment.sizes[size].total_bytes
    names = experiment.cage_names() | {UNCAGED}
    chosen = choose_cages(options.cage, options.volume, dataset_bytes)
    others = {name: definitions().cage(name, dataset_bytes) for name in names - chosen.keys()}
    return {**others, **chosen}


def _plan_options(
    options: RunOptions, experiment: Experiment, host: SizedHost, size: str, repeats: int, seed: int
) -> PlanOptions:
    fresh = options.fresh or experiment.fresh
    if host.name != "vm" and fresh != "never":
        message = f'fresh = "{fresh}" needs a saved machine state; host {host.name} has none'
        raise PagecageError(message, "use --host vm")
    return PlanOptions(
        size=size,
        size_reason="",
        host=host.name,
        fresh=fresh,
        repeats=repeats,
        until_ci=until_ci(options),
        seed=seed,
        default_driver=default_driver(host),
        treatment=parse_levels(options.treatment),
    )


def default_driver(host: SizedHost) -> str | None:
    """Return the driver of trials that name none; None for systemd's, as on every other host."""
    return host.default_driver() if isinstance(host, LocalHost) else None


def harness() -> dict[str, object]:
    """Return version and git revision of this checkout; the revision is None without git."""
    revision: str | None = None
    is_dirty: bool | None = None
    if IS_INSTALLED:
        text, _, state = (TOP / "revision").read_text().strip().partition(" ")
        revision, is_dirty = text or None, state == "dirty" if text else None
    elif find_tool("git"):
        git = ["git", "-C", str(TOP)]
        head = run([*git, "rev-parse", "HEAD"], check=False)
        status = run([*git, "status", "--porcelain", "--untracked-files=no"], check=False)
        if head.ok:
            revision, is_dirty = head.stdout.strip(), bool(status.stdout.strip())
    return {"version": VERSION, "git_revision": revision, "git_dirty": is_dirty}
