"""Parts of the report that the definition brings along, each executed in a process of its own.

Only sections whose hash the caller names are executed: the code of a bundle, or of a run folder
from elsewhere, is shown as text. A section that fails, ends its process or takes too long leaves a
message in its place.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from analysis.views.notebook_file import Cell, code_cell
from pagecage.checkout import TOP
from pagecage.digests import text_sha256
from pagecage.errors import PagecageError
from pagecage.process import OWN_PYTHON, run

TIMEOUT_SECONDS = 600.0
_MOST_BYTES = 64 << 20
_LEFT_OUT = (
    "This part of the report is code of the definition. It was left out: pagecage executes such"
    " code for runs of this machine alone, and never that of a bundle. Its text is below."
)


def section_cells(
    run_path: Path, plan: Mapping[str, Any], include: Sequence[str], known: Collection[str]
) -> list[Cell]:
    """Return the cells of all sections of a plan; `known` are the hashes that may be executed."""
    cells: list[Cell] = []
    for name, text in _sections(plan).items():
        if text_sha256(text) in known:
            cells += _executed(run_path, name, text, include)
        else:
            cells += [_message(f"{name} was left out", _LEFT_OUT, text)]
    return cells


def _sections(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts by name. The plan may be untrusted: anything else is left out."""
    sections = plan.get("sections") or {}
    found = sections.items() if isinstance(sections, dict) else ()
    return {str(name): text for name, text in found if isinstance(text, str)}


def _executed(run_path: Path, name: str, text: str, include: Sequence[str]) -> list[Cell]:
    with tempfile.TemporaryDirectory(prefix="pagecage-section-") as scratch:
        source, out = Path(scratch) / "section.py", Path(scratch) / "cells.json"
        source.write_text(text, encoding="utf-8")
        argv: list[str | Path] = [sys.executable, "-m", "analysis", "section"]
        argv += [run_path.resolve(), source, out]
        argv += [f"--include={one}" for one in include]
        environment = {**OWN_PYTHON, "MPLBACKEND": "svg", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = run(argv, check=False, cwd=TOP, timeout_seconds=TIMEOUT_SECONDS, env=environment)
            reason = _last_line(done.stderr) or f"its process ended with status {done.status}"
        except PagecageError:
            reason = f"it took longer than {TIMEOUT_SECONDS:.0f} s"
        if not out.exists():
            return [_message(f"{name} failed", f"Not shown: {reason}.", text)]
        if out.stat().st_size > _MOST_BYTES:
            return [_message(f"{name} failed", "Not shown: its output is too large.", text)]
        return _with_failure(name, json.loads(out.read_bytes()))


def _last_line(stderr: str) -> str:
    lines = stderr.strip().splitlines()
    return lines[-1].rstrip(".") if lines else ""


def _with_failure(name: str, cells: list[Cell]) -> list[Cell]:
    """Return the cells, headed by a message if one of them raised an exception."""
    errors = [
        one for cell in cells for one in cell.get("outputs", ()) if one["output_type"] == "error"
    ]
    if not errors:
        return cells
    told = f"{errors[0]['ename']}: {errors[0]['evalue']}. The cells after it were not run."
    return [_message(f"{name} failed", told), *cells]


def _message(heading: str, told: str, source: str = "") -> Cell:
    html = f'<h2>{escape(heading)}</h2><p class="notice warn">{escape(told)}</p>'
    cell = code_cell(source, ["section"])
    data = {"text/html": html, "text/plain": f"{heading}: {told}"}
    cell["outputs"] = [{"output_type": "display_data", "metadata": {}, "data": data}]
    return cell
