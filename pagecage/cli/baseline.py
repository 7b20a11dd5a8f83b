"""`pagecage baseline`: the figures of a run as a small file, for gates in CI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.checkout import RUNS
from pagecage.cli.analyse import analyse, repeated
from pagecage.cli.examples import examples
from pagecage.cli.output import notify
from pagecage.cli.paths import NewFile
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.runner.run_folder import find_run

_HELP = "Save the figures of a run as a small file, to compare later runs with."
app = App(name="baseline", help=_HELP, help_epilogue=examples("baseline"))
FOLDER = Path("baselines")


@app.command(help_epilogue=examples("baseline save"))
def save(
    name: str,
    /,
    *,
    out: NewFile | None = None,
    response: Annotated[list[str] | None, Parameter(metavar="NAME")] = None,
    include: Annotated[list[str] | None, Parameter(metavar="NAME")] = None,
    force: bool = False,
) -> int:
    """Save a run's figures, and what makes later runs comparable with them.

    The file has no raw samples and no name of a host, a user or a path, so that it can be
    committed. `pagecage compare FILE RUN` and `pagecage run NAME --baseline FILE` read it.

    Parameters
    ----------
    name
        Run to save: id, path, or an experiment's name for its newest run
    out
        File to write; by default baselines/EXPERIMENT.json
    response
        Further response to keep, for gates; the main ones, bytes, I/Os and faults are kept
    include
        Include an excluded trial, or all trials that a verdict alone excludes
    force
        Overwrite an existing file
    """
    run = find_run(RUNS, name)
    target = out or FOLDER / f"{run.plan().document['experiment']}.json"
    if target.exists() and not force:
        raise PagecageError(f"{target} exists", "choose another --out, or add --force")
    target.parent.mkdir(parents=True, exist_ok=True)
    options = [*repeated("--response", response), *repeated("--include", include)]
    analyse("baseline", run.path, f"--out={target.resolve()}", *options)
    notify(f"saved: {os.path.relpath(target)}")
    return EXIT_OK
