"""Executed notebooks as pages of the site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import nbformat

from pagecage.report.export import markdown_text

_TITLE = re.compile(r"\s*<h1>.*?</h1>", re.DOTALL)
_HEADING = re.compile(r"\s*<h2>(.*?)</h2>", re.DOTALL)
_ABSENT = ("parameters", "injected-parameters")


def site_page(source: Path, title: str, downloads: str) -> Any:
    """Return the notebook at `source` as a page; `downloads` is a line of Markdown below its title.

    Cells without output are left out. The site collapses a cell's code.
    """
    notebook = nbformat.read(source, as_version=4)  # type: ignore[no-untyped-call]
    head = nbformat.v4.new_markdown_cell(f"# {title}\n\n{downloads}")  # type: ignore[no-untyped-call]
    notebook.cells = [head, *(cell for old in notebook.cells for cell in _cells(old))]
    return notebook


def _cells(cell: Any) -> Iterator[Any]:
    if cell.cell_type != "code":
        yield cell
        return
    if not cell.outputs or set(cell.metadata.get("tags", [])) & set(_ABSENT):
        return
    data = cell.outputs[0].get("data", {})
    text = _TITLE.sub("", data.get("text/html", ""), count=1)
    if match := _HEADING.match(text):
        yield nbformat.v4.new_markdown_cell(f"## {markdown_text(unescape(match[1]))}")  # type: ignore[no-untyped-call]
        text = text[match.end() :]
    if "text/html" in data:
        data["text/html"] = text
    cell.metadata["tags"] = ["remove-input"]
    yield cell
