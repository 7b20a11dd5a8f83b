"""`pagecage sweep`: the cost of each value of one limit, and the knee of that curve."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.checkout import TOP
from pagecage.cli.analyse import report
from pagecage.cli.examples import examples
from pagecage.cli.execution import PreparedRun, create_run, execute
from pagecage.cli.exit_status import exit_code
from pagecage.cli.new_commands import ask_before_commands
from pagecage.cli.output import Json, OutputFormat, notify, typed_command
from pagecage.cli.plan_listing import plan_lines
from pagecage.cli.replay_options import ReplayOptions
from pagecage.cli.replay_service import ServiceOptions
from pagecage.cli.run_options import definitions
from pagecage.cli.sweep_plan import (
    ExperimentOptions,
    SweepOptions,
    plan_of_command,
    plan_of_experiment,
)
from pagecage.errors import EXIT_OK
from pagecage.hosts.agent_package import make_agent_package, require_workloads
from pagecage.hosts.host import Host
from pagecage.planning.plan import Plan

_USAGE = "pagecage sweep --vary LIMIT=VALUES [OPTIONS] CAGE [EXPERIMENT | -- COMMAND...]"
app = App(name="sweep", help_epilogue=examples("sweep"), usage=_USAGE)


@app.default
def sweep(
    base: Annotated[str, Parameter(name="CAGE")],
    /,
    *words: Annotated[str, Parameter(allow_leading_hyphen=True, name="TARGET")],
    vary: Annotated[str, Parameter(metavar="LIMIT=VALUES")],
    experiment_options: ExperimentOptions = ExperimentOptions(),  # noqa: B008 - frozen
    replay_options: ReplayOptions = ReplayOptions(),  # noqa: B008 - frozen
    served: ServiceOptions = ServiceOptions(),  # noqa: B008 - frozen
    dry_run: bool = False,
    yes: bool = False,
    as_json: Json = False,
) -> int:
    """Measure an experiment's treatment or a command under several values of one limit.

    The report shows the knee, beyond which a higher limit saves little time. For I/O limits it also
    predicts times from the trial under the cage's own value. Of a server it shows the first metric.

    Parameters
    ----------
    base
        Cage whose limit is varied (see `pagecage cage list`)
    words
        Experiment (see `pagecage list`); or, after --, a program and its arguments; or --serve
    vary
        Limit and values, for example IOReadIOPSMax=500,1000,2000; the cage's own is added
    dry_run
        Show the plan; start nothing
    yes
        Do not ask before commands of a definition that has not run on this machine, or before
        changing settings of the disk that holds /
    """
    options = SweepOptions(base, words, vary, experiment_options, replay_options, served)
    if "--" in sys.argv or served != ServiceOptions():
        plan, host = plan_of_command(options, typed_command(), notify)
    else:
        if not dry_run:
            _ask(words, replay_options.host, yes=yes)
        require_workloads(make_agent_package(TOP))
        plan, host = plan_of_experiment(options, typed_command(), notify)
    return _listed(plan, host) if dry_run else _run(create_run(plan, host, yes, notify), as_json)


def _ask(words: tuple[str, ...], host: str, *, yes: bool) -> None:
    """Ask before the commands of the experiment, if one is named."""
    if len(words) == 1:
        ask_before_commands(definitions().experiment(words[0]), host, yes=yes)


def _listed(plan: Plan, host: Host) -> int:
    host.stop()
    print("\n".join(plan_lines(plan)))
    return EXIT_OK


def _run(prepared: PreparedRun, as_json: bool) -> int:
    """Execute the run, make its report, and return the exit code."""
    status = execute(prepared, notify)
    report(prepared.folder.path, OutputFormat(as_json=as_json).options(), notify)
    return exit_code(prepared, status, notify)
