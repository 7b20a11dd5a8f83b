"""Execution of a notebook's code cells in this process, in order and in one namespace.

Neither IPython nor a kernel is used: a cell is Python without magics, and shows the value of the
expression on its last line.
"""

from __future__ import annotations

import ast
import linecache
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

from analysis.views.notebook_file import Cell

MoreOutputs = Callable[[object], Iterable[Cell]]
"""Outputs of a cell that replace its value, such as figures."""
_OUR_FRAMES = 2
"""Frames of a traceback that belong to this module: `_run_cell` and `_value`."""


def no_outputs(_value: object) -> Iterable[Cell]:
    """Return no outputs besides a cell's value."""
    return ()


def run_cells(
    cells: Sequence[Cell], namespace: dict[str, Any], more_outputs: MoreOutputs = no_outputs
) -> Exception | None:
    """Run the code cells up to the first that fails.

    Returns that cell's exception, which is also stored in its outputs, or None. `more_outputs`
    gets the value of each cell.
    """
    code_cells = [cell for cell in cells if cell["cell_type"] == "code"]
    for number, cell in enumerate(code_cells, 1):
        if error := _run_cell(cell, number, namespace, more_outputs):
            return error
    return None


def _run_cell(
    cell: Cell, number: int, namespace: dict[str, Any], more_outputs: MoreOutputs
) -> Exception | None:
    stdout, stderr = StringIO(), StringIO()
    more: list[Cell] = []
    shown: dict[str, str] = {}
    raised = None
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            value = _value(cell["source"], f"<cell {number}>", namespace)
            more = list(more_outputs(value))
            shown = {} if more else _shown(value)
        except Exception as error:  # noqa: BLE001 - whatever a cell raises is its output
            raised = error
    cell["execution_count"] = number
    cell["outputs"] = [*_streams(stdout=stdout.getvalue(), stderr=stderr.getvalue())]
    if shown:
        cell["outputs"].append(
            {
                "output_type": "execute_result",
                "execution_count": number,
                "metadata": {},
                "data": shown,
            }
        )
    cell["outputs"] += more
    if raised:
        cell["outputs"].append(_error(raised))
    return raised


def _value(source: str, name: str, namespace: dict[str, Any]) -> object:
    """Execute the source, and return the value of its last expression, or None.

    The source is registered with linecache, so that tracebacks show its lines.
    """
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec", dont_inherit=True), namespace)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), namespace)


def _shown(value: object) -> dict[str, str]:
    """Return a value by media type; empty for None."""
    if value is None:
        return {}
    as_html = getattr(value, "_repr_html_", lambda: None)()
    return {**({"text/html": as_html} if as_html is not None else {}), "text/plain": repr(value)}


def _streams(**texts: str) -> Iterator[dict[str, str]]:
    for name, text in texts.items():
        if text:
            yield {"output_type": "stream", "name": name, "text": text}


def _error(error: Exception) -> dict[str, Any]:
    """Return an exception as Jupyter stores it; the traceback begins in the cell."""
    frames = error.__traceback__
    for _ in range(_OUR_FRAMES):
        frames = frames.tb_next if frames and frames.tb_next else frames
    lines = "".join(traceback.format_exception(type(error), error, frames)).splitlines()
    return {
        "output_type": "error",
        "ename": type(error).__name__,
        "evalue": str(error),
        "traceback": lines,
    }
