"""Tests of the report page, and of the same report on a terminal."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import matplotlib
import pytest

from analysis.data.load import Run, load_run
from analysis.execution import execute
from analysis.views.render import SOURCE
from pagecage.cli.show import report
from pagecage.model.json_codec import Json
from pagecage.process import run
from tests.builders.command_line import called, pagecage_argv
from tests.builders.pages import loads_of
from tests.fixtures.runs import DEFINITION, ROOT, build_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def noisy(record: Json) -> None:
        if record["trial_id"].endswith("uncaged-unloaded-random-r2"):
            record["cache"]["resident_bytes_before"] = 4096
        if record["trial_id"].endswith("tenth-unloaded-random-r1"):
            record["collectors"]["iostat"] = {"status": "failed", "reason": "it <died>"}

    folder = build_run(tmp_path_factory.mktemp("report") / "run", noisy)
    assert called(["show", folder, "--html"]) == 0
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text()


def test_the_page_loads_nothing(page: str) -> None:
    assert loads_of(page) == []
    assert "<script" not in page


@pytest.mark.parametrize(
    "bad",
    [
        '<img src="https://example.org/a.png">',
        '<link rel="stylesheet" href="a.css">',
        '<p style="background: url(http://example.org/a)">',
        "<style>@import 'a.css';</style>",
        '<svg><image xlink:href="http://example.org/a.png"/></svg>',
    ],
)
def test_a_page_that_loads_something_would_be_caught(bad: str) -> None:
    assert loads_of(bad)


def test_every_claim_is_in_the_page(page: str) -> None:
    for claim in DEFINITION["claims"]:
        assert f">{claim['id']}<" in page


def test_the_strip_stands_at_the_top_and_story_and_limitations_are_folded(page: str) -> None:
    top, _, rest = page.partition("<h2>Results</h2>")
    assert DEFINITION["question"] in top
    assert '<p class="result">Random reads with a tenth of the memory: ' in top
    assert "35 of 36 trials, n 2 to 3, emulated CPU" in top
    assert "<details>" not in top
    limitations = rest[rest.index("size, host and limitations") :]
    assert "Emulated." in limitations
    assert "1 of 36 trials are excluded" in limitations
    assert "iostat is incomplete" in limitations
    assert "why this was measured" in rest


def test_a_diagnosis_is_given_once_for_each_cause(page: str) -> None:
    found = page[page.index("<h2>Diagnosis</h2>") :]
    table = found[: found.index("</table>")]
    causes = re.findall(r'<th scope="row">([^<]*)<small', table)
    assert len(causes) == len(set(causes)) == table.count('<th scope="row">') > 1


def test_only_signs_that_occur_are_explained(page: str) -> None:
    [caption] = re.findall(r"<caption>time for all data; ([^<]*)</caption>", page)
    assert "killed: for want of memory" in caption
    assert "≈: scaled to all data" in caption
    assert "wrong:" not in caption
    assert "dark is slow" in caption


def test_tables_have_captions_and_scopes_and_the_page_a_skip_link(page: str) -> None:
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    assert tables
    assert all("<caption" in table for table in tables)
    assert not re.search(r"<th(?![^>]*scope=)[^>]*>", "".join(tables).replace("<thead", ""))
    assert page.index('<a class="skip" href="#main">') < page.index('<main id="main">')


def test_texts_of_records_are_escaped(page: str) -> None:
    assert "it &lt;died&gt;" in page
    assert "it <died>" not in page


def test_all_figures_are_there_and_take_the_pages_ink(page: str) -> None:
    assert page.count("<figure>") == 6
    assert page.count("<svg") == 6
    assert page.count('<figure class="bars">') == 1
    assert "#010203" not in page
    assert "currentColor" in page


def test_the_command_seed_and_hashes_are_there(page: str, folder: Path) -> None:
    digest = json.loads((folder / "plan.json").read_text())["plan_sha256"]
    for text in ("pagecage run constrained-random --host vm", "20261121", digest, "0123abcd"):
        assert text in page


def test_the_page_contains_no_path_of_this_machine(page: str, folder: Path) -> None:
    for text in (page, (folder / "report.ipynb").read_text()):
        assert str(folder.parent) not in text
        assert str(ROOT) not in text
        assert "/tmp/" not in text


def test_the_notebook_was_executed_and_has_no_error(folder: Path) -> None:
    notebook = json.loads((folder / "report.ipynb").read_text())
    outputs = [out for cell in notebook["cells"] for out in cell.get("outputs", [])]
    assert len(outputs) >= 10
    assert not [out for out in outputs if out["output_type"] == "error"]


@pytest.mark.slow
def test_a_report_can_be_made_again_and_is_the_same(folder: Path, page: str) -> None:
    notebook = json.loads((folder / "report.ipynb").read_text())
    assert called(["show", folder, "--html"]) == 0
    assert (folder / "report.html").read_text() == page
    assert json.loads((folder / "report.ipynb").read_text())["cells"] == notebook["cells"]


@pytest.mark.slow
def test_a_kernel_makes_the_same_of_the_notebook_and_of_other_parameters(
    folder: Path, tmp_path: Path
) -> None:
    run_folder = shutil.copytree(folder, tmp_path / "run")
    parameters = {"run_dir": str(run_folder), "include": ["cache_state_reached"]}
    again = execute(SOURCE, folder, folder.name, **parameters)
    assert called(["show", run_folder, "--html", "--include", "cache_state_reached"]) == 0
    ours = json.loads((run_folder / "report.ipynb").read_text())["cells"]
    assert [shown(cell) for cell in again.cells] == [shown(cell) for cell in ours]
    assert shown(ours[2]) != shown(json.loads((folder / "report.ipynb").read_text())["cells"][2])


def shown(cell: Json) -> list[str]:
    """Return the HTML outputs of a cell; parameter cells have none."""
    return ["".join(output["data"]["text/html"]) for output in cell.get("outputs", ())]


SPY = """
import sys
seen = []
STARTS = ("subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system", "socket.")
def spy(event, arguments):
    if event.startswith(STARTS) or (event == "open" and str(arguments[0]).startswith(sys.argv[2])):
        seen.append(f"{event} {arguments}")
