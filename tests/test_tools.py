"""The scripts of tools/: output of a step, second runs of tests, compilation, cost of a set-up."""

from __future__ import annotations

import json
import os
import platform
import re
import select
import shutil
import sys
import time
import tomllib
from pathlib import Path

import pytest

from pagecage.definitions.reader import known_programs
from pagecage.process import Completed, run, spawn
from tests.tree import ROOT

STEP = ROOT / "tools/step"
TARGET = f"{platform.machine()}-unknown-linux-gnu"
CARGO = f"""#!/bin/sh
echo "$@" >>asked
for crate in workloads/pc*/src/main.rs; do
    name=${{crate#workloads/}}; name=${{name%/src/main.rs}}
    mkdir -p build/cargo/{TARGET}/release
    echo "$name" >"build/cargo/{TARGET}/release/$name"
done
"""


def step(cwd: Path, *argv: str) -> Completed:
    return run([STEP, "it", "doing it", *argv], check=False, cwd=cwd)


def test_a_step_that_succeeds_is_a_line_and_its_notes(tmp_path: Path) -> None:
    done = step(tmp_path, "sh", "-c", "echo much; echo 'note: there is no HOST=vm'")
    assert (done.status, done.stdout) == (0, "")
    assert re.fullmatch(r"doing it \.\.\. \d+ s\n  note: there is no HOST=vm\n", done.stderr)
    assert (tmp_path / "build/log/it.log").read_text() == "much\nnote: there is no HOST=vm\n"


def test_a_step_that_fails_shows_its_own_sentence(tmp_path: Path) -> None:
    script = "echo much; printf 'pagecage: it is not there\\n  fix: bring it\\n' >&2; exit 3"
    done = step(tmp_path, "sh", "-c", script)
    own = r"pagecage: it is not there\n  fix: bring it\n"
    assert (done.status, done.stdout) == (3, "")
    assert re.fullmatch(rf"doing it \.\.\. failed after \d+ s:\n{own}", done.stderr)


def test_a_step_that_has_no_sentence_shows_its_end(tmp_path: Path) -> None:
    done = step(tmp_path, "sh", "-c", "seq 30; exit 7")
    lines = done.stderr.splitlines()
    assert done.status == 7
    said = r"doing it \.\.\. failed after \d+ s; the end of build/log/it\.log:"
    assert re.fullmatch(said, lines[0])
    assert lines[1:] == [f"  | {number}" for number in range(11, 31)]


def shown(cwd: Path, script: str, **settings: str) -> str:
    """Return what a script shows on a terminal."""
    master, slave = os.openpty()
    with os.fdopen(slave, "rb+", buffering=0) as end:
        argv = ["sh", "-c", script]
        process = spawn(argv, stdin=end, stdout=end, stderr=end, cwd=cwd, env=settings)
    reported, deadline = b"", time.monotonic() + 30
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.1)[0]:
            try:
                reported += os.read(master, 65536)
            except OSError:  # the other end is closed
                break
    os.close(master)
    assert process.wait(10) == 0
    return reported.decode()


def test_steps_at_once_share_a_line_of_the_terminal(tmp_path: Path) -> None:
    both = f'"{STEP}" a "the first" sleep 3 & sleep 0.1; "{STEP}" b "the second" sleep 2; wait'
    reported = shown(tmp_path, both, TERM="xterm")
    lines = [re.sub(r" \d+ s\r?", "", line) for line in reported.split("\033[K")]
    assert {"the first | the second", "the second | the first"} & {*lines}, reported
    for name in ("the first", "the second"):
        assert re.search(rf"\r\033\[K{name} \.\.\. \d+ s\r\n", reported), reported
    assert list((tmp_path / "build/log").glob("*.running")) == []


def test_a_dumb_terminal_is_shown_lines_alone(tmp_path: Path) -> None:
    reported = shown(tmp_path, f'"{STEP}" a "the first" sleep 2', TERM="dumb")
    assert re.fullmatch(r"the first \.\.\. \d+ s\r\n", reported)


SECOND_TIME = """
from pathlib import Path
def test_passes(): pass
def test_fails():
    with Path("runs").open("a+") as file:
        file.write("run ")
        file.seek(0)
        assert len(file.read().split()) > {failing}
"""


