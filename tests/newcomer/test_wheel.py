"""The wheel, installed where there is no checkout: from `list` to a run in the guest."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pagecage.model.json_codec import Json
from pagecage.process import Completed, run
from tests.builders.run_edits import edit
from tests.ci.action import Runner
from tests.newcomer.machine import CAN_PIVOT, INSTALL, UID, Machine, machine, printed
from tests.tree import ROOT, files

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
READER = """import sys
with open(sys.argv[1], "rb") as file:
    while file.tell() < {mib} << 20 and file.read(1 << 20):
        pass
"""
FAIL_IF = "--fail-if 'device_read_bytes > +5%'"
BUSY = "--include host_quiet"
"""Bytes are the same on a busy machine."""
GATE = f"--baseline baselines/mine.json {FAIL_IF} {BUSY}"
BUNDLE = "20261121T144231Z-random-order-vm.pagecage.zip"


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and the home of its user."""

    environment: Path
    home: Path

    def pagecage(self, *words: str, **variables: str) -> Completed:
        """Run the command line in the user's home, with nothing else of this machine's settings."""
        argv = self.argv("pagecage", *words, LANG="C.UTF-8", **variables)
        return run(argv, check=False, cwd=self.home, timeout_seconds=1500)

    def argv(self, program: str, *words: str | Path, **variables: str) -> list[str | Path]:
        """Return the command that runs a program of the environment with these variables alone."""
        given = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", **variables}
        values = (f"{name}={value}" for name, value in given.items())
        return ["env", "-i", *values, self.environment / "bin" / program, *words]

    @property
    def package(self) -> Path:
        return next(self.environment.glob("lib/python*/site-packages/pagecage"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run([ROOT / "tools/build-wheel", platform.machine(), folder], timeout_seconds=600)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    top = tmp_path_factory.mktemp("machine")
    made = Installed(top / "environment", top / "home")
    made.home.mkdir()
    run([sys.executable, "-m", "venv", made.environment], timeout_seconds=300)
    run([made.environment / "bin/pip", "install", "-q", wheel], timeout_seconds=1500)
    return made


@pytest.fixture
def untouched(installed: Installed) -> Iterator[None]:
    """Fails if a file beside the code is new or was changed."""
    before = stamps(installed.package)
    yield
    assert stamps(installed.package) == before


def stamps(package: Path) -> dict[str, int]:
    """Return the time of each file's change; Python itself writes bytecode."""
    found = (path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(package)): path.stat().st_mtime_ns for path in found}


def test_its_tag_names_the_machine(wheel: Path) -> None:
    assert wheel.name.endswith(f"-py3-none-linux_{platform.machine()}.whl")


def test_it_lists_what_the_checkout_has(installed: Installed, untouched: None) -> None:
    rows = json.loads(installed.pagecage("list", "--json").stdout)
    assert {row["name"] for row in rows} == {
        path.stem for path in (ROOT / "experiments").glob("*.toml")
    }
    assert {row["origin"] for row in rows} == {"pagecage"}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("cage list", "customer-tenth"),
        ("cage show aws-gp3 --size 500GiB", "aws-gp3"),
        ("plan constrained-random --host local --dataset smoke", "systemd-run"),
        ("claims --experiment constrained-random", "constrained-random"),
        ("articles answers", "Open questions"),
        ("articles fidelity", "Fidelity of simulated volumes"),
        ("host inventory", "guests"),
        ("host status", "running"),
        ("schema schemas", ""),
        ("cold --help", "page cache"),
    ],
)
def test_a_verb(installed: Installed, untouched: None, command: str, says: str) -> None:
    done = installed.pagecage(*command.split())
    assert done.status == 0, done.stderr
    assert says in done.stdout


@pytest.mark.parametrize("language", ["rust", "c", "python"])
def test_a_template_brings_its_library(
    installed: Installed, untouched: None, language: str, tmp_path: Path
) -> None:
    folder = tmp_path / "ours"
    folder.mkdir()
    done = run(installed.argv("pagecage", "init", "--template", language), cwd=folder)
    assert "run it: pagecage run mine" in done.stderr
    path = f"/usr/bin:/bin:{Path.home() / '.cargo/bin'}"
    words = {"rust": ("cargo", "build", "--offline", "--release"), "c": ("make",)}.get(language)
    own = folder / "workloads/mine"
    if words:
        run(words, cwd=own, env={"PATH": path}, timeout_seconds=120)
    program = {"rust": "target/release/workload", "python": "workload.py"}.get(language, "workload")
    end = run([own / program, folder / "pagecage.toml", "--no-handshake"]).stdout
    assert json.loads(end)["response"]["slowest_block_us"] > 0


def test_verify_and_probe_are_files_to_copy(installed: Installed, untouched: None) -> None:
    for verb, argument in (("inspect", "--help"), ("probe", "--help")):
        done = installed.pagecage(verb, "--print-path")
        program = done.stdout.strip()
        assert run([program, argument], check=False).status in (0, 2), done.stderr


