"""`pagecage run`: an experiment."""

from __future__ import annotations

from dataclasses import dataclass

from cyclopts import Parameter

from pagecage.cli.compare import GateOptions
from pagecage.cli.output import Json, typed_command
from pagecage.cli.show import measure, show_plan
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.planning.options import FleetOptions, RunOptions, is_group
from pagecage.terminal import COMMON, notify


@Parameter(name="*", group=COMMON)
@dataclass(frozen=True, kw_only=True)
class ResumeOptions:
    """Options of a run that was started before.

    Parameters
    ----------
    resume
        Finish the experiment's newest run instead of starting one
    repeat_excluded
        With --resume, measure once more the trials that are excluded
    """

    resume: bool = False
    repeat_excluded: bool = False

    def check(self, *, dry_run: bool, on_group: bool) -> None:
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


def run(
    name: str,
    /,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    resumption: ResumeOptions = ResumeOptions(),
    gate: GateOptions = GateOptions(),  # noqa: B008 - frozen
    fleet_options: FleetOptions = FleetOptions(),  # noqa: B008 - frozen
    *,
    dry_run: bool = False,
    yes: bool = False,
    as_json: Json = False,
) -> int:
    """Run an experiment, make its report and show its tables.

    Parameters
    ----------
    name
        Experiment (see `pagecage list`), or the file of one
    dry_run
        Show the trials and their commands; start nothing (the vm's image is built if missing)
    yes
        Do not ask before commands that have not run here, or before settings of / are changed
    """
    from pagecage.planning import run_plan  # late: help is quick

    resumption.check(dry_run=dry_run, on_group=is_group(options.host))
    run_plan.check_options(options, fleet_options)
    if is_group(options.host):
        from pagecage.cli.fleet import FleetCommand

        gate.refuse_on_group()
        yes, typed = yes or dry_run, typed_command()
        asked = FleetCommand(name, options, fleet_options, typed, yes, notify)
        form = "json" if as_json else ""
        return asked.show_plan(as_json) if dry_run else asked.run(resumption, form)
    if dry_run:
        planned = run_plan.plan_for(name, options, typed_command(), notify)
        show_plan(*planned, as_json=as_json)
        return EXIT_OK
    return _run_on_host(name, options, gate, resumption, yes, as_json)


def _run_on_host(
    name: str,
    options: RunOptions,
    gate: GateOptions,
    resumption: ResumeOptions,
    yes: bool,
    as_json: bool,
) -> int:
    from pagecage.cli.execution import new_run, resume_run

    gate.check()
    if resumption.resume:
        prepared = resume_run(name, options, resumption.repeat_excluded, yes, notify)
    else:
        prepared = new_run(name, options, typed_command(), yes, notify)
    status = measure(prepared, "json" if as_json else "")
    return status or gate.judge(prepared.folder.path, to_stderr=as_json)
