"""Verbs that read results: show, compare, history, baseline, and pages of the articles.

The analysis is imported late, because it takes seconds.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, TextIO

from cyclopts import App, Parameter

from pagecage.checkout import OWN, RUNS, TOP
from pagecage.cli.examples import examples
from pagecage.cli.execution import PreparedRun, execute, exit_code
from pagecage.cli.known_definitions import accepted_sections
from pagecage.cli.options import ExistingFolder, Folder, NewFile, Positive
from pagecage.cli.output import Json, OutputFormat, is_verbose, notify
from pagecage.errors import EXIT_OK, UNREADABLE, PagecageError, refusal_of_system
from pagecage.fleet.folder import find_fleet
from pagecage.runner.run_folder import find_run, path_exists

Include = Annotated[list[str] | None, Parameter(metavar="NAME")]
FailIf = Annotated[list[str] | None, Parameter(metavar="CONDITION")]


@contextmanager
def analysing(product: str = "report") -> Iterator[None]:
    """Let the analysis be imported and called; its errors name the product that is missing.

    The working directory is the project's top, because matplotlib would read a matplotlibrc of the
    user's. Warnings of libraries are dropped.
    """
    before = os.open(".", os.O_PATH)  # also of a folder that was removed
    os.chdir(TOP)
    try:
        with redirect_stderr(StringIO()):
            yield
    except (PagecageError, OSError, RuntimeError) as error:
        refused = error if isinstance(error, PagecageError) else refusal_of_system(error)
        if refused is None:
            raise
        reason = refused.message.splitlines()[-1]
        hint = refused.hint or "pagecage show NAME --html"
        raise PagecageError(f"no {product}: {reason}", hint, refused.exit_code) from None
    finally:
        os.fchdir(before)
        os.close(before)


def show_run(
    run_folder: Path, form: str = "", include: Sequence[str] = (), exchange: str | None = None
) -> str:
    """Return a run's tables in a form of OutputFormat, or its figures for another program."""
    with analysing():
        from analysis import results

        if exchange:
            return results.exchanged(run_folder, exchange, include)
        return results.tables(results.load(run_folder, include), form or _terminal_form())


def _terminal_form() -> str:
    return "whole" if is_verbose() else ""


def report(
    run_folder: Path,
    form: str = "",
    include: Sequence[str] = (),
    *,
    shows_tables: bool = True,
    runs_sections: bool = True,
) -> None:
    """Write report.ipynb and report.html to the run's folder, print its tables, and name the page.

    With `runs_sections` the definition's own sections are executed if they were accepted on this
    machine.
    """
    notify("making the report ...")
    known = _known_sections(run_folder) if runs_sections else []
    with analysing():
        from analysis import results

        loaded = results.render(run_folder, include, known)
        text = results.tables(loaded, form or _terminal_form()) if shows_tables else ""
    if shows_tables:
        print(text, end="")
        notify(f"report: {os.path.relpath(run_folder / 'report.html')}")


def measure(prepared: PreparedRun, form: str) -> int:
    """Execute a run, show its report, and return the exit status."""
    status = execute(prepared, notify)
    report(prepared.folder.path, form)
    return exit_code(prepared, status, notify)


def _known_sections(run_folder: Path) -> list[str]:
    try:
        sections = json.loads((run_folder / "plan.json").read_bytes()).get("sections") or {}
    except UNREADABLE:
        return []
    texts = sections.values() if isinstance(sections, dict) else ()
    return accepted_sections(text for text in texts if isinstance(text, str))


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
    include: Include = None

    def checked(self) -> Path | None:
        """Return the path of the baseline, or None without one."""
        if self.baseline is None:
            for option, values in (("--fail-if", self.fail_if), ("--include", self.include)):
                if values:
                    raise PagecageError(f"{option} needs a --baseline", "--baseline RUN")
            return None
        path = _run_or_baseline(self.baseline)
        with analysing():
            from analysis import results

            results.check_gates(path, self.fail_if or ())
        return path

    def refuse_on_group(self) -> None:
        """Raise PagecageError if there is a baseline, which is of one host."""
        if self.baseline is not None:
            message = "--baseline applies to one host, and this run is on a group"
            raise PagecageError(message, "pagecage compare BASELINE RUN/hosts/HOST")

    def judge(self, baseline: Path, run: Path, *, to_stderr: bool) -> int:
        """Print the comparison of a run with its baseline; return the gates' exit status."""
        out = sys.stderr if to_stderr else sys.stdout
        return _compare([baseline, run], self.fail_if, self.include, out=out)


def _compare(
    paths: Sequence[Path],
    fail_if: list[str] | None,
    include: list[str] | None,
    form: str = "",
    *,
    anyway: bool = False,
    html: Path | None = None,
    out: TextIO | None = None,
) -> int:
    page = html and html.resolve()
    with analysing("comparison"):
        from analysis import results

        text, status = results.compared(
            paths, fail_if or (), include or (), form or _terminal_form(), anyway=anyway, html=page
        )
    print(text, end="", file=out)
    return status


def _run_or_baseline(name: str) -> Path:
    path = Path(name)
    if path_exists(path) and path.is_file():
        return path.resolve()
    return find_run(RUNS, name).path


