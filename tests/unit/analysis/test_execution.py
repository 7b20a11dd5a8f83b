"""The notebooks, executed with a kernel."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import pytest

from analysis.execution import NOTEBOOKS, article_notebooks, execute, main, run_notebook
from analysis.run_frames import STORED
from analysis.views.render import read_source
from pagecage.bundle.pack import SUFFIX
from pagecage.errors import EXIT_FAILED, PagecageError
from pagecage.linux.processes import is_running
from pagecage.linux.procfs import read_text
from pagecage.model.published_figures import read_rows
from pagecage.model.run_files import read_plan
from pagecage.process import spawn
from tests.builders.waiting import wait_until
from tests.fixtures.runs import ROOT, build_run
from tests.fixtures.small_runs import NAMES, unpacked

SOURCES = sorted(NOTEBOOKS.rglob("*.py"))
STORED_RUNS = sorted(path.name for path in STORED.glob(f"*{SUFFIX}"))


def outputs_of(document: Any, kind: str) -> Iterator[str]:
    """Yield the outputs of a MIME type."""
    for cell in document["cells"]:
        for output in cell.get("outputs", ()):
            if kind in output.get("data", {}):
                yield "".join(output["data"][kind])


def errors_of(document: Any) -> list[Any]:
    """Return errors, and what a library wrote to standard error."""
    outputs = [output for cell in document["cells"] for output in cell.get("outputs", ())]
    return [one for one in outputs if one["output_type"] == "error" or one.get("name") == "stderr"]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_is_a_script_and_is_read_as_jupytext_reads_it(source: Path) -> None:
    ast.parse(source.read_text())
    cells = read_source(source)
    theirs = jupytext.read(source).cells
    assert [cell["source"] for cell in cells] == [cell.source for cell in theirs]
    assert any("parameters" in cell["metadata"]["tags"] for cell in cells)


@pytest.mark.parametrize(
    "source", [path for path in SOURCES if path.stem != "report"], ids=lambda path: path.stem
)
def test_a_notebook_begins_with_its_title_and_uses_the_public_package(source: Path) -> None:
    first, *_ = read_source(source)
    assert first["cell_type"] == "markdown"
    assert first["source"].startswith("# ")
    assert "import analysis\n" in source.read_text()


def test_every_article_has_a_notebook() -> None:
    articles = {row.id.partition("-")[0] for row in read_rows(ROOT / "experiments")}
    assert set(article_notebooks()) == articles


def test_an_articles_notebook_is_left_out_without_its_runs() -> None:
    assert set(article_notebooks(["constrained-random"])) == {"003"}
    assert set(article_notebooks(["async-hazard", "smoke"])) == {"000", "001"}
    assert article_notebooks([]) == {}


def test_an_experiments_own_notebook_reads_runs_with_its_factors_only() -> None:
    def chosen(experiment: str, *factors: str) -> str:
        definition = {"factors": {name: ["a"] for name in factors}}
        return run_notebook({"experiment": experiment, "definition": definition}).stem

    own = ("cage", "source", "pattern")
    assert chosen("constrained-random", *own) == "constrained-random"
    assert chosen("constrained-random", "cage") == "run"
    assert chosen("smoke", "cage") == "run"
    assert chosen("../articles/003-mmap-tour", "cage") == "run"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "own.py"


@pytest.mark.timeout(120)
def test_a_failing_cell_is_an_error_that_names_it(source: Path, tmp_path: Path) -> None:
    source.write_text("# %% [markdown]\n# # Title\n\n# %%\n1\n\n# %%\n{}['gone']\n\n# %%\n3\n")
    with pytest.raises(PagecageError) as raised:
        execute(source, tmp_path, "mine")
    assert str(raised.value).startswith("cell 2 of own.py failed for mine: KeyError: 'gone'")
    assert raised.value.exit_code == EXIT_FAILED


@pytest.mark.timeout(120)
def test_a_kernel_reads_nothing_of_the_users_and_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    startup = home / ".ipython/profile_default/startup/00.py"
    kernel = home / ".local/share/jupyter/kernels/python3/kernel.json"
    for path, text in ((startup, "spoilt = 1"), (kernel, json.dumps({"argv": ["false"]}))):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    before = sorted(home.rglob("*"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source.write_text("# %% [markdown]\n# # Title\n\n# %%\n'spoilt' in globals()\n")
    document = execute(source, tmp_path, "mine")
    assert list(outputs_of(document, "text/plain")) == ["False"]
    assert document.cells[0]["source"] == "# mine"
    assert sorted(home.rglob("*")) == before


_ENDLESS = """# %% [markdown]
# # Title