sys.addaudithook(spy)
from pathlib import Path
from analysis.views.render import render
render(Path(sys.argv[1]))
slow = {"IPython", "ipykernel", "jupyter_core", "nbconvert", "nbformat", "papermill"}
slow |= {"scipy", "traitlets", "zmq"}
print(*seen, *(slow & set(sys.modules)), sep="\\n", file=sys.stderr)
"""


def test_a_report_starts_no_process_and_touches_no_settings_of_the_users(
    folder: Path, tmp_path: Path
) -> None:
    for name in (".ipython/profile_default/startup/00.py", ".jupyter/jupyter_config.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("raise SystemExit('read')")
    home = {"HOME": str(tmp_path), "MPLCONFIGDIR": matplotlib.get_cachedir()}
    home |= {f"XDG_{name}_HOME": "" for name in ("CACHE", "CONFIG", "DATA")}
    done = run([sys.executable, "-c", SPY, folder, tmp_path], cwd=ROOT, env=home)
    assert done.stderr.strip() == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == [".ipython", ".jupyter"]


def test_a_matplotlibrc_in_the_runs_folder_changes_nothing(
    folder: Path, page: str, tmp_path: Path
) -> None:
    stranger = shutil.copytree(folder, tmp_path / folder.name)
    (stranger / "matplotlibrc").write_text("axes.linewidth: 17\n")
    run(pagecage_argv("show", str(stranger), "--html"), cwd=ROOT)
    assert (stranger / "report.html").read_text() == page


@pytest.mark.parametrize(
    "form",
    [
        [],
        ["--json"],
        *(pytest.param([form], marks=pytest.mark.long) for form in ("--csv", "--markdown")),
    ],
)
def test_the_page_and_the_output_of_show_load_the_run_once(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    form: list[str],
) -> None:
    loaded: list[Path] = []

    def load(path: Path) -> Run:
        loaded.append(path)
        return load_run(path)

    assert called(["show", folder, *form]) == 0
    rendered_output = capsys.readouterr().out
    for module in ("analysis.run_frames", "analysis.results"):
        monkeypatch.setattr(f"{module}.load_run", load)
    (folder / "report.html").unlink()
    report(folder, *(option.removeprefix("--") for option in form))
    assert capsys.readouterr().out == rendered_output
    assert (folder / "report.html").exists()
    assert len(loaded) == 1


def test_an_error_in_a_cell_keeps_its_hint_and_status(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from analysis.views import render

    monkeypatch.setattr(render, "SOURCE", tmp_path / "source.py")
    refusal = 'from pagecage.errors import PagecageError\nraise PagecageError("a", "b", 3)'
    render.SOURCE.write_text(f"# %%\n{refusal}\n")
    assert called(["show", folder, "--html"]) == 3
    assert capsys.readouterr().err == "making the report ...\npagecage: no report: a\n  fix: b\n"
    assert not (folder / "report.failed.ipynb").exists()


def test_the_terminal_has_strip_and_table_and_the_rest_if_asked(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert called(["show", folder]) == 0
    text = capsys.readouterr().out
    assert "killed" in text
    assert "35 of 36 trials" in text
    assert "003-" not in text
    assert called(["show", folder, "--claims"]) == 0
    claims = capsys.readouterr().out
    assert sum(line.startswith("003-") for line in claims.splitlines()) == 20
    monkeypatch.setattr("pagecage.cli.show.is_verbose", lambda: True)
    assert called(["show", folder]) == 0
    whole = capsys.readouterr().out
    assert "35 included, 1 not" in whole
    assert sum(line.startswith("003-") for line in whole.splitlines()) == 20


def test_json_output_is_only_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(["show", folder, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (len(data["cells"]), len(data["claims"]), len(data["trials"])) == (12, 20, 36)
    assert data["trials"][0]["verdicts"]["host_quiet"]["verdict"]


def test_a_wrong_folder_is_an_error_message_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(["show", tmp_path]) == 2
    assert called(["show", tmp_path, "--html"]) == 2
    assert f"there is no run '{tmp_path}'" in capsys.readouterr().err


def test_show_starts_without_slow_imports(folder: Path) -> None:
    program = (
        "import sys; from pagecage.cli.main import main; main(); "
        "sys.stderr.write(' '.join({'pandas', 'numpy', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    assert run([sys.executable, "-c", program, "show", str(folder)], cwd=ROOT).stderr == ""