def history(
    name: str,
    *older: str,
    response: Annotated[str | None, Parameter(metavar="NAME")] = None,
    last: Positive = 50,
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
    paths = [*_newest(name, last), *map(_run_or_baseline, older)]
    notify(f"reading {len(paths)} runs ...")
    return _follow(paths, response, fail_if, output_format.form(), html)


def _follow(
    paths: list[Path], response: str | None, fail_if: str | None, form: str, html: Path | None
) -> int:
    page = html and html.resolve()
    with analysing():
        from analysis import results

        text, status = results.followed(paths, response, fail_if, form or _terminal_form(), page)
    print(text, end="")
    return status


def _newest(name: str, last: int) -> list[Path]:
    found = (
        path
        for path in sorted(RUNS.glob(f"*Z-{name}-*"), reverse=True)
        if (path / "records.jsonl").exists()
    )
    return list(islice(found, last)) or [_run_or_baseline(name)]


_HELP = "Save the figures of a run as a small file, to compare later runs with."
app = App(name="baseline", help=_HELP, help_epilogue=examples("baseline"))


@app.command(help_epilogue=examples("baseline save"))
def save(
    name: str,
    /,
    *,
    out: NewFile | None = None,
    response: Annotated[list[str] | None, Parameter(metavar="NAME")] = None,
    include: Include = None,
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
    target = out or Path(f"baselines/{run.plan().document['experiment']}.json")
    if target.exists() and not force:
        raise PagecageError(f"{target} exists", "choose another --out, or add --force")
    target.parent.mkdir(parents=True, exist_ok=True)
    file = target.resolve()
    with analysing():
        from analysis import results

        results.save_baseline(run.path, file, response or (), include or ())
    notify(f"saved: {os.path.relpath(target)}")
    return EXIT_OK


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
    paths = [_run_or_baseline(name) for name in (first, second, *more)]
    form = output_format.form()
    return _compare(paths, fail_if, include, form, anyway=anyway, html=html)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunFormat(OutputFormat):
    """The output format of a run.

    Parameters
    ----------
    claims
        Print only the published figures that the run compares
    """

    claims: bool = False

    def given(self) -> dict[str, bool]:
        """Return whether each form is asked for."""
        return {**super().given(), "claims": self.claims}


def show(
    name: str,
    output_format: RunFormat = RunFormat(),
    *,
    include: Include = None,
    html: bool = False,
    format: Annotated[  # noqa: A002 - the option's name
        Literal["bencher", "github-benchmark", "hyperfine", "junit", "openmetrics"] | None,
        Parameter(metavar="NAME"),
    ] = None,
) -> int:
    """Show a run's result, binding limit and table; with -v also verdicts, diagnosis and claims.

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
    form, names = output_format.form(), include or ()
    forms = {"--html": html, f"--{form}": form, "--format": format}
    if len(given := [option for option, is_given in forms.items() if is_given]) > 1:
        raise PagecageError(f"{' and '.join(given)} are mutually exclusive", "give one of them")
    if html:
        report(path, include=names, shows_tables=False)
        print(path / "report.html")
        return EXIT_OK
    print(show_run(path, form, names, format), end="")
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

    def folders(self) -> tuple[Path, Path | None]:
        """Return the folders of runs and of bundles. Raises PagecageError if both are given."""
        if self.runs and self.bundles:
            raise PagecageError("--runs and --bundles are mutually exclusive", "give one of them")
        return (self.runs or RUNS).resolve(), self.bundles and self.bundles.resolve()


def claims(
    *,
    experiment: Annotated[str | None, Parameter(metavar="NAME")] = None,
    stored: StoredRuns = StoredRuns(),
    others: Annotated[
        tuple[Path, ...], Parameter("--from", metavar="BUNDLE", consume_multiple=True, negative=())
    ] = (),
    markdown: bool = False,
    as_json: Json = False,
) -> int:
    """Compare published figures with the newest runs.

    Parameters
    ----------
    experiment
        Only the figures that this experiment tests
    others
        Bundles of other machines, or directories of them, whose results are shown next to those
    markdown
        Print Markdown, as in docs/SCORECARD.md
    """
    folders, form = stored.folders(), OutputFormat(markdown=markdown, as_json=as_json).form()
    foreign = [path.resolve() for path in others]  # analysing() changes the directory
    with analysing("claims"):
        from analysis import results

        text = results.scorecard(*folders, experiment, form, foreign)
    print(text, end="")
    return EXIT_OK


def answers(
    *, stored: StoredRuns = StoredRuns(), markdown: bool = False, as_json: Json = False
) -> int:
    """Show open questions of the articles and the newest runs' findings.

    Parameters
    ----------
    markdown
        Print Markdown, as in docs/answers.md
    """
    folders, form = stored.folders(), OutputFormat(markdown=markdown, as_json=as_json).form()
    with analysing("answers"):
        from analysis import results

        text = results.answers(*folders, form)
    print(text, end="")
    return EXIT_OK


def fidelity(
    folder: ExistingFolder = TOP / "docs/fidelity", *, markdown: bool = False, as_json: Json = False
) -> int:
    """Show how closely simulated volumes follow their model, io.max and published figures.

    Parameters
    ----------
    folder
        Directory of checks (`pagecage volume check NAME --json > NAME.check.json`) and bundles
    markdown
        Print Markdown, as in docs/FIDELITY.md
    """
    form, place = OutputFormat(markdown=markdown, as_json=as_json).form(), folder.resolve()
    with analysing():
        from analysis import results

        text = results.fidelity(place, form)
    print(text, end="")
    return EXIT_OK


def publish(*runs: str, out: Folder = OWN / "site", bundles: ExistingFolder | None = None) -> int:
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
    named = [find_run(RUNS, name).path.resolve() for name in runs]
    folders, site = StoredRuns(bundles=bundles).folders(), out.resolve()
    notify("making the site ...")
    with analysing("site"):
        from analysis import results

        results.publish(*folders, named, site)
    print(os.path.relpath(out / "index.html"))
    return EXIT_OK
