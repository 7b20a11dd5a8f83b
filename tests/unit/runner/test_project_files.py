"""A project's files: in place on this machine, copied to the guest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pagecage.definitions.experiment import Experiment
from pagecage.definitions.project_writer import (
    FILES,
    SLOW_DISK_FILE,
    TEMPLATES,
    experiment_text,
    template_experiment,
    template_files,
)
from pagecage.definitions.reader import Definitions
from pagecage.errors import PagecageError
from pagecage.runner.uploads import place_files
from tests.builders.known import known
from tests.tree import ROOT


@dataclass(frozen=True)
class Place:
    """A host as far as it matters here."""

    name: str
    data_dir: str = "/data"

    def is_emulated(self, progress: object) -> bool:
        return False


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    for folder in ("experiments", "cgroups", "bin", "data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bin/server").write_text("#!/bin/sh\n")
    (tmp_path / "cgroups/slow-disk.toml").write_text("IOReadIOPSMax = 9\n")
    words, files = ("bin/server", "--index", "data", "-v"), ("bin/server", "data")
    (tmp_path / "experiments/mine.toml").write_text(experiment_text(words, files))
    return Definitions(ROOT, [], tmp_path).experiment("mine")


def test_here_the_command_runs_in_the_project(experiment: Experiment, tmp_path: Path) -> None:
    placed, copies = place_files(experiment, Place("local"))
    assert copies is None
    assert placed.workload.program == "bin/server"
    assert placed.workload.arguments == ("--index", "data", "-v")
    assert known(placed.workload.command).directory == str(tmp_path)


def test_the_guest_gets_copies(experiment: Experiment, tmp_path: Path) -> None:
    placed, given = place_files(experiment, Place("vm"))
    copies, command = known(given), known(placed.workload.command)
    assert [(file["source"], file["name"]) for file in copies["carried"]] == [
        (str(tmp_path / "bin/server"), "server"),
        (str(tmp_path / "data"), "data"),
    ]
    assert placed.workload.program == "/data/replay/server"
    assert placed.workload.arguments == ("--index", "/data/replay/data", "-v")
    assert command.data_paths == ("/data/replay/data",)
    assert command.directory == copies["directory"] == "/data/replay"


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """Make a project with a workload of its own; return its program."""
    template = TEMPLATES["python"]
    texts = template_files(template, "mine", ROOT)
    texts |= {name: text.encode() for name, text in (FILES | SLOW_DISK_FILE).items()}
    texts["experiments/mine.toml"] = template_experiment(template, "mine").encode()
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text)
    program = tmp_path / "workloads/mine/workload.py"
    program.chmod(0o755)
    return program


def placed_workload(tmp_path: Path, host: str) -> tuple[str, tuple[str, ...]]:
    placed, _ = place_files(Definitions(ROOT, [], tmp_path).experiment("mine"), Place(host))
    return placed.workload.program, placed.workload.arguments


def test_here_a_workload_is_used_in_place(workload: Path, tmp_path: Path) -> None:
    assert placed_workload(tmp_path, "local") == (str(workload), ("{file}",))


def test_the_guest_gets_copies_of_a_workload_and_its_library(
    workload: Path, tmp_path: Path
) -> None:
    own = tmp_path / "experiments/mine.toml"
    own.write_text(own.read_text().replace('["{file}"]', '["workloads/mine/workload.py"]'))
    words = ("/data/replay/workload.py",)
    assert placed_workload(tmp_path, "vm") == ("/data/replay/workload.py", words)
    assert placed_workload(tmp_path, "local") == (str(workload), (str(workload),))


def test_a_workload_that_is_not_built_is_refused(workload: Path, tmp_path: Path) -> None:
    changes: tuple[Callable[[], None], ...] = (lambda: workload.chmod(0o644), workload.unlink)
    for change in changes:
        change()
        for host in ("local", "vm"):
            with pytest.raises(PagecageError, match="is not an executable file"):
                placed_workload(tmp_path, host)


def test_a_workload_that_is_not_copied_runs_here_alone(workload: Path, tmp_path: Path) -> None:
    own = tmp_path / "experiments/mine.toml"
    without = [line for line in own.read_text().splitlines() if not line.startswith("copies")]
    own.write_text("\n".join(without))
    assert placed_workload(tmp_path, "local")[0] == str(workload)
    for host in ("vm", "rack"):
        with pytest.raises(PagecageError, match="is not copied to the host") as refusal:
            placed_workload(tmp_path, host)
        assert "copies = ['./workloads/mine/workload.py']" in (refusal.value.hint or "")


def test_an_experiment_of_pagecage_is_left_alone() -> None:
    found = Definitions(ROOT, ["pcread"]).experiment("smoke")
    assert place_files(found, Place("vm")) == (found, None)


@pytest.mark.parametrize(
    ("path", "says"), [("../x", "is outside the project"), ("gone", "does not exist in")]
)
def test_what_cannot_be_copied(experiment: Experiment, path: str, says: str) -> None:
    with pytest.raises(PagecageError, match=says):
        place_files(replace(experiment, copies=(path,)), Place("vm"))


def test_a_group_is_refused(experiment: Experiment) -> None:
    with pytest.raises(PagecageError, match="works with --host vm alone"):
        place_files(experiment, Place("rack"))
