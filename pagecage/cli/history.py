"""`pagecage history`: the runs of an experiment in order, and where a figure changed level."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pagecage.checkout import RUNS
from pagecage.cli.analyse import analyse
from pagecage.cli.gate import GATE_STATUSES, run_or_baseline
from pagecage.cli.numbers import Positive
from pagecage.cli.output import OutputFormat, notify
from pagecage.cli.paths import NewFile
from pagecage.errors import PagecageError

_LAST = 50


def history(
    name: str,
    *older: str,
    response: Annotated[str | None, Parameter(metavar="NAME")] = None,
    last: Positive = _LAST,
    fail_if: Annotated[str | None, Parameter(metavar="CONDITION")] = None,
    html: NewFile | None = None,
    output_format: OutputFormat = OutputFormat(),  # noqa: B008 - frozen
) -> int:
    """Show how a figure changed from run to run.

    Runs that are not comparable with the newest one are left out. A change of level is proven if at
    least three runs on each side show it.

    Parameters
    ----------
    name
        Experiment, for its runs; or a run or baseline
    older
        Further runs or baselines
    response
        Response to follow; by default the experiment's
    last
        Number of the newest runs to read
    fail_if
        Exit with 5 if the newest change of level is such, with 6 if that is undecided
    html
        Write a page with a figure
    """
    if response and fail_if:
        raise PagecageError(
            "--response and --fail-if are mutually exclusive", "a condition names its response"
        )
    folders = [*_runs_of(name, last), *(run_or_baseline(one) for one in older)]
    notify(f"reading {len(folders)} runs ...")
    given = {"response": response, "fail-if": fail_if, "html": html.resolve() if html else None}
    options = [f"--{name}={value}" for name, value in given.items() if value]
    done = analyse("history", *folders, *options, *output_format.options(), accepted=GATE_STATUSES)
    print(done.stdout, end="")
    return done.status


def _runs_of(name: str, last: int) -> list[Path]:
    """Return an experiment's newest runs that have a record, or the run of this name."""
    found = (
        path
        for path in sorted(RUNS.glob(f"*Z-{name}-*"), reverse=True)
        if (path / "records.jsonl").exists()
    )
    return list(islice(found, last)) or [run_or_baseline(name)]
