"""The newest run of an experiment, prepared to be finished."""

from __future__ import annotations

from pathlib import Path

from pagecage.checkout import RUNS
from pagecage.cli.execution import PreparedRun, prepare_host
from pagecage.cli.host_choice import choose_host
from pagecage.cli.new_commands import ask_before_commands
from pagecage.cli.output import Notify
from pagecage.cli.run_options import RunOptions, definitions
from pagecage.definitions.files import is_path
from pagecage.errors import PagecageError
from pagecage.model.experiment import Experiment
from pagecage.planning.plan import Plan
from pagecage.planning.sweep import SWEEP_PREFIX
from pagecage.runner.run_folder import find_run

_PLAN_OPTIONS = (
    "size",
    "cage",
    "treatment",
    "repeats",
    "until_ci",
    "max_repeats",
    "seed",
    "fresh",
    "driver",
)


def resume_run(name: str, options: RunOptions, yes: bool, notify: Notify) -> PreparedRun:
    """Prepare the newest run of an experiment to be finished.

    Raises PagecageError if the experiment's definition has changed since.
    """
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
        if folder.remaining(plan):
            prepare_host(plan, host, yes, notify)
    except BaseException:
        host.stop()
        raise
    return PreparedRun(plan, folder, host)


def refuse_plan_options(options: RunOptions) -> None:
    """Raise PagecageError for an option that would change the plan of a resumed run."""
    given = [key for key in _PLAN_OPTIONS if getattr(options, key) != getattr(RunOptions(), key)]
    if given:
        option = given[0].replace("_", "-")
        raise PagecageError(f"--{option} and --resume are mutually exclusive", f"remove --{option}")


def require_same_definition(plan: Plan, given: str = "") -> Experiment:
    """Return the plan's experiment.

    Raises PagecageError if it has changed since the plan was made. Of a sweep it is the
    experiment that is swept. `given` may be the path of the definition.
    """
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