def test_the_manual_and_completions_are_installed(installed: Installed, untouched: None) -> None:
    share = installed.environment / "share"
    assert (share / "man/man1/pagecage.1").read_text().startswith(".TH PAGECAGE 1")
    assert "replay" in (share / "bash-completion/completions/pagecage").read_text()


def test_a_file_is_made_cold(installed: Installed, untouched: None) -> None:
    (installed.home / "file").write_bytes(bytes(1 << 20))
    done = installed.pagecage("cold", "file", "--json")
    assert done.status == 0, done.stderr


def test_doctor_names_no_target_of_make(installed: Installed, untouched: None) -> None:
    done = installed.pagecage("doctor", PATH="/nowhere")
    assert done.status in (0, 3)
    assert "make " not in done.stdout


def test_fixes_of_its_verbs_name_none_either(installed: Installed, untouched: None) -> None:
    for words in (("host", "verify", "local"), ("publish",)):
        done = installed.pagecage(*words)
        assert done.status == 3, done.stderr
        assert "fix: " in done.stderr
        assert "make " not in done.stderr.partition("fix: ")[2]


def test_a_report_is_made_of_a_stored_run(installed: Installed, untouched: None) -> None:
    shutil.copy(ROOT / "docs/runs" / BUNDLE, installed.home)
    done = installed.pagecage("import", BUNDLE, "--out", "rendered")
    assert done.status == 0, done.stderr
    assert list((installed.home / "rendered").rglob("report.html"))


def test_the_reports_notebook_runs_in_the_users_own_jupyter(
    installed: Installed, untouched: None
) -> None:
    """With a kernel of the environment, and no checkout on its path."""
    pip = installed.environment / "bin/pip"
    run([pip, "install", "-q", "nbclient", "ipykernel"], timeout_seconds=600)
    shutil.copy(ROOT / "docs/runs" / BUNDLE, installed.home / "noted.pagecage.zip")
    done = installed.pagecage("import", "noted.pagecage.zip", "--out", "noted")
    assert done.status == 0, done.stderr
    (report,) = (installed.home / "noted").rglob("report.ipynb")
    frames = report.with_name("frames.ipynb")
    package = "import analysis; run = analysis.load('.'); (analysis.__file__, len(run.trial_df))"
    cell: Json = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    document = json.loads(report.read_text())
    document["cells"] = [{**cell, "id": "cell-01", "source": package}]
    frames.write_text(json.dumps(document))
    for notebook in (report, frames):
        made = executed(installed, notebook)
        outputs = [out for cell in made["cells"] for out in cell.get("outputs", ())]
        assert {out["output_type"] for out in outputs} == {"execute_result"}
    (shown,) = outputs
    assert "site-packages/analysis/__init__.py" in "".join(shown["data"]["text/plain"])


def executed(installed: Installed, notebook: Path) -> Json:
    """Return a notebook as `jupyter execute` of the environment leaves it, without its cells'
    former outputs.
    """

    def without_outputs(document: Json) -> None:
        for cell in document["cells"]:
            cell.get("outputs", []).clear()

    edit(notebook, without_outputs)
    path = f"{installed.environment}/bin:/usr/bin:/bin"
    argv = installed.argv("jupyter-execute", "--inplace", notebook, PATH=path)
    run(argv, cwd=notebook.parent, timeout_seconds=300)
    document: Json = json.loads(notebook.read_text())
    return document


def test_a_cage_is_saved_in_the_users_own_folder(installed: Installed, untouched: None) -> None:
    done = installed.pagecage("cage", "show", "aws-gp3", "--size", "100GiB", "--save", "mine")
    assert done.status == 0, done.stderr
    assert (installed.home / ".local/share/pagecage/cgroups/mine.toml").exists()
    assert "mine" in installed.pagecage("cage", "list").stdout


def test_a_trial_without_limits_runs_here(installed: Installed, untouched: None) -> None:
    words = ("--host", "local", "--dataset", "smoke", "--treatment", "cage=uncaged")
    done = installed.pagecage("run", "smoke", *words)
    assert done.status == 0, done.stderr
    runs = installed.home / ".local/share/pagecage/runs"
    assert (runs / "latest-smoke/report.html").exists()
    harness = json.loads((runs / "latest-smoke/plan.json").read_text())["harness"]
    revision = run(["git", "-C", ROOT, "rev-parse", "HEAD"]).stdout.strip()
    assert harness["git_revision"] == revision


def test_a_run_in_the_guest(installed: Installed, untouched: None) -> None:
    """With this machine's guest, which is made from the same files."""
    words = ("run", "smoke", "--host", "vm", "--dataset", "smoke")
    done = installed.pagecage(*words, PATH=os.environ["PATH"], XDG_CACHE_HOME=CACHE)
    assert done.status == 0, done.stderr
    shown = installed.pagecage("show", "smoke", "--json")
    assert json.loads(shown.stdout)["experiment"] == "smoke"


