"""Notebook files, execution of cells, and sections of a definition."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest

from analysis.views import render
from analysis.views.render import (
    INJECTED,
    SOURCE,
    notebook,
    read_source,
    run_cells,
    section_source,
    with_parameters,
    write,
)
from pagecage.model.json_codec import Json
from tests.fixtures.runs import build_run

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
    cells = read_source(path)
    found = [(cell["cell_type"], cell["source"], cell["metadata"]["tags"]) for cell in cells]
    theirs = jupytext.read(path).cells
    assert found == [(one.cell_type, one.source, one.metadata.get("tags", [])) for one in theirs]
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


def read_by_nbformat(path: Path) -> Any:
    read: Callable[..., Any] = nbformat.read
    document = read(path, as_version=4)
    nbformat.validate(document)
    return document


def test_a_notebook_is_stored_as_nbformat_stores_it(source: Path, tmp_path: Path) -> None:
    cells = with_parameters(read_source(source), {"who": "me"})
    assert run_cells(cells, {}) is None
    document, path = notebook(cells, {"title": "é"}), tmp_path / "made.ipynb"
    write(document, path)
    theirs = read_by_nbformat(path)
    writes: Callable[[Any], str] = nbformat.writes
    assert writes(theirs) + "\n" == path.read_text()
    assert json.loads(json.dumps(theirs)) == document
    kinds = [output["output_type"] for output in document["cells"][-1]["outputs"]]
    assert kinds == ["stream", "stream", "execute_result"]


def test_a_failed_notebook_is_one_for_nbformat_as_well(source: Path, tmp_path: Path) -> None:
    source.write_text("# %%\n1 / 0\n")
    cells = read_source(source)
    assert run_cells(cells, {})
    write(notebook(cells, {}), tmp_path / "failed.ipynb")
    theirs = read_by_nbformat(tmp_path / "failed.ipynb")
    assert theirs.cells[0].outputs[0].ename == "ZeroDivisionError"


def run_sources(*sources: str) -> tuple[list[Json], Exception | None]:
    """Run cells with these sources; return them, and the exception of the last one."""
    cells: list[Json] = [{"cell_type": "code", "source": one, "outputs": []} for one in sources]
    return cells, run_cells(cells, {"__name__": "__main__"})


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("1 + 1", {"text/plain": "2"}),
        ("'a'", {"text/plain": "'a'"}),
        ("None", None),
        ("x = 1", None),
        ("", None),
        ("# nothing", None),
        ("1 + 1\nx = 3", None),
        ("def f(x: 1): pass\nf.__annotations__", {"text/plain": "{'x': 1}"}),
        ("__name__", {"text/plain": "'__main__'"}),
    ],
)
def test_a_cell_shows_the_value_of_its_last_line(source: str, shown: dict[str, str] | None) -> None:
    (cell,), error = run_sources(source)
    assert error is None
    assert [output["data"] for output in cell["outputs"]] == ([shown] if shown else [])
    assert cell["execution_count"] == 1


def test_html_stands_beside_its_text() -> None:
    (_, cell), _ = run_sources("from analysis.views.html import Html", "Html('<b>1</b>')")
    (output,) = cell["outputs"]
    assert output["data"] == {"text/html": "<b>1</b>", "text/plain": "<HTML of 8 characters>"}
    assert (output["execution_count"], cell["execution_count"]) == (2, 2)


def test_output_is_captured_and_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    (cell,), _ = run_sources("import sys\nprint(1)\nprint(2, file=sys.stderr)\n3")
    assert [(out["name"], out["text"]) for out in cell["outputs"][:2]] == [
        ("stdout", "1\n"),
        ("stderr", "2\n"),
    ]
    assert cell["outputs"][2]["data"] == {"text/plain": "3"}
    assert capsys.readouterr() == ("", "")


def test_the_first_failure_ends_the_run_and_its_traceback_begins_in_the_cell() -> None:
    sources = ("def f():\n    return 1 / 0", "print('before')\nf()", "3")
    (first, failed, never), raised = run_sources(*sources)
    assert isinstance(raised, ZeroDivisionError)
    assert first["outputs"] == never["outputs"] == []
    stream, error = failed["outputs"]
    assert stream["text"] == "before\n"
    assert (error["ename"], error["evalue"]) == ("ZeroDivisionError", "division by zero")
    frames = [line.strip() for line in error["traceback"]]
    assert frames[:3] == [
        "Traceback (most recent call last):",
        'File "<cell 2>", line 2, in <module>',
        "f()",
    ]
    assert 'File "<cell 1>", line 2, in f' in frames
    assert "return 1 / 0" in frames


def test_a_syntax_error_is_a_failure_of_its_cell() -> None:
    (cell,), error = run_sources("%matplotlib inline")
    assert isinstance(error, SyntaxError)
    assert "%matplotlib inline" in "\n".join(cell["outputs"][0]["traceback"])


def test_markdown_is_left_alone() -> None:
    cells = [{"cell_type": "markdown", "source": "# 1"}]
    assert run_cells(cells, {}) is None
    assert cells == [{"cell_type": "markdown", "source": "# 1"}]


GOOD = """# ---
# jupyter: {}
# ---
# %% [markdown] Ours
# ## What is *ours*
# %% a table {"x": 1}
results.trial_df[["treatment", "read_seconds"]].head(2)
# %%
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.title("our figure")
print(len(run.trials), "trials")
# %%
open("written-by-a-section", "w").close()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_run(tmp_path_factory.mktemp("sections") / "run", repeats=1)


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def cells_of(folder: Path, text: str) -> list[Json]:
    plan = {"sections": {"mine.py": text}}
    return render.section_cells(folder, plan, (), [hash_of(text)])


