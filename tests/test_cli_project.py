"""A project of the user's own, from `pagecage init` on."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from pagecage.model.json_codec import Json
from pagecage.process import Completed, run
from tests.checkout import PLAIN, environment
from tests.tree import ROOT

EXAMPLE = ROOT / "examples/record-search"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "ours"
    (made / "src").mkdir(parents=True)
    (made / "src/a.txt").write_text("needle\n")
    return made


def pagecage(folder: Path, *words: str, checkout: Path = ROOT) -> Completed:
    """Run the command line of a checkout in this folder, without the user's own settings."""
    argv = [sys.executable, "-m", "pagecage.cli.main", *words]
    variables = {**environment(folder), "PYTHONPATH": str(checkout)}
    return run(argv, check=False, cwd=folder, env=variables, timeout_seconds=300)


def init(folder: Path, *words: str) -> str:
    """Make a project in this folder; return the messages."""
    done = pagecage(folder, "init", *words)
    assert done.ok, done.stderr
    return done.stderr


def planned(folder: Path, *words: str) -> Json:
    plan: Json = json.loads(pagecage(folder, "run", *words, "--dry-run", *PLAIN, "--json").stdout)
    return plan


def test_init_makes_a_project_around_a_command(folder: Path) -> None:
    told = init(folder, "--", "grep", "-rc", "needle", "src")
    made = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    own = {"pagecage.toml", ".gitignore", "experiments/grep.toml", "cgroups/slow-disk.toml"}
    assert own <= made
    assert "run it: pagecage run grep" in told
    plan = planned(folder, "grep")
    assert {trial["cage"]["name"] for trial in plan["trials"]} == {"uncaged", "slow-disk"}
    command = plan["trials"][0]["workload"]["command"]
    assert (command["directory"], command["data_paths"]) == (str(folder), ["src"])


def test_init_without_a_command_names_the_experiment_mine(folder: Path) -> None:
    assert "run it: pagecage run mine" in init(folder)
    plan = planned(folder, "mine")
    assert {trial["workload"]["program"] for trial in plan["trials"]} == {"cat"}


@pytest.mark.parametrize(
    ("language", "files", "build"),
    [
        ("rust", {"Cargo.toml", ".cargo/config.toml", "src/main.rs"}, "cargo build --release"),
        ("c", {"Makefile", "workload.c", "pagecage_workload.h", "pagecage_workload.c"}, "make"),
        ("python", {"workload.py", "pagecage_workload.py"}, ""),
    ],
)
def test_init_makes_a_workload_with_its_library(
    folder: Path, language: str, files: set[str], build: str
) -> None:
    told = init(folder, "--template", language)
    own = folder / "workloads/mine"
    made = {str(path.relative_to(own)) for path in own.rglob("*") if path.is_file()}
    assert files <= made
    assert ("build it" in told) == bool(build)
    assert f"cd workloads/mine && {build}" in told or not build
    assert "run it: pagecage run mine" in told
    assert pagecage(folder, "list").stdout.startswith("project  mine ")
    unbuilt = pagecage(folder, "run", "mine", "--dry-run", *PLAIN, "--json")
    assert unbuilt.status == (2 if build else 0)
    assert ("is not an executable file" in unbuilt.stderr) == bool(build)


def test_a_library_is_copied_unchanged(folder: Path) -> None:
    init(folder, "--template", "rust")
    crate = ROOT / "workloads/pagecage-workload"
    copies = folder / "workloads/mine/pagecage-workload"
    paths = [path.relative_to(crate) for path in crate.rglob("*") if path.is_file()]
    assert len(paths) > 3
    for path in paths:
        assert (copies / path).read_bytes() == (crate / path).read_bytes()


def test_a_template_replaces_nothing(folder: Path) -> None:
    init(folder, "--template", "python")
    again = pagecage(folder, "init", "--template", "python")
    assert (again.status, "experiments/mine.toml exists already" in again.stderr) == (2, True)
    assert "fix: pagecage init --template python --name mine-2" in again.stderr
    (folder / "experiments/mine.toml").unlink()
    (folder / "workloads/mine/workload.py").write_text("ours")
    kept = pagecage(folder, "init", "--template", "c")
    assert (kept.status, "workloads/mine exists already" in kept.stderr) == (2, True)
    assert (folder / "workloads/mine/workload.py").read_text() == "ours"


