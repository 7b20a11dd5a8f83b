"""Hands a run to the analysis, which is another program: the harness itself knows no pandas."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from pagecage.checkout import TOP
from pagecage.cli.failures import Defect
from pagecage.cli.output import OutputFormat
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.process import OWN_PYTHON, Completed, run

_ANALYSIS_SECONDS = 3600.0
_TRACEBACK = "Traceback (most recent call last)"
_MADE = {"claims": "claims", "answers": "answers", "compare": "comparison", "publish": "site"}
"""What a verb makes, where that is no report."""


def analyse(verb: str, *arguments: str | Path, answers: Collection[int] = (EXIT_OK,)) -> Completed:
    """Run `python -m analysis VERB ...`, which writes as wide as our terminal, and in colour where that is one.

    Raises PagecageError with its own sentence and exit code where it ends with none of `answers`, and Defect where an
    exception ended it that it did not expect.
    """
    width = {"COLUMNS": str(shutil.get_terminal_size().columns)}
    width |= {"FORCE_COLOR": "1"} if sys.stdout.isatty() and "NO_COLOR" not in os.environ else {}
    argv = [sys.executable, "-m", "analysis", verb, *arguments]
    done = run(argv, check=False, cwd=TOP, timeout_seconds=_ANALYSIS_SECONDS, env={**width, **OWN_PYTHON})
    if _TRACEBACK in done.stderr and done.status not in answers:
        raise Defect(f"python -m analysis {verb} ended with status {done.status}", done.stderr)
    if done.status not in answers:
        sentence, _, hint = done.stderr.strip().rpartition("\n  fix: ")
        said = (sentence or hint or "it printed no reason").splitlines()[-1]
        what = _MADE.get(verb, "report")
        raise PagecageError(f"no {what}: {said}", hint if sentence else "pagecage show NAME --html", done.status)
    return done


def render(run_folder: Path, say: Callable[[str], None], include: Sequence[str] = ()) -> Path:
    """Execute the run's notebook and write report.ipynb and report.html into its folder; the page's path.

    `include` names excluded trials, or verdicts, to average in.
    """
    say("making the report ...")
    analyse("render", run_folder, *(f"--include={name}" for name in include))
    return run_folder / "report.html"


def publish_site(runs: Path, chosen: Sequence[Path], out: Path, say: Callable[[str], None]) -> Path:
    """Make a static site of the chosen runs, or of the newest of every experiment; its first page's path."""
    say("making the site ...")
    analyse("publish", *(path.resolve() for path in chosen), "--out", out.resolve(), "--runs", runs.resolve())
    return out / "index.html"


def show_claims(runs: Path, experiment: str | None, as_json: bool) -> str:
    """The scorecard of all published figures, or of one experiment's, from the newest runs."""
    only = ["--experiment", experiment] if experiment is not None else []
    return analyse("claims", "--runs", runs.resolve(), *only, *(["--json"] if as_json else [])).stdout


def show_answers(runs: Path, markdown: bool, as_json: bool) -> str:
    """What the newest runs say to the articles' open questions."""
    form = OutputFormat(markdown=markdown, as_json=as_json).options()
    return analyse("answers", "--runs", runs.resolve(), *form).stdout


def show_run(run_folder: Path, form: Sequence[str] = (), include: Sequence[str] = ()) -> str:
    """The run's tables for a terminal, or in the form that an option asks for (`--json --csv --markdown`)."""
    return analyse("show", run_folder, *form, *(f"--include={name}" for name in include)).stdout


def report(run_folder: Path, form: Sequence[str], say: Callable[[str], None]) -> None:
    """Make a run's report, print its tables in the form that options ask for, and say where the page is.

    One process does both, so that the run is loaded once.
    """
    say("making the report ...")
    print(analyse("render", run_folder, "--show", *form).stdout, end="")
    say(f"report: {os.path.relpath(run_folder / 'report.html')}")