# %%
import os, pathlib
pathlib.Path("kernel").write_text(str(os.getpid()))
while True:
    pass
"""
_EXECUTING = """import signal, sys
from pathlib import Path
from analysis.execution import execute
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    execute(Path(sys.argv[1]), Path(sys.argv[2]), "title")
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_an_interruption_ends_the_kernel(source: Path, tmp_path: Path) -> None:
    """nbclient has signal handlers of its own, after which its errors look like defects."""
    source.write_text(_ENDLESS)
    argv = [sys.executable, "-c", _EXECUTING, str(source), str(tmp_path)]
    process = spawn(argv, cwd=ROOT, stderr=subprocess.PIPE)
    wait_until(lambda: read_text(tmp_path / "kernel"), 60)
    kernel = int((tmp_path / "kernel").read_text())
    process.terminate()
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, b"")
    assert not is_running(kernel)


@pytest.mark.timeout(180)
def test_make_notebooks_writes_each_with_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = build_run(tmp_path / "20260101T000000Z-constrained-random-vm")
    assert main(tmp_path / "out", [str(run)]) == 0
    document = json.loads((tmp_path / "out" / f"{run.name}.ipynb").read_text())
    page = (tmp_path / "out" / f"{run.name}.html").read_text()
    assert not errors_of(document)
    assert document["cells"][0]["source"][0].strip() == f"# constrained-random · {run.name}"
    assert len(list(outputs_of(document, "image/png"))) == 2
    assert len(list(outputs_of(document, "text/html"))) >= 7
    assert page.count('src="data:image/png;base64,') == 2
    assert page.count('<pre class="source">') == page.count("<section")
    assert str(tmp_path) not in page
    assert capsys.readouterr().out == f"{tmp_path}/out/{run.name}.html\n"


def test_an_unknown_run_fails_the_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tmp_path, ["no-such-run"]) == 2
    assert "there is no run 'no-such-run'" in capsys.readouterr().err


def executed(folder: Path, source: Path) -> Any:
    document = execute(source, folder.parent, folder.name, source=folder.name)
    assert not errors_of(document)
    assert any("<table" in html for html in outputs_of(document, "text/html"))
    assert list(outputs_of(document, "image/png"))
    return document


@pytest.mark.timeout(180)
def test_the_notebook_for_every_run_reads_a_run_without_limits(tmp_path: Path) -> None:
    executed(unpacked("smoke", tmp_path / "run"), NOTEBOOKS / "run.py")


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_is_read_by_the_notebook_for_every_run(name: str, tmp_path: Path) -> None:
    folder = unpacked(name, tmp_path / "run")
    executed(folder, NOTEBOOKS / "run.py")
    if (own := run_notebook(read_plan(folder))).stem != "run":
        executed(folder, own)


@pytest.mark.long
@pytest.mark.parametrize("name", STORED_RUNS)
def test_every_stored_run_has_a_notebook_that_runs(name: str, tmp_path: Path) -> None:
    assert main(tmp_path, [str(STORED / name)]) == 0
    (page,) = tmp_path.glob("*.html")
    assert page.stem == name.removesuffix(SUFFIX)


@pytest.mark.long
@pytest.mark.parametrize("article", sorted(article_notebooks()))
def test_every_article_is_retold_from_the_stored_runs(article: str) -> None:
    document = execute(article_notebooks()[article], STORED, article, bundles=".")
    assert not errors_of(document)
    assert list(outputs_of(document, "image/png"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_page_shows_whole_lines_of_code(source: Path) -> None:
    """A published page is that wide; text is wrapped by the browser."""
    code = (line for line in source.read_text().splitlines() if not line.startswith("# "))
    assert [line for line in code if len(line) > 98] == []
