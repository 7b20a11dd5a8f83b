"""Tests of notebook files against jupytext and nbformat, which use the same formats."""

from __future__ import annotations

from pathlib import Path

import jupytext
import nbformat
import pytest

from analysis.views.notebook import (
    INJECTED,
    notebook,
    read,
    read_source,
    run_cells,
    with_parameters,
    write,
)
from analysis.views.render import SOURCE

CELLS = """# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% tags=["parameters"]
who = "nobody"

# %% [markdown]
# ## Heading
#
# Two lines – of
# text

# %% tags=["optional", "late"]
import sys

print("one\\ntwo")
print("three", file=sys.stderr)
who
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.py"
    path.write_text(CELLS)
    return path


@pytest.mark.parametrize("is_ours", [True, False])
def test_the_source_is_read_as_jupytext_reads_it(is_ours: bool, source: Path) -> None:
    path = SOURCE if is_ours else source
    found = [
        (cell["cell_type"], cell["source"], cell["metadata"]["tags"]) for cell in read_source(path)
    ]
    theirs = jupytext.read(path).cells
    assert found == [
        (cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in theirs
    ]
    assert len(found) >= 3


@pytest.mark.parametrize(
    "mark", ["# %% a title", "# %% [raw]", '# %% tags=["a"] key=1', "# %%time"]
)
def test_a_mark_that_is_not_understood_is_refused(mark: str, source: Path) -> None:
    source.write_text(f"{mark}\n1\n")
    with pytest.raises(ValueError, match="does not start a cell"):
        read_source(source)


def test_parameters_stand_below_their_defaults_and_take_their_place(source: Path) -> None:
    cells = with_parameters(read_source(source), {"who": 'a "b" \\ ü', "names": ["x"]})
    namespace: dict[str, object] = {}
    assert run_cells(cells, namespace) is None
    assert [cell["metadata"]["tags"] for cell in cells[:2]] == [["parameters"], [INJECTED]]
    assert (namespace["who"], namespace["names"]) == ('a "b" \\ ü', ["x"])


def test_a_notebook_is_stored_as_nbformat_stores_it(source: Path, tmp_path: Path) -> None:
    cells = with_parameters(read_source(source), {"who": "me"})
    assert run_cells(cells, {}) is None
    document, path = notebook(cells, {"title": "é"}), tmp_path / "made.ipynb"
    write(document, path)
    theirs = nbformat.read(path, as_version=4)
    nbformat.validate(theirs)
    assert nbformat.writes(theirs) + "\n" == path.read_text()
    assert read(path) == document
    assert [output["output_type"] for output in document["cells"][-1]["outputs"]] == [
        "stream"
    ] * 2 + ["execute_result"]


def test_a_failed_notebook_is_one_for_nbformat_as_well(source: Path, tmp_path: Path) -> None:
    source.write_text("# %%\n1 / 0\n")
    cells = read_source(source)
    assert run_cells(cells, {})
    write(notebook(cells, {}), tmp_path / "failed.ipynb")
    theirs = nbformat.read(tmp_path / "failed.ipynb", as_version=4)
    nbformat.validate(theirs)
    assert theirs.cells[0].outputs[0].ename == "ZeroDivisionError"
