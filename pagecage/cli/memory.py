"""`pagecage memory`: the memory that a program needs."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from pagecage.cli.execution import create_run
from pagecage.cli.output import Json, examples, require_before_command, typed_command
from pagecage.cli.replay import measure_program
from pagecage.errors import EXIT_OK
from pagecage.planning.memory import MemoryOptions, plan_of, search_lines
from pagecage.planning.options import ReplayOptions
from pagecage.planning.plan import plan_lines
from pagecage.terminal import notify

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
    require_before_command(cage, "CAGE", command)
    plan, host = plan_of(cage, command, options, replay_options, typed_command(), notify)
    if dry_run:
        host.stop()
        print("\n".join([*plan_lines(plan), "", *search_lines(plan, host)]))
        return EXIT_OK
    return measure_program(create_run(plan, host, True, notify), as_json)
