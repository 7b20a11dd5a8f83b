"""`pagecage list`, `plan` and `run`."""

from __future__ import annotations

import json

from pagecage.agent.preview import trial_commands
from pagecage.cli import execution
from pagecage.cli.analyse import report
from pagecage.cli.output import Json, OutputFormat, say, typed_command
from pagecage.cli.run_options import FleetOptions, RunOptions, definitions, is_group
from pagecage.cli.run_plan import check_wishes
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.planning.plan import plan_to_json


def list_experiments(*, as_json: Json = False) -> int:
    """Show every experiment: its name, its question, its factors and treatments."""
    known = definitions()
    rows = [execution.summary_row(known.experiment(name)) for name in known.experiment_names()]
    if as_json:
        print(json.dumps(rows))
        return EXIT_OK
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        print(f"{row['name']:<{width}} {row['treatments']:>3} treatments, {row['about']:<14} {row['question']}")
    return EXIT_OK


def plan(
    name: str,
    wishes: RunOptions = RunOptions(),  # noqa: B008 - frozen
    fleet_wishes: FleetOptions = FleetOptions(),  # noqa: B008 - frozen
    *,
    as_json: Json = False,
) -> int:
    """Print the trials of a run in order, and the exact commands of each; no trial is started.

    With --size auto and host vm the guest's image is made now, if it is missing: its kernel tells what runs here.
    """
    check_wishes(wishes, fleet_wishes)
    if is_group(wishes.host):
        from pagecage.cli import fleet

        return fleet.show_plan(name, wishes, fleet_wishes, typed_command(), as_json, say)
    made, host = execution.plan_for(name, wishes, typed_command(), say)
    host.stop()
    if as_json:
        print(json.dumps(plan_to_json(made)))
        return EXIT_OK
    print("\n".join(execution.plan_lines(made)))
    for trial in made.trials:
        print(f"\n# {trial.trial_id}\n" + "\n".join(trial_commands(trial, host.user)))
    return EXIT_OK


def run(
    name: str,
    wishes: RunOptions = RunOptions(),  # noqa: B008 - frozen
    fleet_wishes: FleetOptions = FleetOptions(),  # noqa: B008 - frozen
    *,
    resume: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    as_json: Json = False,
) -> int:
    """Run an experiment, make its report, and print its table.

    Parameters
    ----------
    name
        One of `pagecage list`.
    resume
        Finish the experiment's newest run instead of starting one.
    dry_run
        Print the plan and its commands, and start nothing.
    yes
        Do not ask before changing a setting of the disk that holds /.
    """
    if dry_run and resume:
        raise PagecageError("--dry-run shows a new plan, and --resume has one", "pagecage show NAME shows what is done")
    if dry_run:
        return plan(name, wishes, fleet_wishes, as_json=as_json)
    check_wishes(wishes, fleet_wishes)
    if is_group(wishes.host):
        from pagecage.cli import fleet

        again, form = fleet.ResumeOptions(resume, yes), OutputFormat(as_json=as_json)
        return fleet.run(name, wishes, fleet_wishes, typed_command(), again, form, say)
    if resume:
        job = execution.resumed(name, wishes, yes, say)
    else:
        job = execution.new(name, wishes, typed_command(), yes, say)
    status = execution.carry_out(job, say)
    report(job.folder.path, OutputFormat(as_json=as_json).options(), say)
    return execution.exit_code(job, status, say)
