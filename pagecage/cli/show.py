"""`pagecage show`, `compare`, `claims`, `answers` and `publish`: verbs that read finished runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from pagecage.checkout import OWN, RUNS, TOP
from pagecage.cli.analyse import (
    analyse,
    publish_site,
    render,
    repeated,
    show_answers,
    show_claims,
    show_fidelity,
    show_run,
)
from pagecage.cli.gate import GATE_STATUSES, FailIf, run_or_baseline
from pagecage.cli.output import Json, OutputFormat, notify
from pagecage.cli.paths import ExistingFolder, Folder, NewFile
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.fleet.folder import find_fleet
from pagecage.runner.run_folder import find_run

Include = Annotated[list[str] | None, Parameter(metavar="NAME")]
"""Names of excluded trials, or of verdicts, whose trials are averaged in."""
ExchangeFormat = Annotated[
    Literal["bencher", "github-benchmark", "hyperfine", "junit", "openmetrics"],
    Parameter(metavar="NAME"),
]
"""Formats that other programs read (analysis/exchange/)."""


def compare(
    first: str,
    second: str,
    *more: str,
    fail_if: FailIf = None,
    include: Include = None,
    anyway: bool = False,
    html: NewFile | None = None,
    output_format: OutputFormat = OutputFormat(),  # noqa: B008 - frozen
) -> int:
    """Compare runs with a first run.

    The tables show ratios with 95 % intervals, the noise, and what else differs between the runs.

    Parameters
    ----------
    first
        Run to compare with (id, path or experiment's name), or file of `pagecage baseline save`
    second
        Run to compare
    more
        Further runs to compare
    fail_if
        Exit with 5 if a response changed so, with 6 if the runs cannot decide it; for example
        'read_seconds > +10%'
    include
        Include an excluded trial, by name: r3_tenth_random, or B:r3_tenth_random in the second
        run only. Or a verdict such as host_quiet, for all trials excluded by it alone
    anyway
        Compare runs that are not comparable, with a warning
    html
        Write a page with the tables and a figure of the ratios
    """
    folders = [run_or_baseline(name) for name in (first, second, *more)]
    options = [*repeated("--fail-if", fail_if), *repeated("--include", include)]
    options += ["--anyway"] if anyway else []
    options += [f"--html={html.resolve()}"] if html else []
    done = analyse("compare", *folders, *options, *output_format.options(), accepted=GATE_STATUSES)
    print(done.stdout, end="")
    return done.status


def show(
    name: str,
    output_format: OutputFormat = OutputFormat(),  # noqa: B008 - frozen
    *,
    include: Include = None,
    html: bool = False,
    format: ExchangeFormat | None = None,  # noqa: A002 - the option's name
) -> int:
    """Show a run's tables, verdicts and claims.

    Parameters
    ----------
    name
        Run to show: id, path, an experiment's name for its newest run, or EXPERIMENT@GROUP for
        the newest run on a group
    include
        Include an excluded trial, by name; or a verdict (limits, cache_state_reached,
        host_quiet, collectors) for all trials excluded by it alone
    html
        Make the HTML report again and print its path
    format
        Print the proven figures in a format that another program reads: bencher (bencher.dev),
        github-benchmark, hyperfine, junit (one test for each trial) or openmetrics
    """
    fleet = find_fleet(RUNS, name)
    path = fleet.path if fleet else find_run(RUNS, name).path
    formats = [*output_format.options(), *([f"--format={format}"] if format else [])]
    if len(given := [*(["--html"] if html else []), *formats]) > 1:
        named = " and ".join(option.partition("=")[0] for option in given)
        raise PagecageError(f"{named} are mutually exclusive", "give one of them")
    if html:
        print(render(path, notify, include or ()))
    else:
        print(show_run(path, formats, include or ()), end="")
    return EXIT_OK


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StoredRuns:
    """The runs to read: the newest ones in a folder of runs, or those in a folder of bundles.

    Parameters
    ----------
    runs
        Directory of runs to read; by default the project's
    bundles
        Directory of bundles to read instead, such as docs/runs; nothing is unpacked into it
    """

    runs: ExistingFolder | None = None
    bundles: ExistingFolder | None = None

    def options(self) -> list[str]:
        """Return the option for `python -m analysis`.

        Raises PagecageError if both are given.
        """
        if self.runs and self.bundles:
            raise PagecageError("--runs and --bundles are mutually exclusive", "give one of them")
        if self.bundles:
            return ["--bundles", str(self.bundles.resolve())]
        return ["--runs", str((self.runs or RUNS).resolve())]


def claims(
    *,
    experiment: Annotated[str | None, Parameter(metavar="NAME")] = None,
    stored: StoredRuns = StoredRuns(),
    markdown: bool = False,
    as_json: Json = False,
) -> int:
    """Compare published figures with the newest runs.

    Parameters
    ----------
    experiment
        Only the figures that this experiment tests
    markdown
        Print Markdown, as in docs/SCORECARD.md
    """
    formats = OutputFormat(markdown=markdown, as_json=as_json)
    print(show_claims(stored.options(), experiment, formats), end="")
    return EXIT_OK


def answers(
    *,
    stored: StoredRuns = StoredRuns(),
    markdown: bool = False,
    as_json: Json = False,
) -> int:
    """Show open questions of the articles and the newest runs' findings.

    Parameters
    ----------
    markdown
        Print Markdown, as in docs/answers.md
    """
    formats = OutputFormat(markdown=markdown, as_json=as_json)
    print(show_answers(stored.options(), formats), end="")
    return EXIT_OK


def fidelity(
    folder: ExistingFolder = TOP / "docs/fidelity",
    *,
    markdown: bool = False,
    as_json: Json = False,
) -> int:
    """Show how closely simulated volumes follow their model, io.max and published figures.

    Parameters
    ----------
    folder
        Directory of checks (`pagecage volume check NAME --json > NAME.check.json`) and bundles
    markdown
        Print Markdown, as in docs/FIDELITY.md
    """
    print(show_fidelity(folder, OutputFormat(markdown=markdown, as_json=as_json)), end="")
    return EXIT_OK


def publish(
    *runs: str,
    out: Folder = OWN / "site",
    bundles: ExistingFolder | None = None,
) -> int:
    """Make a static site of reports, claims and documents.

    The site can be opened offline.

    Parameters
    ----------
    runs
        Runs to publish: ids, paths or experiments' names; without any, the newest run of each
        experiment
    out
        Directory of the site; replaced once the new site is complete
    bundles
        Directory of bundles to read instead of the project's runs, such as docs/runs
    """
    chosen = [find_run(RUNS, name).path for name in runs]
    stored = StoredRuns(bundles=bundles).options()
    print(os.path.relpath(publish_site(stored, chosen, out, notify)))
    return EXIT_OK