def test_without_compiled_programs_no_wheel_is_built(tmp_path: Path) -> None:
    for path in files(ROOT):
        if "tests" not in path.parts and path.stat().st_size < 1 << 20:
            (tmp_path / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tmp_path / path.relative_to(ROOT))
    argv = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", "dist", "."]
    done = run(argv, check=False, cwd=tmp_path, timeout_seconds=600)
    assert not done.ok
    assert "build/host lacks bin/pcgen" in done.stdout + done.stderr
    assert "fix: make wheel" in done.stdout + done.stderr


def test_the_action_installs_it_and_runs_an_experiment(wheel: Path, tmp_path: Path) -> None:
    workspace, empty, home = (tmp_path / name for name in ("workspace", "bin", "home"))
    for folder in (workspace, empty, home):
        folder.mkdir()
    variables = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    runner = Runner(workspace, tmp_path / "files", empty, variables, timeout_seconds=1500)
    light = {"host": "local", "size": "smoke", "treatments": "cage=uncaged", "cache": "false"}
    job = runner.use(experiment="smoke", wheel=str(wheel), **light)
    assert (job.status, job.outputs["verdict"]) == (0, "none"), job.logs
    assert "Install pagecage" in job.ran
    assert "Build the wheel" not in job.ran
    assert (runner.artifacts / "pagecage/report.html").exists()
    assert (runner.files / "temp/pagecage/bin/pagecage").exists()


@dataclass(frozen=True)
class Newcomer:
    """A clean machine with the wheel. `refused` is a run before `pagecage host setup`."""

    new: Machine
    refused: Completed

    def run(self, command: str) -> Completed:
        """Run a shell command as an ordinary user with sudo."""
        done = self.new.run(f"PATH=$PATH:$HOME/.local/bin; {command}", seconds=3000)
        assert "Traceback" not in printed(done)
        return done


@pytest.fixture(scope="module")
def newcomer(wheel: Path) -> Iterator[Newcomer]:
    """A clean Debian 12 without the repository, and an ordinary user with the wheel."""
    with machine("bookworm") as new:
        top = new.folder / f"upper{new.checkout}"
        shutil.rmtree(top)
        top.mkdir()
        shutil.copy(wheel, top)
        os.chown(top, UID, UID)
        new.root(f"{INSTALL} pipx python3-venv")
        put = "PATH=$PATH:$HOME/.local/bin; pipx install ./*.whl"
        refused = new.run(f"{put} && pagecage run smoke --dataset smoke")
        made = Newcomer(new, refused)
        setup = made.run("pagecage host setup")
        assert setup.ok, printed(setup)
        yield made


@CAN_PIVOT
def test_two_commands_on_a_clean_debian(newcomer: Newcomer) -> None:
    """The wheel and what it names are installed, and an experiment runs."""
    assert "fix: pagecage host setup" in newcomer.refused.stderr, printed(newcomer.refused)
    report = "~/.local/share/pagecage/runs/latest-smoke/report.html"
    done = newcomer.run(f"pagecage run smoke --dataset smoke && ls {report}")
    assert done.ok, printed(done)


@CAN_PIVOT
def test_a_gate_in_a_project_on_a_clean_debian(newcomer: Newcomer) -> None:
    """The same program passes, 20 % more bytes fail, and other arguments are not compared."""
    new, folder = newcomer.new, newcomer.new.folder / f"upper{newcomer.new.home}/own"
    made = newcomer.run(
        "mkdir ~/own && cd ~/own && head -c 67108864 /dev/urandom >data.bin && touch read.py"
        " && pagecage init --ci none --name mine -- python3 read.py data.bin"
    )
    assert made.ok, printed(made)
    (folder / "read.py").write_text(READER.format(mib=40))
    kept = newcomer.run(
        f"cd ~/own && pagecage run mine && pagecage compare mine --save-baseline mine.json {BUSY}"
    )
    assert kept.ok, printed(kept)
    first = json.loads(new.run("cat ~/own/runs/latest-mine/plan.json").stdout)["run_id"]

    gated = f"cd ~/own && pagecage run mine {GATE}"
    same = newcomer.run(gated)
    assert same.status == 0, printed(same)
    (folder / "read.py").write_text(READER.format(mib=48))
    more = newcomer.run(gated)
    assert more.status == 5, printed(more)
    between = newcomer.run(f"cd ~/own && pagecage compare runs/{first} mine {FAIL_IF} {BUSY}")
    assert between.status == 5, printed(between)

    definition, arguments = folder / "experiments/mine.toml", 'arguments = ["read.py", "data.bin"'
    text = definition.read_text()
    assert arguments in text
    definition.write_text(text.replace(arguments, f'{arguments}, "-"'))
    other = newcomer.run(gated)
    assert other.status == 6, printed(other)
    assert "different arguments" in printed(other)