def html_of(cells: list[Json]) -> str:
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    return "\n".join(output.get("data", {}).get("text/html", "") for output in outputs)


def test_values_tables_figures_and_output_are_shown(folder: Path) -> None:
    markdown, table, figure, written = cells_of(folder, GOOD)
    assert markdown["source"] == "## What is *ours*"
    assert '<table class="dataframe pagecage">' in html_of([table])
    assert "our figure" in html_of([figure])
    printed = {"output_type": "stream", "name": "stdout", "text": "12 trials\n"}
    assert figure["outputs"][0] == printed
    assert written["outputs"] == []
    assert (folder / "written-by-a-section").exists(), "a section works in the run's folder"
    (folder / "written-by-a-section").unlink()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# %%\n1 / 0\n# %%\n2\n", "ZeroDivisionError: division by zero"),
        ("# %%\nthis is no Python\n", "SyntaxError"),
        ("no cell\n", "Not shown"),
        ("# %%\nraise SystemExit(3)\n", "its process ended with status 3"),
        ("# %%\nimport os\nos._exit(0)\n", "its process ended with status 0"),
        ("# %%\nimport os\nos.abort()\n", "its process ended with status -6"),
        ("# %%\nimport time\ntime.sleep(600)\n", "it took longer than 3 s"),
        ("# %%\nimport sys\nsys.stdout.flush()\nrun.trials = ()\n", "FrozenInstanceError"),
    ],
)
def test_a_failure_is_a_message_in_its_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.setattr(render, "TIMEOUT_SECONDS", 3.0 if "sleep" in text else 300.0)
    shown = html_of(cells_of(folder, text))
    assert "<h2>mine.py failed</h2>" in shown
    assert says in shown


def test_code_that_was_not_accepted_is_text(folder: Path) -> None:
    text = "# %%\nopen('hacked', 'w')\n# <script>alert(1)</script>"
    plan = {"sections": {"<b>.py": text}}
    [cell] = render.section_cells(folder, plan, (), [hash_of("another text")])
    assert cell["source"] == text
    assert "&lt;b&gt;.py was left out" in html_of([cell])
    assert not list(folder.rglob("hacked"))


@pytest.mark.parametrize("wrong", [None, [], "x", {"a.py": 1}, {"a.py": None}])
def test_a_plan_with_other_sections_has_none(folder: Path, wrong: Any) -> None:
    assert render.section_cells(folder, {"sections": wrong}, (), []) == []


def test_a_lone_surrogate_has_a_hash(folder: Path) -> None:
    [cell] = render.section_cells(folder, {"sections": {"a.py": "\ud800"}}, (), [])
    assert "left out" in html_of([cell])


def test_marks_may_have_titles() -> None:
    cells = section_source("# %% [md] x\n# a\n# %% title\n1\n# %% tags=['x']\n2\n# %%\n3\n")
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "code", "code"]


def test_the_report_ends_with_the_sections(tmp_path: Path) -> None:
    good, bad = "# %% [markdown]\n# ## Ours\n# %%\n41 + 1\n", "# %%\n1 / 0\n"
    sections = {"a.py": good, "b.py": bad, "c.py": "# %%\n5\n"}
    folder = build_run(tmp_path / "run", repeats=1, sections=sections)
    render.render(folder, known_sections=[hash_of(text) for text in (good, bad)])
    page = (folder / "report.html").read_text()
    places = [page.index(text) for text in ("<h2>Ours</h2>", "<pre>42</pre>", "b.py failed")]
    assert places == sorted(places)
    assert page.index("command, versions and hashes") < places[0]
    assert "c.py was left out" in page
    cells = json.loads((folder / "report.ipynb").read_text())["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
