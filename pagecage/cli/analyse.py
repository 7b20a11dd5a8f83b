"""Calls of `python -m analysis`.

It runs as its own process so that the harness does not import pandas.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from pagecage.checkout import TOP
from pagecage.cli.failures import Defect
from pagecage.cli.known_definitions import accepted_sections
from pagecage.cli.output import Notify, OutputFormat
from pagecage.errors import EXIT_OK, UNREADABLE, HostError, PagecageError
from pagecage.process import OWN_PYTHON, Completed, run

_ANALYSIS_SECONDS = 3600.0
_TRACEBACK = "Traceback (most recent call last)"
_PRODUCTS = {"claims": "claims", "answers": "answers", "compare": "comparison", "publish": "site"}
"""The product of a verb in messages; of other verbs it is a report."""


def analyse(verb: str, *arguments: str | Path, accepted: Collection[int] = (EXIT_OK,)) -> Completed:
    """Run `python -m analysis VERB ...` with the width and the colours of this terminal.

    Raises PagecageError with the analysis's own message and exit status if the status is not in
    `accepted`, or if nothing but a message was printed. Raises Defect if the analysis ended with a
    traceback.
    """
    width = {"COLUMNS": str(shutil.get_terminal_size().columns)}
    width |= {"FORCE_COLOR": "1"} if sys.stdout.isatty() and "NO_COLOR" not in os.environ else {}
    argv = [sys.executable, "-m", "analysis", verb, *arguments]
    done = run(
        argv, check=False, cwd=TOP, timeout_seconds=_ANALYSIS_SECONDS, env={**width, **OWN_PYTHON}
    )
    if done.status in accepted and (done.stdout or not done.stderr):
        return done
    if _TRACEBACK in done.stderr:
        raise Defect(f"python -m analysis {verb} ended with status {done.status}", done.stderr)
    if done.status < 0:
        raise HostError(
            f"python -m analysis {verb} was ended by signal {-done.status}", "repeat the command"
        )
    sentence, _, hint = done.stderr.strip().rpartition("\n  fix: ")
    reason = (sentence or hint or "it printed no reason").splitlines()[-1]
    product = _PRODUCTS.get(verb, "report")
    raise PagecageError(
        f"no {product}: {reason}", hint if sentence else "pagecage show NAME --html", done.status
    )


def repeated(option: str, values: Sequence[str] | None) -> list[str]:
    """Return an option once for each value."""
    return [f"{option}={value}" for value in values or ()]


def render(
    run_folder: Path, notify: Notify, include: Sequence[str] = (), *, runs_sections: bool = True
) -> Path:
    """Run the run's notebook, write its report, and return the path of the page.

    Writes report.ipynb and report.html to the run's folder. `include` names excluded trials, or
    verdicts, whose trials are averaged in. With `runs_sections` the definition's own sections are
    executed if they were accepted on this machine.
    """
    notify("making the report ...")
    sections = known_sections(run_folder) if runs_sections else []
    analyse("render", run_folder, *repeated("--include", include), *sections)
    return run_folder / "report.html"


def known_sections(run_folder: Path) -> list[str]:
    """Return the options that name the run's own sections which may be executed here."""
    try:
        sections = json.loads((run_folder / "plan.json").read_bytes()).get("sections") or {}
    except UNREADABLE:
        return []
    texts = sections.values() if isinstance(sections, dict) else ()
    return repeated("--section", accepted_sections(text for text in texts if isinstance(text, str)))


def publish_site(stored: Sequence[str], chosen: Sequence[Path], out: Path, notify: Notify) -> Path:
    """Make a static site and return the path of its first page.

    `stored` are the options of StoredRuns. Without `chosen` the site shows the newest run of each
    experiment.
    """
    notify("making the site ...")
    analyse("publish", *(path.resolve() for path in chosen), "--out", out.resolve(), *stored)
    return out / "index.html"


def show_claims(stored: Sequence[str], experiment: str | None, formats: OutputFormat) -> str:
    """Return the scorecard of published figures; `stored` are the options of StoredRuns."""
    only = ["--experiment", experiment] if experiment is not None else []
    return analyse("claims", *stored, *only, *formats.options()).stdout


def show_answers(stored: Sequence[str], formats: OutputFormat) -> str:
    """Return the findings on the articles' open questions, likewise."""
    return analyse("answers", *stored, *formats.options()).stdout


def show_fidelity(folder: Path, formats: OutputFormat) -> str:
    """Return the fidelity of simulated volumes, from a folder of checks and bundles."""
    return analyse("fidelity", folder.resolve(), *formats.options()).stdout


def show_run(run_folder: Path, formats: Sequence[str] = (), include: Sequence[str] = ()) -> str:
    """Return the run's tables, for a terminal or in the format of an option of OutputFormat."""
    return analyse("show", run_folder, *formats, *repeated("--include", include)).stdout


def report(run_folder: Path, formats: Sequence[str], notify: Notify) -> None:
    """Make a run's report, print its tables, and print the path of the page.

    One process does both, so that the run is loaded once.
    """
    notify("making the report ...")
    sections = known_sections(run_folder)
    print(analyse("render", run_folder, "--show", *formats, *sections).stdout, end="")
    notify(f"report: {os.path.relpath(run_folder / 'report.html')}")
