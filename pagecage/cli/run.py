"""`pagecage list`, `plan` and `run`: experiments that are defined in files."""

from __future__ import annotations

import json

from pagecage.cli import execution
from pagecage.cli.analyse import report
from pagecage.cli.output import Json, OutputFormat, notify, typed_command
from pagecage.cli.run_options import FleetOptions, RunOptions, definitions, is_group
from pagecage.cli.run_plan import check_options
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.planning.plan import plan_to_json


def list_experiments(*, as_json: Json = False) -> int:
    """List the experiments with their questions and treatments."""
    defined = definitions()
    rows = [execution.summary_row(defined.experiment(name)) for name in defined.experiment_names()]
    if as_json:
        print(json.dumps(rows))
        return EXIT_OK
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        print(
            f"{row['name']:<{width}} {row['treatments']:>3} treatments, {row['about']:<14}"
            f" {row['question']}"
        )
    return EXIT_OK


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

        return fleet.show_plan(name, options, fleet_options, typed_command(), as_json, notify)
    new_plan, host = execution.plan_for(name, options, typed_command(), notify)
    host.stop()
    if as_json:
        print(json.dumps(plan_to_json(new_plan)))
    else:
        execution.show_plan(new_plan, host)
    return EXIT_OK


def run(
    name: str,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    fleet_options: FleetOptions = FleetOptions(),  # noqa: B008 - frozen
    *,
    resume: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    as_json: Json = False,
) -> int:
    """Run an experiment, make its report and show its tables.

    Parameters
    ----------
    name
        Experiment (see `pagecage list`)
    resume
        Finish the experiment's newest run instead of starting one
    dry_run
        Show the plan and its commands; start nothing
    yes
        Do not ask before changing settings of the disk that holds /
    """
    if dry_run and resume:
        raise PagecageError(
            "--dry-run and --resume are mutually exclusive",
            "pagecage show NAME lists finished trials",
        )
    if dry_run:
        return plan(name, options, fleet_options, as_json=as_json)
    check_options(options, fleet_options)
    if is_group(options.host):
        from pagecage.cli import fleet

        resume_options, output_format = (
            fleet.ResumeOptions(resume, yes),
            OutputFormat(as_json=as_json),
        )
        return fleet.run(
            name, options, fleet_options, typed_command(), resume_options, output_format, notify
        )
    if resume:
        prepared = execution.resume_run(name, options, yes, notify)
    else:
        prepared = execution.new_run(name, options, typed_command(), yes, notify)
    status = execution.execute(prepared, notify)
    report(prepared.folder.path, OutputFormat(as_json=as_json).options(), notify)
    return execution.exit_code(prepared, status, notify)
