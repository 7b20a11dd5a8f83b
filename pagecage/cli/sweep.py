"""`pagecage sweep`: one program at many values of a limit."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.checkout import TOP
from pagecage.cli.execution import ask_before_commands, create_run
from pagecage.cli.output import Json, examples, typed_command
from pagecage.cli.show import measure
from pagecage.errors import EXIT_OK
from pagecage.hosts.agent_package import make_agent_package, require_workloads
from pagecage.hosts.host import Host
from pagecage.model.plan import Plan
from pagecage.planning.options import ReplayOptions, ServiceOptions, definitions
from pagecage.planning.plan import plan_lines
from pagecage.planning.sweep import (
    ExperimentOptions,
    SweepOptions,
    plan_of_command,
    plan_of_experiment,
)
from pagecage.terminal import notify

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
    """Measure a command or an experiment at several values of a limit.

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
    plan, host = _plan(options, asks=not dry_run, yes=yes)
    if dry_run:
        host.stop()
        print("\n".join(plan_lines(plan)))
        return EXIT_OK
    return measure(create_run(plan, host, yes, notify), "json" if as_json else "")


def _plan(options: SweepOptions, *, asks: bool, yes: bool) -> tuple[Plan, Host]:
    if "--" in sys.argv or options.served != ServiceOptions():
        return plan_of_command(options, typed_command(), notify)
    if asks and len(options.words) == 1:
        experiment = definitions().experiment(options.words[0])
        ask_before_commands(experiment, options.replay.host, yes=yes)
    require_workloads(make_agent_package(TOP))
    return plan_of_experiment(options, typed_command(), notify)