def write_python(checkout: Path, command: str) -> None:
    """Write the Python of a checkout: a command of the shell."""
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{command}\n")
    python.chmod(0o755)


@pytest.mark.parametrize(
    ("failing", "status", "processes"), [(0, 0, "0"), (1, 0, "2"), (2, 1, "0")]
)
def test_a_test_that_fails_is_run_once_more(
    tmp_path: Path, failing: int, status: int, processes: str
) -> None:
    write_python(tmp_path, f'exec "{sys.executable}" "$@"')
    (tmp_path / "test_it.py").write_text(SECOND_TIME.format(failing=failing))
    done = run([ROOT / "tools/run-tests", "-n", processes], check=False, cwd=tmp_path)
    assert done.status == status, done.stdout
    assert len((tmp_path / "runs").read_text().split()) == (2 if failing else 1)
    assert ("1 failed, 1 passed" in done.stdout) == bool(failing), "the output shows both runs"
    counted = done.stdout.endswith("Passed only when repeated: 1\n  test_it.py::test_fails\n")
    assert counted == (failing == 1)


def test_an_empty_selection_is_not_run_once_more(tmp_path: Path) -> None:
    write_python(tmp_path, "echo run >>runs; exit 5")
    assert run([ROOT / "tools/run-tests"], check=False, cwd=tmp_path).status == 5
    assert (tmp_path / "runs").read_text() == "run\n"


