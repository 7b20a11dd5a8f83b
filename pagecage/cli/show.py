"""`pagecage show`, `compare`, `claims`, `answers` and `publish`: the verbs that read finished runs."""

from __future__ import annotations

import os

from pagecage.checkout import RUNS, TOP
from pagecage.cli.analyse import analyse, publish_site, render, show_answers, show_claims, show_run
from pagecage.cli.output import Json, OutputFormat, say
from pagecage.cli.paths import Folder, NewFile
from pagecage.errors import EXIT_GATE_FAILED, EXIT_GATE_UNDECIDED, EXIT_OK, PagecageError
from pagecage.fleet.folder import find_fleet
from pagecage.runner.run_folder import find_run

_ANSWERS = (EXIT_OK, EXIT_GATE_FAILED, EXIT_GATE_UNDECIDED)


def compare(
    first: str,
    second: str,
    *more: str,
    fail_if: list[str] | None = None,
    include: list[str] | None = None,
    anyway: bool = False,
    html: NewFile | None = None,
    form: OutputFormat = OutputFormat(),  # noqa: B008 - frozen
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
        An excluded trial to average in after all, by its name, as r3_tenth_random, or B:r3_tenth_random in one run;
        or a verdict, as host_quiet, for all trials that it alone excludes.
    anyway
        Compare what is not comparable, and say so.
    html
        A page to write, with the tables and a figure of the ratios.
    """
    folders = [find_run(RUNS, name).path for name in (first, second, *more)]
    page = [f"--html={html.resolve()}"] if html else []
    gates = [f"--fail-if={gate}" for gate in fail_if or ()]
    names = [f"--include={name}" for name in include or ()]
    options = [*gates, *names, *(["--anyway"] if anyway else []), *page, *form.options()]
    done = analyse("compare", *folders, *options, answers=_ANSWERS)
    print(done.stdout, end="")
    return done.status


def show(
    name: str,
    form: OutputFormat = OutputFormat(),  # noqa: B008 - frozen
    *,
    include: list[str] | None = None,
    html: bool = False,
) -> int:
    """Print a run's tables, verdicts and claims.

    Parameters
    ----------
    name
        A run's id or path, an experiment's name for its newest run, or EXPERIMENT@GROUP for the newest of a group.
    include
        An excluded trial to average in after all, by its name, or a verdict (limits, cache_state_reached, host_quiet)
        for all trials that it alone excludes.
    html
        Make the report again from the records, and print its path.
    """
    fleet = find_fleet(RUNS, name)
    path = fleet.path if fleet else find_run(RUNS, name).path
    if html and form.options():
        raise PagecageError(f"--html prints the path of a page, and {form.options()[0]} is for tables", "ask for one")
    if html:
        print(render(path, say, include or ()))
    else:
        print(show_run(path, form.options(), include or ()), end="")
    return EXIT_OK


def claims(*, experiment: str | None = None, as_json: Json = False) -> int:
    """Print every published figure, what the newest runs measured for it, and whether it held.

    Parameters
    ----------
    experiment
        Only the figures that this experiment tests.
    """
    print(show_claims(RUNS, experiment, as_json), end="")
    return EXIT_OK


def answers(*, markdown: bool = False, as_json: Json = False) -> int:
    """Print the questions that the articles left open, and what the newest runs say to each.

    Parameters
    ----------
    markdown
        As the page docs/answers.md.
    """
    print(show_answers(RUNS, markdown, as_json), end="")
    return EXIT_OK


def publish(*runs: str, out: Folder = TOP / "site") -> int:
    """Make a static site that opens anywhere, offline: reports, the scorecard, the answers, the documents.

    Parameters
    ----------
    runs
        Runs' ids, paths or experiments' names; the newest of every experiment where none is named.
    out
        The folder that becomes the site; one that was there before is replaced when the new one is whole.
    """
    chosen = [find_run(RUNS, name).path for name in runs]
    print(os.path.relpath(publish_site(RUNS, chosen, out, say)))
    return EXIT_OK
