"""Reports as HTML and as notebooks, with the sections that a definition brings along."""

from __future__ import annotations

import ast
import json
import linecache
import platform
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.data.load import Run, planned_and_recorded
from analysis.figures.style import drawing_style
from analysis.views.html import PAGE_POLICY, SKIP_LINK, svg_html
from analysis.views.notebook import Results
from pagecage.checkout import TOP
from pagecage.errors import EXIT_FAILED, PagecageError
from pagecage.process import OWN_PYTHON, run
from pagecage.whole_files import text_sha256, write_whole

Cell = dict[str, Any]
"""A cell with the keys of nbformat 4.5; its texts are strings, which `write` splits into lines."""
PARAMETERS, INJECTED = "parameters", "injected-parameters"
"""papermill's tags of the cell with default values, and of the cell with this notebook's values."""
_HEADER = re.compile(r"\A# ---\n(#.*\n)*?# ---\n")
_MARK = re.compile(r"# %%( \[markdown\])?(?: tags=(\[.*\]))?")


def read_source(path: Path) -> list[Cell]:
    """Read the cells of a source in jupytext's percent format.

    Raises ValueError if a cell mark has anything but tags.
    """
    return read_cells(path.read_text(encoding="utf-8"))


def read_cells(text: str) -> list[Cell]:
    cells = []
    for part in re.split(r"^(?=# %%)", _HEADER.sub("", text), flags=re.MULTILINE):
        if not part.strip():
            continue
        mark, _, source = part.partition("\n")
        match = _MARK.fullmatch(mark)
        if not match:
            raise ValueError(
                f"{mark!r} does not start a cell: only [markdown] and tags=[...] may follow # %%"
            )
        tags, source = json.loads(match[2] or "[]"), source.strip("\n")
        if match[1]:
            source = re.sub(r"^# ?", "", source, flags=re.MULTILINE)
            cell = {"cell_type": "markdown", "metadata": {"tags": tags}, "source": source}
        else:
            cell = code_cell(source, tags)
        cells.append(cell)
    return cells


def code_cell(source: str, tags: Sequence[str]) -> Cell:
    about = {"cell_type": "code", "execution_count": None, "metadata": {"tags": list(tags)}}
    return {**about, "outputs": [], "source": source}


def with_parameters(cells: Sequence[Cell], parameters: Mapping[str, Any]) -> list[Cell]:
    """Insert a cell that assigns these values after the one tagged `parameters`."""
    lines = (f"{name} = {json.dumps(value)}\n" for name, value in parameters.items())
    found = []
    for cell in cells:
        found.append(cell)
        if PARAMETERS in cell["metadata"]["tags"]:
            found.append(code_cell("".join(["# Parameters\n", *lines]), [INJECTED]))
    return found


