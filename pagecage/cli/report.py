"""Hands a run to the analysis, which is another program: the harness itself knows no pandas."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from pagecage.errors import HostError
from pagecage.process import Completed, run

_RENDER_SECONDS = 900.0


def _analysis(*arguments: str | Path) -> Completed:
    top = Path(__file__).resolve().parents[2]
    done = run([sys.executable, "-m", "analysis", *arguments], check=False, cwd=top, timeout_seconds=_RENDER_SECONDS)
    if not done.ok:
        last = (done.stderr.strip().splitlines() or ["it printed no reason"])[-1]
        raise HostError(f"the report failed: {last}", f"{sys.executable} -m analysis {' '.join(map(str, arguments))}")
    return done


def render(run_folder: Path, say: Callable[[str], None]) -> Path:
    """Execute the run's notebook and write report.ipynb and report.html into its folder; the page's path."""
    say("making the report ...")
    _analysis("render", run_folder)
    return run_folder / "report.html"


def show_run(run_folder: Path, as_json: bool) -> str:
    """The run's tables for a terminal, or everything as JSON."""
    return _analysis("show", run_folder, *(["--json"] if as_json else [])).stdout
