"""`pagecage compare`: runs against one another, with a gate for other programs."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pagecage.cli.places import RUNS
from pagecage.cli.report import analyse
from pagecage.errors import EXIT_GATE_FAILED, EXIT_GATE_UNDECIDED, EXIT_OK, PagecageError
from pagecage.runs import find_run

_ANSWERS = (EXIT_OK, EXIT_GATE_FAILED, EXIT_GATE_UNDECIDED)


def compare(
    first: str,
    second: str,
    *more: str,
    fail_if: list[str] | None = None,
    include: list[str] | None = None,
    anyway: bool = False,
    csv: bool = False,
    markdown: bool = False,
    as_json: Annotated[bool, Parameter(name="--json", help="Print data, and data alone, on standard output.")] = False,
) -> int:
    """Compare runs with the first: ratios with intervals, the noise beside them, and what else differs.

    Parameters
    ----------
    first
        A run's id or path, or an experiment's name for its newest run. The others are held against it.
    second
        Another run.
    more
        Further runs.
    fail_if
        A change that must not be, as 'read_seconds > +10%': exit status 5 where it is, 6 where the figures cannot tell.
    include
        An excluded trial to average in after all, by its name, as r3_tenth_random, or B:r3_tenth_random in one run.
    anyway
        Compare what is not comparable, and say so.
    csv
        Print the table as CSV.
    markdown
        Print the tables in Markdown.
    """
    folders = [find_run(RUNS, name).path for name in (first, second, *more)]
    gates = [f"--fail-if={gate}" for gate in fail_if or ()]
    names = [f"--include={name}" for name in include or ()]
    options = [*gates, *names, *(["--anyway"] if anyway else []), *form_of(csv, markdown, as_json)]
    done = analyse("compare", *folders, *options, answers=_ANSWERS)
    print(done.stdout, end="")
    return done.status


def form_of(csv: bool, markdown: bool, as_json: bool) -> list[str]:
    """The option that asks the analysis for a form; none asks for the terminal's. Raises PagecageError for two."""
    given = [name for name, asked in (("--csv", csv), ("--markdown", markdown), ("--json", as_json)) if asked]
    if len(given) > 1:
        raise PagecageError(f"{given[0]} and {given[1]} are two forms", "ask for one")
    return given