def test_a_second_init_adds_an_experiment_and_replaces_nothing(folder: Path) -> None:
    (folder / ".gitignore").write_text("*.o")
    init(folder, "--", "cat", "src/a.txt")
    assert (folder / ".gitignore").read_text() == "*.o\n/runs/\n"
    cage = folder / "cgroups/slow-disk.toml"
    cage.write_text("IOReadIOPSMax = 9\n")
    init(folder, "--name", "other", "--", "cat", "src/a.txt")
    assert cage.read_text() == "IOReadIOPSMax = 9\n"
    again = pagecage(folder, "init", "--", "cat", "x")
    assert again.status == 2
    assert "experiments/cat.toml exists already" in again.stderr
    assert "fix: pagecage init --name cat-2 -- cat x" in again.stderr


def test_a_foreign_definition_is_not_run_without_a_yes(tmp_path: Path) -> None:
    """Neither run gets any further than its plan: this machine holds no limits in a test."""
    copy = tmp_path / "theirs"
    shutil.copytree(EXAMPLE, copy)
    words = ("run", "search", *PLAIN, "--treatment", "cage=old-laptop")
    refused = pagecage(copy, *words)
    assert refused.status == 2
    assert "search.toml has not run on this machine before. Its commands:" in refused.stderr
    assert "  on this machine, in the experiment's cages:\n    python3 search.py" in refused.stderr
    assert "then add --yes" in refused.stderr
    assert not (copy / "runs").exists()
    assert pagecage(copy, "run", "search", "--dry-run", *PLAIN).ok, "a plan starts nothing"
    accepted = pagecage(copy, *words, "--yes", "--data-dir", "/dev/null/x")
    assert "has commands that have not run" not in accepted.stderr
    again = pagecage(copy, *words, "--data-dir", "/dev/null/x")
    assert "has not run on this machine" not in again.stderr, "it was accepted"


def test_a_project_of_ones_own_is_not_asked_for(folder: Path) -> None:
    init(folder, "--", "cat", "src/a.txt")
    definition = folder / "experiments/cat.toml"
    definition.write_text(definition.read_text().replace('"src/a.txt"', '"src"', 1))
    done = pagecage(folder, "run", "cat", *PLAIN, "--data-dir", "/dev/null/x")
    assert "has not run on this machine" not in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--name", "../x"), "'../x' is not a valid name for an experiment"),
        (("--name", ""), "'' is not a valid name"),
        (("--", "cat", b"\xff"), "is not UTF-8"),
    ],
)
def test_init_refuses_and_writes_nothing(
    folder: Path, words: tuple[str | bytes, ...], says: str
) -> None:
    done = pagecage(folder, "init", *(os.fsdecode(word) for word in words))
    assert done.status == 2
    assert says in done.stderr
    assert not (folder / "pagecage.toml").exists()


def test_init_refuses_a_folder_inside_a_project_and_pagecage_itself(folder: Path) -> None:
    init(folder)
    inner = pagecage(folder / "src", "init")
    assert (inner.status, f"fix: cd {folder}" in inner.stderr) == (2, True)
    own = pagecage(ROOT / "docs", "init")
    assert (own.status, "is pagecage itself" in own.stderr) == (2, True)


def test_list_marks_both_and_finds_the_project_from_below(folder: Path) -> None:
    init(folder, "--name", "mine")
    lines = pagecage(folder / "src", "list").stdout.splitlines()
    assert lines[0].startswith("project  mine ")
    assert any(line.startswith("pagecage smoke ") for line in lines)
    rows = json.loads(pagecage(folder, "list", "--json").stdout)
    assert {row["name"]: row["origin"] for row in rows}["mine"] == "project"


def test_of_two_with_one_name_the_projects_runs_and_that_is_said_once(folder: Path) -> None:
    init(folder, "--name", "smoke", "--", "true")
    done = pagecage(folder, "run", "smoke", "--dry-run", *PLAIN, "--json")
    assert json.loads(done.stdout)["trials"][0]["workload"]["program"] == "true"
    assert done.stderr.count("that replace pagecage's own: smoke") == 1


def test_an_empty_project_says_so(folder: Path) -> None:
    (folder / "pagecage.toml").touch()
    done = pagecage(folder, "list")
    assert done.status == 0
    assert f"{folder} defines no experiments" in done.stderr
    refused = pagecage(folder, "run", "zzz")
    assert refused.status == 2
    assert "fix: pagecage init -- COMMAND makes one" in refused.stderr


