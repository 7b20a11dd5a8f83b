"""`pagecage replay`: any program, in one or several cages and without, measured as an experiment is."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.agent.preview import trial_commands
from pagecage.cli.analyse import report, show_run
from pagecage.cli.examples import examples
from pagecage.cli.execution import PreparedRun, begun, carry_out, exit_code, is_all_missed, plan_lines
from pagecage.cli.output import OutputFormat, say, typed_command
from pagecage.cli.replay_plan import ReplayOptions, plan_for
from pagecage.errors import EXIT_OK
from pagecage.hosts.host import Host
from pagecage.planning.plan import Plan

_STDOUT, _STDERR = 1, 2
_EXITS = "Exit codes: the program's own where it failed, else those of `pagecage --help`."
app = App(name="replay", help_epilogue=examples("replay", _EXITS))


@app.default
def replay(
    cage: str,
    /,
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    wishes: ReplayOptions = ReplayOptions(),  # noqa: B008 - frozen
    dry_run: bool = False,
    as_json: Annotated[bool, Parameter(name="--json", help="Print data, and data alone, on standard output.")] = False,
) -> int:
    """Run any program in a cage and without one, and say what the limits cost it.

    A single run (one cage, --no-control, one repeat) passes standard input and output through and ends with the
    program's own exit status. Of several runs each gets all of standard input where that is a file, and their table is
    printed.

    Parameters
    ----------
    cage
        One of cgroups/.
    command
        The program and its arguments, after `--`.
    dry_run
        Print the plan and its commands, and start nothing.
    """
    typed = typed_command()
    plan, host = plan_for(cage, command, wishes, typed, say)
    if dry_run:
        return _preview(plan, host)
    job = begun(plan, host, True, say)
    status = carry_out(job, say, _STDERR if as_json else _STDOUT)
    _report(job, as_json)
    return exit_code(job, status, say)


def _preview(plan: Plan, host: Host) -> int:
    host.stop()
    print("\n".join(plan_lines(plan)))
    for trial in plan.trials:
        print(f"\n# {trial.trial_id}\n" + "\n".join(trial_commands(trial, host.user)))
    return EXIT_OK


def _report(job: PreparedRun, as_json: bool) -> None:
    """The table and the page; below a program's own output the table alone, on standard error."""
    if is_all_missed(job):
        return
    if not job.streams_output:
        report(job.folder.path, OutputFormat(as_json=as_json).options(), say)
        return
    table = show_run(job.folder.path, OutputFormat(as_json=as_json).options())
    print(table, end="", file=sys.stdout if as_json else sys.stderr)
    say(f"report: pagecage show {job.plan.run_id} --html")
