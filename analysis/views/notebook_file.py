"""Notebooks as source (Python with `# %%` above each cell) and as stored by Jupyter."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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
    """Return the cells of a text likewise."""
    body = _HEADER.sub("", text)
    return [
        _cell(part) for part in re.split(r"^(?=# %%)", body, flags=re.MULTILINE) if part.strip()
    ]


def _cell(text: str) -> Cell:
    mark, _, source = text.partition("\n")
    match = _MARK.fullmatch(mark)
    if not match:
        raise ValueError(
            f"{mark!r} does not start a cell: only [markdown] and tags=[...] may follow # %%"
        )
    tags, source = json.loads(match[2] or "[]"), source.strip("\n")
    if match[1]:
        source = re.sub(r"^# ?", "", source, flags=re.MULTILINE)
        return {"cell_type": "markdown", "metadata": {"tags": tags}, "source": source}
    return code_cell(source, tags)


def code_cell(source: str, tags: Sequence[str]) -> Cell:
    """Return a code cell without outputs."""
    metadata = {"tags": list(tags)}
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": metadata,
        "outputs": [],
        "source": source,
    }


def with_parameters(cells: Sequence[Cell], parameters: Mapping[str, Any]) -> list[Cell]:
    """Insert a cell that assigns these values after the one tagged `parameters`."""
    source = "".join(
        [
            "# Parameters\n",
            *(f"{name} = {json.dumps(value)}\n" for name, value in parameters.items()),
        ]
    )
    return [
        shown_cell
        for cell in cells
        for shown_cell in (
            [cell, code_cell(source, [INJECTED])]
            if PARAMETERS in cell["metadata"]["tags"]
            else [cell]
        )
    ]


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
    """Return the cells with their ids."""
    return [{**cell, "id": f"cell-{number:02}"} for number, cell in enumerate(cells, first)]


def text_of(document: Mapping[str, Any]) -> str:
    """Return a notebook's text as Jupyter writes it: sorted keys, each text as a list of lines."""
    stored = {**document, "cells": [_stored(cell) for cell in document["cells"]]}
    return json.dumps(stored, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def write(document: Mapping[str, Any], path: Path) -> None:
    """Write a notebook to a file."""
    path.write_text(text_of(document), encoding="utf-8")


def _stored(cell: Cell) -> Cell:
    stored = {**cell, "source": cell["source"].splitlines(keepends=True)}
    if "outputs" in cell:
        stored["outputs"] = [dict(_split(output)) for output in cell["outputs"]]
    return stored


def _split(output: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in output.items():
        if key == "data":
            yield key, {kind: text.splitlines(keepends=True) for kind, text in value.items()}
        else:
            yield key, value.splitlines(keepends=True) if key == "text" else value


def read(path: Path) -> dict[str, Any]:
    """Read a stored notebook, and join the lines of its texts."""
    document: dict[str, Any] = json.loads(path.read_bytes())
    for cell in document["cells"]:
        cell["source"] = "".join(cell["source"])
        for output in cell.get("outputs", ()):
            if "text" in output:
                output["text"] = "".join(output["text"])
            if "data" in output:
                output["data"] = {kind: "".join(text) for kind, text in output["data"].items()}
    return document
