"""Verbs that read results: show, compare, history, baseline, and pages of the articles."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

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
from pagecage.cli.examples import examples
from pagecage.cli.options import ExistingFolder, Folder, NewFile, Positive
from pagecage.cli.output import Json, OutputFormat, notify
from pagecage.errors import EXIT_GATE_FAILED, EXIT_GATE_UNDECIDED, EXIT_OK, PagecageError
from pagecage.fleet.folder import find_fleet
from pagecage.runner.run_folder import find_run, path_exists

GATE_STATUSES = (EXIT_OK, EXIT_GATE_FAILED, EXIT_GATE_UNDECIDED)
FailIf = Annotated[list[str] | None, Parameter(metavar="CONDITION")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """Options of a run that is compared with an earlier one.

    Parameters
    ----------
    baseline
        Compare with this run, or with a file of `pagecage baseline save`
    fail_if
        Exit with 5 if a response changed so, with 6 if it cannot be decided; for example
        'device_read_bytes > +5%'
    include
        Compare excluded trials too: host_quiet includes those that only other work on the host
        excludes, which changes no bytes that the program reads
    """

    baseline: Annotated[str | None, Parameter(metavar="RUN")] = None
    fail_if: FailIf = None
    include: Annotated[list[str] | None, Parameter(metavar="NAME")] = None

    def checked(self) -> Path | None:
        """Return the path of the baseline, or None without one.

        Raises PagecageError for a baseline that cannot be read, and for a gate that is none or that
        names a response which the baseline lacks.
        """
        if self.baseline is None:
            for option, values in (("--fail-if", self.fail_if), ("--include", self.include)):
                if values:
                    raise PagecageError(f"{option} needs a --baseline", "--baseline RUN")
            return None
        path = run_or_baseline(self.baseline)
        analyse("gates", path, *repeated("--fail-if", self.fail_if))
        return path

    def refuse_on_group(self) -> None:
        """Raise PagecageError if there is a baseline, which is of one host."""
        if self.baseline is not None:
            message = "--baseline applies to one host, and this run is on a group"
            raise PagecageError(message, "pagecage compare BASELINE RUN/hosts/HOST")


def run_or_baseline(name: str) -> Path:
    """Return the folder of a run, or the path of a baseline file."""
    path = Path(name)
    if path_exists(path) and path.is_file():
        return path.resolve()
    return find_run(RUNS, name).path


def judge(baseline: Path, run: Path, gate: GateOptions, *, to_stderr: bool) -> int:
    """Print the comparison of a run with its baseline; return the gates' exit status.

    Raises PagecageError if the two are not comparable.
    """
    words = [*repeated("--fail-if", gate.fail_if), *repeated("--include", gate.include)]
    done = analyse("compare", baseline, run, *words, accepted=GATE_STATUSES)
    print(done.stdout, end="", file=sys.stderr if to_stderr else sys.stdout)
    return done.status


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
