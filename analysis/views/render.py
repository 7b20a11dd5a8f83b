"""Reports as HTML and as notebooks, with the sections that a definition brings along."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.data.load import Run, planned_and_recorded
from analysis.figures.style import drawing_style
from analysis.views import notebook
from analysis.views.html import svg_html
from analysis.views.notebook import Cell, Results, code_cell, numbered, read_cells, run_cells
from pagecage.checkout import TOP
from pagecage.errors import EXIT_FAILED, PagecageError
from pagecage.process import OWN_PYTHON, run
from pagecage.whole_files import text_sha256, write_whole

_MOST_ROWS = 60
"""Rows of a longer table that are shown; those in the middle are left out."""
_MARK = re.compile(r"^# %%(.*)$", re.MULTILINE)


def run_section(run_path: Path, source: Path, out: Path, include: Sequence[str]) -> None:
    """Execute the cells of a section in the run's folder, and write them with their outputs.

    In scope are `run`, the loaded run, and `results` with its data frames. An exception of a cell
    is one of its outputs.
    """
    results = Results(run_path, include)
    cells = section_source(source.read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {"__name__": "__main__", "run": results.run, "results": results}
    with chdir(run_path), drawing_style():
        run_cells(cells, namespace, section_outputs)
    out.write_text(json.dumps(cells), encoding="utf-8")


def section_source(text: str) -> list[Cell]:
    """Return the cells of a text in jupytext's percent format, with any titles and options."""
    return read_cells(_MARK.sub(_plain_mark, text))


def _plain_mark(mark: re.Match[str]) -> str:
    return "# %% [markdown]" if re.search(r"\[(markdown|md)\]", mark[1]) else "# %%"


def section_outputs(value: object) -> Iterator[dict[str, Any]]:
    """Yield the figures that are open in pyplot, which is then cleared, and a figure or table."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    opened = [pyplot.figure(number) for number in pyplot.get_fignums()] if pyplot else []
    own = [value] if isinstance(value, Figure) and value not in opened else []
    for figure in [*own, *opened]:
        yield _output(svg_html(figure, _alt(figure)), repr(figure))
    if pyplot:
        pyplot.close("all")
    if isinstance(value, pd.DataFrame):
        table = value.to_html(classes="pagecage", border=0, max_rows=_MOST_ROWS, justify="left")
        yield _output(f'<div class="scroll">{table}</div>', repr(value))


def _output(html: str, text: str) -> dict[str, Any]:
    data = {"text/html": html, "text/plain": text}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def _alt(figure: Figure) -> str:
    titles = [axes.get_title() or axes.get_ylabel() for axes in figure.axes]
    return "; ".join(title for title in titles if title) or "a figure of the definition"


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


HERE = TOP / "analysis"
SOURCE = HERE / "notebooks" / "experiment.py"
TEMPLATES = HERE / "templates" / "offline"
NAME, PAGE, FAILED = "report.ipynb", "report.html", "report.failed.ipynb"


def render(
    run_path: Path, include: Sequence[str] = (), known_sections: Collection[str] = ()
) -> Run:
    """Execute the notebook on a run, and export it into the run's folder; return the loaded run.

    `include` is passed to Results. `known_sections` are the hashes of the definition's own sections
    that are executed; the others are left out. An existing report is replaced only by a complete
    one. Raises PagecageError if the folder is not a run, or if a cell fails; the message names the
    notebook with the failure.
    """
    plan, _ = planned_and_recorded(run_path)
    title = f"{plan['experiment']} · {plan['run_id']}"
    document, run = _execute(run_path, title, {"run_dir": ".", "include": list(include)})
    document["cells"] += numbered(
        section_cells(run_path, plan, include, known_sections), len(document["cells"]) + 1
    )
    page = export(document, title)
    write_whole(run_path / NAME, notebook.text_of(document))
    write_whole(run_path / PAGE, page)
    return run


def _execute(
    run_path: Path, title: str, parameters: Mapping[str, Any]
) -> tuple[dict[str, Any], Run]:
    """Return the executed notebook and its run.

    It is executed in the run's folder, so that no path of this machine appears in it. Raises a
    cell's PagecageError unchanged; for any other exception, raises one that names the kept
    notebook.
    """
    import analysis.views.notebook  # noqa: F401 - imported here, not in the run's folder, whose matplotlibrc would be read

    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = notebook.with_parameters(notebook.read_source(SOURCE), parameters)
    start = datetime.now(UTC)
    with chdir(run_path):
        error = run_cells(cells, namespace)
    ran = _papermill(parameters, start, datetime.now(UTC), error)
    document = notebook.notebook(cells, {"papermill": ran, "title": title})
    if isinstance(error, PagecageError):  # an invalid record: the message is meant for the user
        raise error
    if error:
        notebook.write(document, run_path / FAILED)
        what = f"the report failed: {type(error).__name__}: {error}"
        raise PagecageError(what, f"read {run_path / FAILED}", EXIT_FAILED) from None
    return document, replace(namespace["results"].run, path=run_path)


def _papermill(
    parameters: Mapping[str, Any], start: datetime, end: datetime, error: Exception | None
) -> dict[str, Any]:
    """Return the execution's metadata under papermill's keys, where other tools find parameters."""
    times = {
        "start_time": start.isoformat(),
        "end_time": end.isoformat(),
        "duration": (end - start).total_seconds(),
    }
    metadata = {"parameters": dict(parameters), "exception": True if error else None, **times}
    return {**metadata, "input_path": SOURCE.name, "output_path": NAME}


def export(document: Mapping[str, Any], title: str) -> str:
    """Return an executed notebook as one HTML page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markdown_it import MarkdownIt

    from analysis.views.html import PAGE_POLICY  # late: it imports matplotlib

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["markdown"] = MarkdownIt().render
    return environment.get_template("index.html.j2").render(
        cells=document["cells"], title=title, policy=PAGE_POLICY
    )
