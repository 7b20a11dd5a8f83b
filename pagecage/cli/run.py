"""`pagecage run`, `plan` and `list`: experiments."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from pagecage.checkout import PROJECT, RUNS, TOP
from pagecage.cli.container import with_values
from pagecage.cli.execution import PreparedRun, prepare_host
from pagecage.cli.host_choice import choose_host
from pagecage.cli.known_definitions import ask_before_commands
from pagecage.cli.options import FleetOptions, RunOptions, definitions, is_group
from pagecage.cli.output import Json, Notify, notify, typed_command
from pagecage.cli.progress import LOAD_SECONDS, expected_trial_seconds
from pagecage.cli.run_plan import check_options, new_run, plan_for, show_plan
from pagecage.cli.show import GateOptions, measure, show_run
from pagecage.definitions.experiment import Experiment
from pagecage.definitions.reader import is_path
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.planning.plan import Plan, plan_to_json, selected
from pagecage.planning.sweep import SWEEP_PREFIX
from pagecage.runner.run_folder import RunFolder, find_run
from pagecage.units import format_seconds

_PLAN_OPTIONS = (
    *("size", "budget", "cage", "treatment", "repeats", "until_ci", "max_repeats", "seed"),
    *("fresh", "driver", "cold_metadata", "fresh_home", "same_output"),
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ResumeOptions:
    """Options of a run that was started before.

    Parameters
    ----------
    resume
        Finish the experiment's newest run instead of starting one
    repeat_excluded
        With --resume, measure once more the trials that are excluded, for example because the host
        was not quiet
    """

    resume: bool = False
    repeat_excluded: bool = False

    def check(self, *, dry_run: bool, on_group: bool) -> None:
        """Raise PagecageError for options that exclude each other."""
        if dry_run and self.resume:
            raise PagecageError(
                "--dry-run and --resume are mutually exclusive",
                "pagecage show NAME lists finished trials",
            )
        if self.repeat_excluded and not self.resume:
            raise PagecageError("--repeat-excluded applies to a run that exists", "add --resume")
        if self.repeat_excluded and on_group:
            message = "--repeat-excluded applies to one host, and this run is on a group"
            raise PagecageError(message, "start a new run on the group")


def resume_run(
    name: str, options: RunOptions, resumption: ResumeOptions, yes: bool, notify: Notify
) -> PreparedRun:
    """Prepare the newest run of an experiment to be finished."""
    refuse_plan_options(options)
    folder = find_run(RUNS, Path(name).stem if is_path(name) else name)
    plan = folder.plan()
    if options.host not in ("auto", plan.document["host"]):
        message = f"{plan.run_id} is a run on {plan.document['host']}, not on {options.host}"
        raise PagecageError(message, "remove --host, or start a new run")
    if plan.document.get("replay") is None:
        ask_before_commands(require_same_definition(plan, name), options.host, yes=yes)
    host = choose_host(plan.document["host"], options.data_dir, notify, options.disk)
    try:
        if resumption.repeat_excluded:
            folder.supersede(excluded_trials(folder))
        if folder.remaining(plan):
            plan = with_values(plan)
            prepare_host(plan, host, yes, notify)
    except BaseException:
        host.stop()
        raise
    return PreparedRun(plan, folder, host)


def excluded_trials(folder: RunFolder) -> list[str]:
    """Return the ids of the trials of a run that their verdicts exclude."""
    if not folder.attempts():
        return []
    trials = json.loads(show_run(folder.path, "json"))["trials"]
    return [trial["trial_id"] for trial in trials if trial["verdicts"]["excluded"]]


def refuse_plan_options(options: RunOptions) -> None:
    """Raise PagecageError for an option that would change the plan of a resumed run."""
    given = [key for key in _PLAN_OPTIONS if getattr(options, key) != getattr(RunOptions(), key)]
    if given:
        option = given[0].replace("_", "-")
        raise PagecageError(f"--{option} and --resume are mutually exclusive", f"remove --{option}")


def require_same_definition(plan: Plan, given: str = "") -> Experiment:
    """Return the plan's experiment; of a sweep the experiment that is swept."""
    name = given if is_path(given) else plan.document["experiment"]
    if plan.document.get("sweep"):
        name = name.removeprefix(SWEEP_PREFIX)
    experiment = definitions().experiment(name)
    if experiment.definition_sha256 != plan.document["definition_sha256"]:
        file = name if is_path(name) else f"experiments/{name}.toml"
        raise PagecageError(
            f"{file} has changed since {plan.run_id} was planned",
            f"start a new run: pagecage run {name}",
        )
    return experiment


