"""Execution of one part of the report in this process, with the run in scope."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from analysis.figures.style import drawing_style
from analysis.views.html import svg_html
from analysis.views.notebook import Results
from analysis.views.notebook_file import Cell, read_cells
from analysis.views.notebook_run import run_cells

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
        run_cells(cells, namespace, figure_outputs)
    out.write_text(json.dumps(cells), encoding="utf-8")


def section_source(text: str) -> list[Cell]:
    """Return the cells of a text in jupytext's percent format, with any titles and options."""
    return read_cells(_MARK.sub(_plain_mark, text))


def _plain_mark(mark: re.Match[str]) -> str:
    return "# %% [markdown]" if re.search(r"\[(markdown|md)\]", mark[1]) else "# %%"


def figure_outputs(value: object) -> Iterator[dict[str, Any]]:
    """Yield a value that is a figure, and those that are open in pyplot, which is then cleared."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    opened = [pyplot.figure(number) for number in pyplot.get_fignums()] if pyplot else []
    own = [value] if isinstance(value, Figure) and value not in opened else []
    for figure in [*own, *opened]:
        data = {"text/html": svg_html(figure, _alt(figure)), "text/plain": repr(figure)}
        yield {"output_type": "display_data", "metadata": {}, "data": data}
    if pyplot:
        pyplot.close("all")


def _alt(figure: Figure) -> str:
    titles = [axes.get_title() or axes.get_ylabel() for axes in figure.axes]
    return "; ".join(title for title in titles if title) or "a figure of the definition"
