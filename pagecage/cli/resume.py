"""The newest run of an experiment, prepared to be finished."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from pagecage.checkout import RUNS
from pagecage.cli.analyse import show_run
from pagecage.cli.container_settings import with_values
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
from pagecage.runner.run_folder import RunFolder, find_run

_PLAN_OPTIONS = (
    "size",
    "budget",
    "cage",
    "treatment",
    "repeats",
    "until_ci",
    "max_repeats",
    "seed",
    "fresh",
    "driver",
    "cold_metadata",
    "fresh_home",
    "same_output",
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
    shown = json.loads(show_run(folder.path, ["--json"]))
    return [trial["trial_id"] for trial in shown["trials"] if trial["verdicts"]["excluded"]]


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