@pytest.mark.parametrize(
    ("outside", "inside", "status"), [(0, 0, 0), (0, 5, 0), (5, 0, 0), (5, 5, 1), (0, 2, 1)]
)
def test_tests_inside_the_guest_follow_the_others(
    tmp_path: Path, outside: int, inside: int, status: int
) -> None:
    choose = f'case "$*" in *"slow and not vm"*) exit {outside} ;; *) exit {inside} ;; esac'
    write_python(tmp_path, f'echo "$@" >>runs; {choose}')
    argv: list[str | Path] = [ROOT / "tools/run-tests", "--all", "slow", "tests/unit", "-k", "cage"]
    assert run(argv, check=False, cwd=tmp_path).status == status
    first, second = (tmp_path / "runs").read_text().splitlines()
    assert first.endswith("--dist worksteal -m slow and not vm tests/unit -k cage")
    assert second == "-m pytest --cache-clear -m slow and vm tests/unit -k cage"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """The sources of the workloads, and a cargo that only records its arguments."""
    for name in ("tools", "workloads", "experiments"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("target"))
    shutil.copy(ROOT / "Cargo.toml", tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/cargo").write_text(CARGO)
    (tmp_path / "bin/cargo").chmod(0o755)
    return tmp_path


def built(sources: Path, *experiment: str) -> set[str]:
    """Build; return the resulting programs."""
    path = f"{sources}/bin:{os.environ['PATH']}"
    run([sources / "tools/build-workloads", TARGET, *experiment], cwd=sources, env={"PATH": path})
    return {program.name for program in (sources / "build/host/bin").iterdir()}


def test_what_one_experiment_names_is_compiled_for_it(sources: Path) -> None:
    assert built(sources, "constrained-random") == {"pcgen", "pcread"}
    asked = (sources / "asked").read_text().split()
    packages = [word for word in asked if word.startswith("--package")]
    assert packages == ["--package=pcgen", "--package=pcread"]
    assert "--workspace" not in asked


def test_replays_need_no_workload(sources: Path) -> None:
    assert built(sources, "pcgen") == {"pcgen", "pcgate"}


def test_workloads_in_every_language_are_found(sources: Path) -> None:
    names = ("pcscan", "pcscan-c", "pcscan-python")
    assert {"pcgen", *names} <= built(sources, "async-hazard")
    assert {"pcappend"} <= built(sources, "append-log")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda path: path.stem
)
def test_every_workload_that_an_experiment_starts_stands_in_its_file(path: Path) -> None:
    """build-workloads searches the text for names."""
    from pagecage.definitions.reader import Definitions

    programs = known_programs(ROOT)
    wanted = Definitions(ROOT, programs).experiment(path.stem).programs() & {*programs}
    assert wanted <= {*re.findall(r"[\w-]+", path.read_text())}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose steps only print their commands. The step in the file `fails` fails. If it
    is `dev`, `ansible` ends after the failure has been noticed.
    """
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/setup", tmp_path / "tools")
    tool = """#!/bin/sh
    if [ "${0##*/} $1" = "bootstrap python" ]; then shift; exec "$PYTHON" -I "$@"; fi
    echo "${0##*/}" "$@"
    case "$*" in plan | run) touch ".venv/.stamp-$1" ;; esac
    [ "$*" != "$(cat fails 2>/dev/null)" ] || { echo $$ >failed; exit 3; }
    [ "$* $(cat fails 2>/dev/null)" = "ansible dev" ] || exit 0
    until [ -s failed ]; do sleep 0.05; done
    while kill -0 "$(cat failed)" 2>/dev/null; do sleep 0.05; done
    """
    for name in ("tools/preflight", "tools/bootstrap", "tools/build-workloads"):
        (tmp_path / name).write_text(tool)
        (tmp_path / name).chmod(0o755)
    for empty in (".venv/bin/python", "experiments/smoke.toml", "Cargo.toml", "Cargo.lock"):
        (tmp_path / empty).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / empty).touch()
    (tmp_path / ".venv/bin/pagecage").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / ".venv/bin/pagecage").chmod(0o755)
    return tmp_path


def made(checkout: Path, *words: str) -> tuple[int, list[str]]:
    """Return the status of make for an experiment on this machine, and the printed commands."""
    argv = ["make", *words, "HOST=local", "CAGE=customer", "CMD=true", "NAME=smoke"]
    done = run(argv, cwd=checkout, check=False, env={**os.environ, "PYTHON": sys.executable})
    return done.status, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("target", "compiles"), [("replay", "pcgen"), ("shell", "pcgen"), ("experiment", "smoke")]
)
def test_a_replay_compiles_only_what_its_limits_are_driven_against(
    checkout: Path, target: str, compiles: str
) -> None:
    """It runs the user's program, and compiling everything takes longer than the rest of its
    set-up.
    """
    status, printed = made(checkout, target)
    assert (status, printed[-1]) == (0, "ran")
    [built] = [line.split() for line in printed if line.startswith("build-workloads")]
    assert built[2:] == [compiles]


def test_a_step_runs_again_when_its_inputs_change(checkout: Path) -> None:
    commands = [
        *("bootstrap plan", "bootstrap run", "bootstrap controller build"),
        *("bootstrap controller record", f"build-workloads {TARGET} smoke"),
    ]
    check = "preflight python programs"
    first = made(checkout, "experiment")[1]
    assert sorted(first) == sorted([check, *commands, "ran"])
    assert first.index(commands[0]) < first.index(commands[1])
    assert first.index(commands[2]) < first.index(commands[4])
    assert made(checkout, "experiment")[1] == [check, "ran"]
    (checkout / "Cargo.lock").touch()
    assert made(checkout, "experiment")[1] == [check, commands[4], "ran"]
    (checkout / "build/.stamp-compilers").touch()
    assert made(checkout, "experiment")[1] == [check, commands[4], "ran"]
    (checkout / ".venv/.filling").touch()
    assert sorted(made(checkout, "experiment")[1]) == sorted([check, *commands[:2], "ran"])


def test_no_step_follows_one_that_failed(checkout: Path) -> None:
    (checkout / "fails").write_text("controller build")
    status, printed = made(checkout, "experiment")
    assert status == 2
    assert not {"ran", f"build-workloads {TARGET} smoke"} & {*printed}
    assert not (checkout / "build/.stamp-compilers").exists()


@pytest.mark.parametrize("option", ["--no-keep-going", "--keep-going"])
def test_keep_going_continues_with_steps_that_do_not_need_the_failed_one(
    checkout: Path, option: str
) -> None:
    (checkout / "fails").write_text("dev")
    status, printed = made(checkout, option, "lint")
    assert status == 2
    assert ("bootstrap roles" in printed) == (option == "--keep-going")


def test_a_dry_run_prints_what_would_be_set_up(checkout: Path) -> None:
    status, printed = made(checkout, "--dry-run", "experiment")
    assert status == 0
    assert f"tools/build-workloads {TARGET} smoke" in printed
    assert printed.count("tools/bootstrap plan") == 1
    assert not (checkout / "build").exists()
    made(checkout, "experiment")
    (checkout / "tools/bootstrap").touch()
    printed = made(checkout, "--dry-run", "experiment")[1]
    assert f"tools/build-workloads {TARGET} smoke" in printed, "its compilers would be newer"


def test_an_unknown_experiment_is_refused_before_anything_is_compiled(checkout: Path) -> None:
    (checkout / "experiments/smoke.toml").unlink()
    assert made(checkout, "experiment") == (0, ["bootstrap plan", "ran"])


def test_a_wheel_for_another_machine_is_refused() -> None:
    done = run([ROOT / "tools/build-wheel", "riscv64"], check=False)
    assert done.status == 3
    assert "there is no wheel for riscv64" in done.stderr
    assert "fix: make wheel MACHINE=aarch64" in done.stderr


def test_a_wheel_requires_what_a_checkout_installs() -> None:
    """Ansible has an environment of its own in a checkout, and is a dependency of the wheel."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.split(r"[<>=]", name)[0] for name in asked}
    locked = {
        re.split(r"[<>=]", line)[0]
        for request in ("controller", "analysis")
        for line in (ROOT / f"requirements/{request}.in").read_text().splitlines()
        if line[:1].isalpha()
    }
    assert names == locked | {"ansible-core"}