def notebook(cells: Sequence[Cell], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document that Jupyter opens (nbformat 4.5)."""
    language = {
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "pygments_lexer": "ipython3",
    }
    return {
        "cells": numbered(cells),
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {**language, "version": platform.python_version()},
            **metadata,
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def numbered(cells: Sequence[Cell], first: int = 1) -> list[Cell]:
    return [{**cell, "id": f"cell-{number:02}"} for number, cell in enumerate(cells, first)]


def text_of(document: Mapping[str, Any]) -> str:
    """Return a notebook as Jupyter writes it: sorted keys, each text as a list of lines."""

    def stored(value: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(value)
        for key, part in value.items():
            if key in ("source", "text"):
                found[key] = part.splitlines(keepends=True)
            elif key == "outputs":
                found[key] = [stored(output) for output in part]
            elif key == "data":
                found[key] = {kind: text.splitlines(keepends=True) for kind, text in part.items()}
        return found

    whole = {**document, "cells": [stored(cell) for cell in document["cells"]]}
    return json.dumps(whole, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def write(document: Mapping[str, Any], path: Path) -> None:
    path.write_text(text_of(document), encoding="utf-8")


_OUR_FRAMES = 2
"""Frames of a traceback that belong to this module: `run_cells` and `_value`."""


def run_cells(
    cells: Sequence[Cell],
    namespace: dict[str, Any],
    more_outputs: Callable[[object], Iterable[Cell]] = lambda _: (),
) -> Exception | None:
    """Run the code cells up to the first that fails; return its exception, or None.

    `more_outputs` gets the value of each cell, and returns outputs that replace it, such as
    figures.
    """
    code_cells = [cell for cell in cells if cell["cell_type"] == "code"]
    for number, cell in enumerate(code_cells, 1):
        streams = {"stdout": StringIO(), "stderr": StringIO()}
        outputs: list[Cell] = []
        raised = None
        with redirect_stdout(streams["stdout"]), redirect_stderr(streams["stderr"]):
            try:
                value = _value(cell["source"], f"<cell {number}>", namespace)
                outputs = [*more_outputs(value)] or _outputs_of(value, number)
            except Exception as failure:  # noqa: BLE001 - whatever a cell raises is its output
                raised = failure
        cell["execution_count"] = number
        cell["outputs"] = [
            {"output_type": "stream", "name": name, "text": text}
            for name, stream in streams.items()
            if (text := stream.getvalue())
        ] + outputs
        if raised:
            frames = raised.__traceback__
            for _ in range(_OUR_FRAMES):
                frames = frames.tb_next if frames and frames.tb_next else frames
            lines = "".join(traceback.format_exception(type(raised), raised, frames)).splitlines()
            error = {"ename": type(raised).__name__, "evalue": str(raised), "traceback": lines}
            cell["outputs"].append({"output_type": "error", **error})
            return raised
    return None


def _outputs_of(value: object, number: int) -> list[Cell]:
    if value is None:
        return []
    as_html = getattr(value, "_repr_html_", lambda: None)()
    data = {**({"text/html": as_html} if as_html is not None else {}), "text/plain": repr(value)}
    about = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
    return [{**about, "data": data}]


def _value(source: str, name: str, namespace: dict[str, Any]) -> object:
    """Execute the source, which tracebacks show; return the value of its last expression."""
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec", dont_inherit=True), namespace)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), namespace)


_MOST_ROWS = 60
"""Rows of a longer table that are shown; those in the middle are left out."""
_ANY_MARK = re.compile(r"^# %%(.*)$", re.MULTILINE)


def run_section(run_path: Path, source: Path, out: Path, include: Sequence[str]) -> None:
    """Execute the cells of a section in the run's folder, and write them with their outputs.

    In scope are `run`, the loaded run, and `results` with its data frames.
    """
    results = Results(run_path, include)
    cells = section_source(source.read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {"__name__": "__main__", "run": results.run, "results": results}
    with chdir(run_path), drawing_style():
        run_cells(cells, namespace, _section_outputs)
    out.write_text(json.dumps(cells), encoding="utf-8")


def _section_outputs(value: object) -> Iterator[Cell]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    opened = [pyplot.figure(number) for number in pyplot.get_fignums()] if pyplot else []
    returned = [value] if isinstance(value, Figure) and value not in opened else []
    for figure in [*returned, *opened]:
        titles = (axes.get_title() or axes.get_ylabel() for axes in figure.axes)
        alt = "; ".join(filter(None, titles)) or "a figure of the definition"
        yield _output(svg_html(figure, alt), repr(figure))
    if pyplot:
        pyplot.close("all")
    if isinstance(value, pd.DataFrame):
        table = value.to_html(classes="pagecage", border=0, max_rows=_MOST_ROWS, justify="left")
        yield _output(f'<div class="scroll">{table}</div>', repr(value))


def _output(html: str, text: str) -> Cell:
    data = {"text/html": html, "text/plain": text}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def section_source(text: str) -> list[Cell]:
    """Return the cells of a text in the percent format, with any titles and options."""

    def plain(mark: re.Match[str]) -> str:
        return "# %% [markdown]" if re.search(r"\[(markdown|md)\]", mark[1]) else "# %%"

    return read_cells(_ANY_MARK.sub(plain, text))


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
    sections = plan.get("sections") or {}
    for name, text in sections.items() if isinstance(sections, dict) else ():
        if isinstance(text, str) and text_sha256(text) in known:
            cells += _executed(run_path, str(name), text, include)
        elif isinstance(text, str):
            cells += [_message(f"{name} was left out", _LEFT_OUT, text)]
    return cells


def _executed(run_path: Path, name: str, text: str, include: Sequence[str]) -> list[Cell]:
    with tempfile.TemporaryDirectory(prefix="pagecage-section-") as scratch:
        source, out = Path(scratch) / "section.py", Path(scratch) / "cells.json"
        source.write_text(text, encoding="utf-8")
        argv: list[str | Path] = [sys.executable, "-m", "analysis", "section"]
        argv += [run_path.resolve(), source, out, *(f"--include={one}" for one in include)]
        environment = {**OWN_PYTHON, "MPLBACKEND": "svg", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = run(argv, check=False, cwd=TOP, timeout_seconds=TIMEOUT_SECONDS, env=environment)
            last = (done.stderr.strip().splitlines() or [""])[-1].rstrip(".")
            reason = last or f"its process ended with status {done.status}"
        except PagecageError:
            reason = f"it took longer than {TIMEOUT_SECONDS:.0f} s"
        if not out.exists():
            return [_message(f"{name} failed", f"Not shown: {reason}.", text)]
        if out.stat().st_size > _MOST_BYTES:
            return [_message(f"{name} failed", "Not shown: its output is too large.", text)]
        cells: list[Cell] = json.loads(out.read_bytes())
    outputs = (output for cell in cells for output in cell.get("outputs", ()))
    if error := next((one for one in outputs if one["output_type"] == "error"), None):
        told = f"{error['ename']}: {error['evalue']}. The cells after it were not run."
        return [_message(f"{name} failed", told), *cells]
    return cells


def _message(heading: str, told: str, source: str = "") -> Cell:
    html = f'<h2>{escape(heading)}</h2><p class="notice warn">{escape(told)}</p>'
    return {**code_cell(source, ["section"]), "outputs": [_output(html, f"{heading}: {told}")]}


HERE = Path(__file__).resolve().parents[1]
SOURCE = HERE / "notebooks" / "report.py"
TEMPLATES = HERE / "templates" / "offline"
NAME, PAGE, FAILED = "report.ipynb", "report.html", "report.failed.ipynb"


def render(
    run_path: Path, include: Sequence[str] = (), known_sections: Collection[str] = ()
) -> Run:
    """Execute the notebook on a run, and export it into the run's folder; return the loaded run.

    `known_sections` are the hashes of the sections that are executed. Only a complete report
    replaces another. Raises PagecageError if the folder is not a run, or if a cell fails.
    """
    plan, _ = planned_and_recorded(run_path)
    title = f"{plan['experiment']} · {plan['run_id']}"
    namespace: dict[str, Any] = {"__name__": "__main__"}
    parameters = {"run_dir": ".", "include": list(include)}
    cells = with_parameters(read_source(SOURCE), parameters)
    start = datetime.now(UTC)
    with chdir(run_path):  # so that no path of this machine appears in it
        error = run_cells(cells, namespace)
    end = datetime.now(UTC)
    ran = {
        "parameters": parameters,
        "exception": True if error else None,
        "start_time": start.isoformat(),
        "end_time": end.isoformat(),
        "duration": (end - start).total_seconds(),
        "input_path": SOURCE.name,
        "output_path": NAME,
    }
    document = notebook(cells, {"papermill": ran, "title": title})
    if isinstance(error, PagecageError):  # an invalid record: the message is meant for the user
        raise error
    if error:
        write(document, run_path / FAILED)
        what = f"the report failed: {type(error).__name__}: {error}"
        raise PagecageError(what, f"read {run_path / FAILED}", EXIT_FAILED) from None
    sections = section_cells(run_path, plan, include, known_sections)
    document["cells"] += numbered(sections, len(document["cells"]) + 1)
    page = export(document, title)
    write_whole(run_path / NAME, text_of(document))
    write_whole(run_path / PAGE, page)
    loaded: Run = namespace["results"].run
    return replace(loaded, path=run_path)


def export(document: Mapping[str, Any], title: str, *, with_code: bool = False) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markdown_it import MarkdownIt

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["markdown"] = MarkdownIt().render
    return environment.get_template("index.html.j2").render(
        cells=document["cells"],
        title=title,
        policy=PAGE_POLICY,
        skip_link=SKIP_LINK,
        with_code=with_code,
    )
