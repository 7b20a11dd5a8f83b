"""`pagecage memory`: the least MemoryMax in which a program is as fast as with more."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from pagecage.cli.analyse import report
from pagecage.cli.examples import examples
from pagecage.cli.execution import PreparedRun, create_run, execute
from pagecage.cli.exit_status import all_requirements_missed, exit_code
from pagecage.cli.memory_plan import MemoryOptions, plan_of, search_lines
from pagecage.cli.output import Json, OutputFormat, notify, typed_command
from pagecage.cli.plan_listing import plan_lines
from pagecage.cli.replay_options import ReplayOptions
from pagecage.errors import EXIT_OK
from pagecage.hosts.host import Host
from pagecage.planning.plan import Plan

_USAGE = "pagecage memory [OPTIONS] CAGE -- COMMAND..."
app = App(name="memory", help_epilogue=examples("memory"), usage=_USAGE)


@app.default
def memory(
    cage: str,
    /,
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    options: MemoryOptions = MemoryOptions(),  # noqa: B008 - frozen
    replay_options: ReplayOptions = ReplayOptions(),  # noqa: B008 - frozen
    dry_run: bool = False,
    as_json: Json = False,
) -> int:
    """Find the least memory that a program needs in a cage.

    The program runs with the cage's own MemoryMax, or all of the machine's memory, and then with
    less and less. The report has the least MemoryMax that costs no time, and the least without
    growing refaults (the working set).

    Parameters
    ----------
    cage
        Cage of cgroups/ (see `pagecage cage list`); uncaged limits nothing else
    command
        Program and its arguments
    dry_run
        Show the first trials and the most that may follow; start nothing
    """
    plan, host = plan_of(cage, command, options, replay_options, typed_command(), notify)
    if dry_run:
        host.stop()
        _show(plan, host)
        return EXIT_OK
    prepared = create_run(plan, host, True, notify)
    status = execute(prepared, notify)
    return _end(prepared, status, as_json)


def _show(plan: Plan, host: Host) -> None:
    print("\n".join(plan_lines(plan)))
    print("\n" + "\n".join(search_lines(plan, host)))


def _end(prepared: PreparedRun, status: int, as_json: bool) -> int:
    if not all_requirements_missed(prepared):
        report(prepared.folder.path, OutputFormat(as_json=as_json).options(), notify)
    return exit_code(prepared, status, notify)