APT = """#!/bin/sh
echo "$@" >>"$ASKED"
case $* in
*install*"$PACKAGE") printf '#!/bin/sh\\n' >"$BIN/pcneeded" && chmod 755 "$BIN/pcneeded" ;;
esac
"""
NEEDS = "  record: [fio, iostat, sar, vmtouch, bpftrace]\n"


@pytest.fixture
def bootstrap(tmp_path: Path) -> Path:
    """The tool in a folder where recording needs one program, which a package manager provides."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    role = tmp_path / "ansible/roles/controller"
    shutil.copytree(ROOT / "ansible/roles/controller", role)
    defaults = (role / "defaults/main.yml").read_text()
    assert NEEDS in defaults
    (role / "defaults/main.yml").write_text(defaults.replace(NEEDS, "  record: [pcneeded]\n"))
    with (role / "vars/debian.yml").open("a") as table:
        table.write("  pcneeded: [libpc1.0-dev, pcneeded-tools]\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apt-get").write_text(APT)
    (tmp_path / "bin/apt-get").chmod(0o755)
    return tmp_path


def prepared(folder: Path, provides: str = "pcneeded-tools", purpose: str = "record") -> Completed:
    """Prepare a controller without Ansible; with it the tool would have to install packages."""
    (folder / ".venv-ansible/bin").mkdir(parents=True, exist_ok=True)
    stub = folder / ".venv-ansible/bin/python"
    stub.write_text('#!/bin/sh\necho "Ansible is asked: $*" >>"$ASKED"\n')
    stub.chmod(0o755)
    for stamp in ("requirements/bootstrap.txt", "requirements/ansible.txt"):
        (folder / stamp).parent.mkdir(exist_ok=True)
        (folder / stamp).touch()
    (folder / ".venv-ansible/.stamp-ansible").touch()
    path = f"{folder}/bin:{os.environ['PATH']}"
    env = {"PATH": path, "ASKED": str(folder / "asked"), "BIN": str(folder / "bin")}
    tool = folder / "tools/bootstrap"
    env |= {"PACKAGE": provides}
    return run([tool, "controller", purpose], check=False, cwd=folder, env=env)


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a user's programs are installed by Ansible")


@AS_ROOT
def test_what_apt_provides_is_installed_without_ansible(bootstrap: Path) -> None:
    assert prepared(bootstrap).ok
    asked = (bootstrap / "asked").read_text()
    assert "install" in asked
    assert asked.rstrip().endswith("libpc1.0-dev pcneeded-tools")
    assert "Ansible" not in asked
    (bootstrap / "asked").unlink()
    assert prepared(bootstrap).ok
    assert not (bootstrap / "asked").exists(), "nothing is missing any more"


@AS_ROOT
def test_what_apt_cannot_provide_is_left_to_ansible(bootstrap: Path) -> None:
    prepared(bootstrap, provides="another-package")
    asked = (bootstrap / "asked").read_text()
    assert "Ansible is asked: -I tools/prepare-controller record" in asked


@AS_ROOT
def test_packages_that_depend_on_the_machine_are_left_to_ansible(bootstrap: Path) -> None:
    """So are all others then, which Ansible installs at the same time."""
    role = bootstrap / "ansible/roles/controller"
    defaults = (role / "defaults/main.yml").read_text()
    (role / "defaults/main.yml").write_text(defaults.replace("[pcneeded]", "[pcneeded, pcplain]"))
    table = (role / "vars/debian.yml").read_text()
    by_machine = table.replace("[libpc1.0-dev, pcneeded-tools]", '["{{ this }}"]')
    (role / "vars/debian.yml").write_text(by_machine + "  pcplain: [plain]\n")
    prepared(bootstrap)
    assert (bootstrap / "asked").read_text().startswith("Ansible is asked")


LOCKS = sorted(path.name for path in (ROOT / "requirements").glob("*.txt"))
CLEAN = {"dependencies": [{"name": "a", "version": "1", "vulns": []}]}
BAD = {"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1"}]}]}
CRATES = {"database": {"advisory-count": 700}, "vulnerabilities": {"list": []}}
EMPTY = {**CRATES, "database": {"advisory-count": 0}}
ADVISORY = {"package": {"name": "b", "version": "2"}, "advisory": {"id": "RUSTSEC-1"}}
BAD_CRATE = {**CRATES, "vulnerabilities": {"list": [ADVISORY]}}


def audit(folder: Path, **answers: str) -> tuple[int, str]:
    """Run it with programs that print an answer; without one, a program is missing."""
    for name, answer in answers.items():
        program = folder / name.replace("_", "-")
        (folder / name).write_text(answer)
        program.write_text(f'#!/bin/sh\ncat "{folder / name}"; echo "no network" >&2; exit 1\n')
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    done = run([sys.executable, ROOT / "tools/audit"], env=environment, check=False)
    return done.status, done.stdout


@pytest.mark.parametrize(
    ("answers", "status", "says"),
    [
        ({}, 3, "NOT CHECKED: pip-audit is not installed"),
        ({"pip_audit": json.dumps(CLEAN), "cargo_audit": json.dumps(CRATES)}, 0, "Cargo.lock: 0"),
        ({"pip_audit": json.dumps(BAD), "cargo_audit": json.dumps(CRATES)}, 1, "a 1: PYSEC-1"),
        ({"pip_audit": json.dumps(CLEAN), "cargo_audit": json.dumps(BAD_CRATE)}, 1, "RUSTSEC-1"),
        ({"pip_audit": "", "cargo_audit": json.dumps(CRATES)}, 3, "could not check it: no network"),
        ({"pip_audit": json.dumps(CLEAN), "cargo_audit": "{}"}, 3, "Cargo.lock: NOT CHECKED"),
        ({"pip_audit": json.dumps(CLEAN), "cargo_audit": json.dumps(EMPTY)}, 3, "NOT CHECKED"),
        ({"pip_audit": json.dumps(BAD), "cargo_audit": ""}, 1, "Cargo.lock: NOT CHECKED"),
    ],
)
def test_the_status_tells_what_was_checked(
    tmp_path: Path, answers: dict[str, str], status: int, says: str
) -> None:
    found, said = audit(tmp_path, **answers)
    assert found == status, said
    assert says in said
    for name in LOCKS:
        assert f"requirements/{name}: " in said


HARNESS = (
    "pagecage.cli.run, pagecage.agent.preview, pagecage.definitions.reader,"
    " pagecage.hosts.vm.vm_host"
)
ANALYSIS = "analysis.results, analysis.views.render, analysis.views.notebook, jinja2, markdown_it"
LACKING = """
import sys, sysconfig
from importlib.util import cache_from_source
from pathlib import Path
import {modules}
inside = sysconfig.get_path("purelib")
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
ours = [file for file in files if file.startswith(inside) and file.endswith(".py")]
print(len(ours), *(file for file in ours if not Path(cache_from_source(file)).exists()))
"""


@pytest.mark.parametrize(("modules", "fewest"), [(HARNESS, 50), (ANALYSIS, 400)])
def test_what_is_imported_is_compiled(modules: str, fewest: int) -> None:
    argv = [sys.executable, "-c", LACKING.format(modules=modules)]
    done = run(argv, cwd=ROOT, env={"PYTHONDONTWRITEBYTECODE": "1"})
    number, *lacking = done.stdout.split()
    assert int(number) >= fewest
    assert not lacking, "tools/bootstrap compiles them: make setup"