def list_experiments(*, as_json: Json = False) -> int:
    """List the experiments with their questions and treatments."""
    defined = definitions()
    custom = defined.experiments.own_names()
    names = [*custom, *(name for name in defined.experiment_names() if name not in custom)]
    rows = [_summary_row(defined.experiment(name), name in custom) for name in names]
    if as_json:
        print(json.dumps(rows))
        return EXIT_OK
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        origin = f"{row['origin']:<8} " if custom else ""
        print(
            f"{origin}{row['name']:<{width}} {row['treatments']:>3} treatments, {row['about']:<14}"
            f" {row['question']}"
        )
    if PROJECT not in (None, TOP) and not custom:
        notify(f"{PROJECT} defines no experiments\n  fix: pagecage init -- COMMAND makes one")
    return EXIT_OK


def _summary_row(experiment: Experiment, is_custom: bool) -> dict[str, Any]:
    count = len(selected(experiment, "emulated"))
    size = experiment.sizes["emulated"]
    load_seconds = LOAD_SECONDS if experiment.workload.kind == "service" else 0.0
    trial_seconds = expected_trial_seconds(size.max_seconds, load_seconds=load_seconds)
    seconds = count * (size.repeats or experiment.repeats) * trial_seconds
    return {
        "name": experiment.name,
        "origin": "project" if is_custom else "pagecage",
        "question": experiment.question,
        "treatments": count,
        "factors": {name: list(levels) for name, levels in experiment.factors.items()},
        "about": f"about {format_seconds(seconds)}",
        "expected_seconds": seconds,
    }


def plan(
    name: str,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    fleet_options: FleetOptions = FleetOptions(),  # noqa: B008 - frozen
    *,
    as_json: Json = False,
) -> int:
    """Show the trials of a run in order, with the commands of each.

    No trial is started. With --size auto and --host vm, the guest's image is built if it is
    missing: its kernel determines the size.

    Parameters
    ----------
    name
        Experiment (see `pagecage list`)
    """
    check_options(options, fleet_options)
    if is_group(options.host):
        from pagecage.cli import fleet

        asked = fleet.FleetCommand(name, options, fleet_options, typed_command(), True, notify)
        return asked.show_plan(as_json)
    new_plan, host = plan_for(name, options, typed_command(), notify)
    host.stop()
    if as_json:
        print(json.dumps(plan_to_json(new_plan)))
    else:
        show_plan(new_plan, host)
    return EXIT_OK


def run(
    name: str,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    fleet_options: FleetOptions = FleetOptions(),  # noqa: B008 - frozen
    gate: GateOptions = GateOptions(),  # noqa: B008 - frozen
    resumption: ResumeOptions = ResumeOptions(),
    *,
    dry_run: bool = False,
    yes: bool = False,
    as_json: Json = False,
) -> int:
    """Run an experiment, make its report and show its tables.

    Parameters
    ----------
    name
        Experiment (see `pagecage list`)
    dry_run
        Show the plan and its commands; start nothing
    yes
        Do not ask before commands of a definition that has not run on this machine, or before
        changing settings of the disk that holds /
    """
    on_group = is_group(options.host)
    resumption.check(dry_run=dry_run, on_group=on_group)
    if dry_run:
        return plan(name, options, fleet_options, as_json=as_json)
    check_options(options, fleet_options)
    if on_group:
        from pagecage.cli import fleet

        gate.refuse_on_group()
        asked = fleet.FleetCommand(name, options, fleet_options, typed_command(), yes, notify)
        return asked.run(resumption, "json" if as_json else "")
    return _run_on_host(name, options, gate, resumption, yes, as_json)


def _run_on_host(
    name: str,
    options: RunOptions,
    gate: GateOptions,
    resumption: ResumeOptions,
    yes: bool,
    as_json: bool,
) -> int:
    baseline = gate.checked()
    if resumption.resume:
        prepared = resume_run(name, options, resumption, yes, notify)
    else:
        prepared = new_run(name, options, typed_command(), yes, notify)
    status = measure(prepared, "json" if as_json else "")
    if status or baseline is None:
        return status
    return gate.judge(baseline, prepared.folder.path, to_stderr=as_json)
