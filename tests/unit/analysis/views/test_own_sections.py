"""A definition's own parts of a report: executed, failed, ended, or left out."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from analysis.views import render
from analysis.views.render import section_source
from tests.fixtures.runs import build_run

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


def cells_of(folder: Path, text: str) -> list[dict[str, Any]]:
    plan = {"sections": {"mine.py": text}}
    return render.section_cells(folder, plan, (), [hash_of(text)])


def html_of(cells: list[dict[str, Any]]) -> str:
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    return "\n".join(output.get("data", {}).get("text/html", "") for output in outputs)


def test_values_tables_figures_and_output_are_shown(folder: Path) -> None:
    markdown, table, figure, written = cells_of(folder, GOOD)
    assert markdown["source"] == "## What is *ours*"
    assert '<table class="dataframe pagecage">' in html_of([table])
    assert "our figure" in html_of([figure])
    assert figure["outputs"][0] == {
        "output_type": "stream",
        "name": "stdout",
        "text": "12 trials\n",
    }
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
    folder = build_run(
        tmp_path / "run", repeats=1, sections={"a.py": good, "b.py": bad, "c.py": "# %%\n5\n"}
    )
    render.render(folder, known_sections=[hash_of(text) for text in (good, bad)])
    page = (folder / "report.html").read_text()
    places = [page.index(text) for text in ("<h2>Ours</h2>", "<pre>42</pre>", "b.py failed")]
    assert places == sorted(places)
    assert page.index("Trials, host and reproduction") < places[0]
    assert "c.py was left out" in page
    cells = json.loads((folder / "report.ipynb").read_text())["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
