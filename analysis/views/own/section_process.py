"""Execution of one part of the report in this process, with the run in scope."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.style import drawing_style
from analysis.views.html import svg_html
from analysis.views.notebook import Results
from analysis.views.notebook_file import Cell, read_cells
from analysis.views.notebook_run import run_cells

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
