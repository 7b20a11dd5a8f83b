"""Hands a run to the analysis, which is another program: the harness itself knows no pandas."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pagecage.errors import PagecageError
from pagecage.process import Completed, run

_RENDER_SECONDS = 3600.0
_WANTED = {"claims": "claims", "answers": "answers", "publish": "site"}
_TOP = Path(__file__).resolve().parents[2]


def _analysis(*arguments: str | Path) -> Completed:
    """Run `python -m analysis ...`; its own sentence and exit code when it fails.

    It writes as wide as our terminal, and in colour where that is one.
    """
    width = {"COLUMNS": str(shutil.get_terminal_size().columns)}
    width |= {"FORCE_COLOR": "1"} if sys.stdout.isatty() and "NO_COLOR" not in os.environ else {}
    argv = [sys.executable, "-m", "analysis", *arguments]
    done = run(argv, check=False, cwd=_TOP, timeout_seconds=_RENDER_SECONDS, env=width)
    if not done.ok:
        sentence, _, mend = done.stderr.strip().rpartition("\n  mend: ")
        said = (sentence or mend or "it printed no reason").splitlines()[-1]
        what = _WANTED.get(str(arguments[0]), "report")
        raise PagecageError(f"no {what}: {said}", mend if sentence else "pagecage show NAME --html", done.status)
    return done


def render(run_folder: Path, say: Callable[[str], None]) -> Path:
    """Execute the run's notebook and write report.ipynb and report.html into its folder; the page's path."""
    say("making the report ...")
    _analysis("render", run_folder)
    return run_folder / "report.html"


def publish_site(runs: Path, chosen: Sequence[Path], out: Path, say: Callable[[str], None]) -> Path:
    """Make a static site of the chosen runs, or of the newest of every experiment; its first page's path."""
    say("making the site ...")
    _analysis("publish", *(path.resolve() for path in chosen), "--out", out.resolve(), "--runs", runs.resolve())
    return out / "index.html"


def show_claims(runs: Path, experiment: str | None, as_json: bool) -> str:
    """The scorecard of all published figures, or of one experiment's, from the newest runs."""
    only = ["--experiment", experiment] if experiment else []
    return _analysis("claims", "--runs", runs.resolve(), *only, *(["--json"] if as_json else [])).stdout


def show_answers(runs: Path, markdown: bool, as_json: bool) -> str:
    """What the newest runs say to the articles' open questions."""
    form = ["--json"] if as_json else ["--markdown"] if markdown else []
    return _analysis("answers", "--runs", runs.resolve(), *form).stdout


def show_run(run_folder: Path, as_json: bool) -> str:
    """The run's tables for a terminal, or everything as JSON."""
    return _analysis("show", run_folder, *(["--json"] if as_json else [])).stdout