def test_a_path_is_an_experiment_and_its_cages_are_the_projects(folder: Path) -> None:
    init(folder, "--name", "mine", "--", "cat", "src/a.txt")
    (folder / "experiments/mine.toml").rename(folder / "elsewhere.toml")
    assert planned(folder, "./elsewhere.toml")["experiment"] == "elsewhere"
    missing = pagecage(folder, "run", "./nowhere.toml", "--dry-run", *PLAIN)
    assert (missing.status, "cannot be read: No such file" in missing.stderr) == (2, True)


def test_a_saved_cage_is_the_projects(folder: Path) -> None:
    init(folder)
    done = pagecage(folder, "cage", "show", "aws-gp3", "--size", "100GiB", "--save", "mine")
    assert "saved: cgroups/mine.toml" in done.stderr
    assert "mine" in pagecage(folder, "cage", "list", "--type", "mine").stdout


def test_the_example_is_short() -> None:
    names = ("search.py", "experiments/search.toml", "cgroups/old-laptop.toml")
    assert sum(len((EXAMPLE / name).read_text().splitlines()) for name in names) < 50


def test_a_project_predicts_from_the_catalogue_of_pagecage(folder: Path) -> None:
    """The cages of a project are its own; the cloud volumes are not."""
    init(folder, "--", "grep", "-rc", "needle", "src")
    run_of_ours = str(ROOT / "tests/fixtures/small-runs/lazy-start.pagecage.zip")
    done = pagecage(folder, "predict", run_of_ours, "--type", "aws-gp3", "--json")
    assert done.ok, done.stderr
    volumes = json.loads(done.stdout)["treatments"][0]["volumes"]
    assert {row["name"] for row in volumes} == {"aws-gp3"}
    floor = pagecage(folder, "cage", "floor", "aws-gp3", "--size", "100GiB", "--bytes", "1GiB")
    assert floor.ok, floor.stderr


def test_init_makes_a_project_for_a_server_on_a_volume(folder: Path) -> None:
    server = ("--", "sh", "src/a.txt")
    init(folder, "--ready-port", "8080", "--cage", "aws-gp3", "--size", "500GiB", *server)
    assert [path.name for path in (folder / "cgroups").iterdir()] == ["aws-gp3-volume.toml"]
    done = pagecage(folder, "run", "sh", "--dry-run", *PLAIN, "--json")
    note = "note: aws-gp3-volume has a latency, which a cgroup does not impose"
    assert note in done.stderr
    by_volume = pagecage(folder, "run", "sh", "--dry-run", *PLAIN, "--enforced-by", "volume")
    assert note not in by_volume.stderr
    plan = json.loads(done.stdout)
    assert plan["definition"]["response"] == "ready_seconds"
    by_cage = {trial["cage"]["name"]: trial for trial in plan["trials"]}
    assert set(by_cage) == {"uncaged", "aws-gp3-volume"}
    assert by_cage["aws-gp3-volume"]["cage"]["volume"]["size_bytes"] == 500 << 30
    assert {trial["cache"] for trial in plan["trials"]} == {"cold"}
    assert {trial["workload"]["command"]["ready_port"] for trial in plan["trials"]} == {8080}


def test_another_cage_or_port_of_a_run_keeps_its_files_cold(folder: Path) -> None:
    init(folder, "--", "sh", "src/a.txt")
    words = ("--cage", "aws-gp3", "--size", "500GiB", "--cage", "customer", "--ready-port", "80")
    plan = planned(folder, "sh", *words)
    assert {t["cage"]["name"] for t in plan["trials"]} == {"uncaged", "aws-gp3", "customer"}
    assert plan["definition"]["response"] == "ready_seconds"
    assert {trial["workload"]["command"]["ready_port"] for trial in plan["trials"]} == {80}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--size", "5GiB", "--", "ls"), "options of a volume need its name"),
        (("--cage", "nope", "--", "ls"), "there is no cage and no volume type 'nope'"),
        (("--template", "rust", "--ready-port", "1"), "--cage and --ready-port apply to a command"),
    ],
)
def test_init_refuses_what_it_would_ignore(folder: Path, words: tuple[str, ...], says: str) -> None:
    done = pagecage(folder, "init", *words)
    assert (done.status, says in done.stderr) == (2, True), done.stderr
