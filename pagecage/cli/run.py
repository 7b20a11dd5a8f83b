"""`pagecage list`, `plan` and `run`: experiments that are defined in files."""

from __future__ import annotations

import json
from typing import Any

from pagecage.checkout import PROJECT, TOP
from pagecage.cli.analyse import report
from pagecage.cli.execution import execute, new_run, plan_for
from pagecage.cli.exit_status import exit_code
from pagecage.cli.gate import GateOptions, judge
from pagecage.cli.output import Json, OutputFormat, notify, typed_command
from pagecage.cli.plan_listing import show_plan
from pagecage.cli.progress import LOAD_SECONDS, expected_trial_seconds
from pagecage.cli.resume import ResumeOptions, resume_run
from pagecage.cli.run_options import FleetOptions, RunOptions, definitions, is_group
from pagecage.cli.run_plan import check_options
from pagecage.errors import EXIT_OK
from pagecage.model.experiment import Experiment
from pagecage.planning.plan import plan_to_json
from pagecage.planning.treatments import selected
from pagecage.units import format_seconds


def list_experiments(*, as_json: Json = False) -> int:
    """List the experiments with their questions and treatments."""
    defined = definitions()
    own = defined.experiments.own_names()
    names = [*own, *(name for name in defined.experiment_names() if name not in own)]
    rows = [_summary_row(defined.experiment(name), name in own) for name in names]
    if as_json:
        print(json.dumps(rows))
        return EXIT_OK
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        origin = f"{row['origin']:<8} " if own else ""
        print(
            f"{origin}{row['name']:<{width}} {row['treatments']:>3} treatments, {row['about']:<14}"
            f" {row['question']}"
        )
    if PROJECT not in (None, TOP) and not own:
        notify(f"{PROJECT} defines no experiments\n  fix: pagecage init -- COMMAND makes one")
    return EXIT_OK


def _summary_row(experiment: Experiment, is_own: bool) -> dict[str, Any]:
    """Return an experiment's row for `pagecage list`.

    `origin` is project or pagecage. The duration is an estimate for an emulated host.
    """
    count = len(selected(experiment, "emulated"))
    size = experiment.sizes["emulated"]
    load_seconds = LOAD_SECONDS if experiment.workload_kind == "service" else 0.0
    trial_seconds = expected_trial_seconds(size.max_seconds, load_seconds=load_seconds)
    seconds = count * (size.repeats or experiment.repeats) * trial_seconds
    return {
        "name": experiment.name,
        "origin": "project" if is_own else "pagecage",
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
        from pagecage.cli import fleet_plan

        return fleet_plan.show_plan(name, options, fleet_options, typed_command(), as_json, notify)
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
    resumption: ResumeOptions = ResumeOptions(),  # noqa: B008 - frozen
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
    output_format = OutputFormat(as_json=as_json)
    if on_group:
        from pagecage.cli import fleet

        gate.refuse_on_group()
        return fleet.run(
            name, options, fleet_options, typed_command(), resumption, yes, output_format, notify
        )
    return _run_on_host(name, options, gate, resumption, yes, output_format)


def _run_on_host(
    name: str,
    options: RunOptions,
    gate: GateOptions,
    resumption: ResumeOptions,
    yes: bool,
    output_format: OutputFormat,
) -> int:
    baseline = gate.checked()
    if resumption.resume:
        prepared = resume_run(name, options, resumption, yes, notify)
    else:
        prepared = new_run(name, options, typed_command(), yes, notify)
    status = execute(prepared, notify)
    report(prepared.folder.path, output_format.options(), notify)
    status = exit_code(prepared, status, notify)
    if status or baseline is None:
        return status
    return judge(baseline, prepared.folder.path, gate, to_stderr=output_format.as_json)
