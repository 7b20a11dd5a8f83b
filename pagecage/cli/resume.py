"""A run that was started before: its plan, and the trials that are left."""

from __future__ import annotations

import json
from pathlib import Path

from pagecage.checkout import RUNS
from pagecage.cli.execution import PreparedRun, prepare_host
from pagecage.cli.host_choice import choose_host
from pagecage.cli.known_definitions import ask_before_commands
from pagecage.cli.options import RunOptions, definitions
from pagecage.cli.output import Notify
from pagecage.cli.show import show_run
from pagecage.definitions.experiment import Experiment
from pagecage.definitions.reader import is_path
from pagecage.errors import PagecageError
from pagecage.planning.plan import Plan
from pagecage.planning.sweep import SWEEP_PREFIX
from pagecage.runner.container_settings import with_values
from pagecage.runner.run_folder import RunFolder, find_run

_PLAN_OPTIONS = (
    *(
        "dataset",
        "budget",
        "cage",
        "volume",
        "ready_port",
        "treatment",
        "repeats",
        "until_ci",
        "max_repeats",
        "seed",
    ),
    *("fresh", "driver", "cold_metadata", "fresh_home", "same_output"),
)


def resume_run(
    name: str, options: RunOptions, repeat_excluded: bool, yes: bool, notify: Notify
) -> PreparedRun:
    """Prepare the newest run of an experiment to be finished, or to repeat excluded trials."""
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
        if repeat_excluded:
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
        option = "size" if given[0] == "volume" else given[0].replace("_", "-")
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
