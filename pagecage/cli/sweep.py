"""`pagecage sweep`: one limit of a cage varied, what each value costs, where raising it stops to pay."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.checkout import TOP
from pagecage.cli.analyse import report
from pagecage.cli.examples import examples
from pagecage.cli.execution import PreparedRun, begun, carry_out, exit_code, plan_lines
from pagecage.cli.output import OutputFormat, say, typed_command
from pagecage.cli.replay_plan import ReplayOptions
from pagecage.cli.sweep_plan import ExperimentOptions, SweepOptions, plan_of_command, plan_of_experiment
from pagecage.errors import EXIT_OK
from pagecage.hosts.agent_package import make_kit, require_workloads

app = App(name="sweep", help_epilogue=examples("sweep"))


@app.default
def sweep(
    base: str,
    /,
    *what: Annotated[str, Parameter(allow_leading_hyphen=True)],
    vary: str,
    own: ExperimentOptions = ExperimentOptions(),  # noqa: B008 - frozen
    wishes: ReplayOptions = ReplayOptions(),  # noqa: B008 - frozen
    dry_run: bool = False,
    yes: bool = False,
    as_json: Annotated[bool, Parameter(name="--json", help="Print data, and data alone, on standard output.")] = False,
) -> int:
    """Run one treatment of an experiment, or any command, under several values of one limit, and find the knee.

    The time under each I/O cap is also predicted from the trial under the cage's own value, and both are printed.

    Parameters
    ----------
    base
        The cage whose limit is varied: one of cgroups/.
    what
        One of `pagecage list`; or, after `--`, a program and its arguments.
    vary
        The limit and its values, as in IOReadIOPSMax=500,1000,2000 or MemoryMax=64MiB,128MiB; the cage's own is added.
    dry_run
        Print the plan, and start nothing.
    yes
        Do not ask before changing a setting of the disk that holds /.
    """
    if "--" not in sys.argv:
        require_workloads(make_kit(TOP))
    typed = typed_command()
    asked = SweepOptions(base, what, vary, own, wishes)
    plan, host = (plan_of_command if "--" in sys.argv else plan_of_experiment)(asked, typed, say)
    if not dry_run:
        return _carried_out(begun(plan, host, yes, say), as_json)
    host.stop()
    print("\n".join(plan_lines(plan)))
    return EXIT_OK


def _carried_out(job: PreparedRun, as_json: bool) -> int:
    status = carry_out(job, say)
    report(job.folder.path, OutputFormat(as_json=as_json).options(), say)
    return exit_code(job, status, say)
