"""Definitions whose commands may run on this machine, and the question before the first run."""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

import pytest

from pagecage.cli.execution import ask_before_commands
from pagecage.definitions import known
from pagecage.definitions.experiment import Experiment
from pagecage.definitions.known import command_lines
from pagecage.definitions.reader import Definitions
from pagecage.errors import PagecageError
from tests.builders.command_line import called
from tests.tree import ROOT

DEFINITION = """question = "q"
sections = ["mine.py"]
packages = ["jq"]
[collectors.queue]
command = ["./sample.sh", "a b"]
[bpftrace]
scripts = ["./reads.bt"]
[workload]
kind = "command"
program = "rm"
arguments = ["-r", "\\u001b[2Kx"]
[data]
prepare = ["mkdir", "{data}/x"]
[factors]
cage = ["uncaged"]
[levels.cage.uncaged]
arguments = ["--more"]
[sizes.full]
[sizes.default]
[sizes.emulated]
[sizes.smoke]
"""


class Terminal(io.StringIO):
    """Standard input that is a terminal with this answer."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    made = tmp_path / "theirs"
    (made / "experiments").mkdir(parents=True)
    (made / "cgroups").mkdir()
    for name, text in {
        "mine.toml": DEFINITION,
        "mine.py": "# %%\n",
        "sample.sh": "#!/bin/sh\n",
        "reads.bt": "BEGIN { }",
    }.items():
        (made / "experiments" / name).write_text(text)
    return made


def experiment(project: Path, change: tuple[str, str] = ("", "")) -> Experiment:
    path = project / "experiments/mine.toml"
    path.write_text(path.read_text().replace(*change) if change[0] else path.read_text())
    return Definitions(ROOT, [], project).experiment("mine")


def test_a_foreign_definition_needs_a_yes_and_then_is_known(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PagecageError, match="have not run on this machine before"):
        ask_before_commands(experiment(project), "vm", yes=False)
    shown = capsys.readouterr().err
    for line in (
        "has not run on this machine before. Its commands:",
        "in the guest, in the experiment's cages:",
        "rm -r '\\x1b[2Kx'",
        "... --more (with uncaged)",
        "in the guest, outside of them:",
        "mkdir '{data}/x' (makes the data)",
        "'{programs}/sample.sh' 'a b' (collector queue)",
        "'{programs}/reads.bt' (bpftrace script reads)",
        "packages: jq",
        "on this machine, whenever the report is made:",
        "mine.py (a part of the report)",
    ):
        assert line in shown
    assert "\x1b" not in shown
    ask_before_commands(experiment(project), "vm", yes=True)
    assert capsys.readouterr().err
    ask_before_commands(experiment(project), "vm", yes=False)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(("answer", "is_known"), [("y\n", True), ("\n", False), ("n\n", False)])
def test_a_terminal_is_asked(
    project: Path, monkeypatch: pytest.MonkeyPatch, answer: str, is_known: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    if is_known:
        ask_before_commands(experiment(project), "auto", yes=False)
    else:
        with pytest.raises(PagecageError, match="not confirmed"):
            ask_before_commands(experiment(project), "auto", yes=False)
    assert known.is_known(experiment(project)) is is_known


@pytest.mark.parametrize(
    ("change", "is_known"),
    [
        (('question = "q"', 'question = "another"'), True),
        (("--more", "--other"), False),
        (('["jq"]', '["jq", "nc"]'), False),
        (('"a b"', '"a"'), False),
    ],
)
def test_a_change_of_what_runs_is_asked_again(
    project: Path, change: tuple[str, str], is_known: bool
) -> None:
    known.remember_definition(experiment(project))
    assert known.is_known(experiment(project, change)) is is_known


@pytest.mark.parametrize("name", ["sample.sh", "reads.bt", "mine.py"])
def test_a_change_of_its_files_is_asked_again(project: Path, name: str) -> None:
    known.remember_definition(experiment(project))
    (project / "experiments" / name).write_text("# changed")
    assert not known.is_known(experiment(project))


def test_definitions_of_ones_own_project_are_known(project: Path) -> None:
    known.remember_project(project)
    assert known.is_known(experiment(project))
    assert known.is_known(experiment(project, ("--more", "--other")))
    copy = project.parent / "copy"
    shutil.copytree(project, copy)
    assert not known.is_known(experiment(copy)), "another project with the same files"
    inner = project / "theirs"
    shutil.copytree(copy, inner)
    assert not known.is_known(experiment(inner)), "a project inside of it"


def test_definitions_of_pagecage_are_known(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    by_path = Definitions(ROOT, ["pcread"], ROOT).experiment(
        "./experiments/constrained-random.toml"
    )
    assert known.is_known(by_path)
    assert known.is_known(Definitions(ROOT, ["pcread"], ROOT).experiment("constrained-random"))


def test_sections_may_be_executed_after_the_first_run(project: Path) -> None:
    sections = experiment(project).sections
    assert known.accepted_sections(sections.values()) == []
    ask_before_commands(experiment(project), "vm", yes=True)
    assert len(known.accepted_sections(sections.values())) == 1
    assert known.accepted_sections(["# %%\nother"]) == []


def test_without_a_state_folder_it_is_asked_each_time(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/x")
    ask_before_commands(experiment(project), "vm", yes=True)
    assert not known.is_known(experiment(project))


def test_what_is_accepted_is_kept_for_this_user(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(project.parent / "home"))
    known.remember_definition(experiment(project))
    kept = project.parent / "home/.local/state/pagecage/known/definitions"
    assert [path.name for path in kept.iterdir()] == [known.commands_sha256(experiment(project))]
    assert kept.stat().st_mode & 0o777 == 0o700


def test_reading_a_definition_starts_nothing_of_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each program that it names would leave a file."""
    trap = project.parent / "started"
    for name in ("rm", "mkdir"):
        (project.parent / "bin").mkdir(exist_ok=True)
        (project.parent / "bin" / name).write_text(f"#!/bin/sh\n: >{trap}\n")
        (project.parent / "bin" / name).chmod(0o755)
    (project / "experiments/sample.sh").write_text(f"#!/bin/sh\n: >{trap}\n")
    (project / "experiments/mine.py").write_text(f"# %%\nopen({str(trap)!r}, 'w')\n")
    (project / "pagecage.toml").touch()
    monkeypatch.setenv("PATH", f"{project.parent / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(project)
    assert called(["list"]) == 0
    assert called(["run", "experiments/mine.toml", "--dry-run", "--host", "vm"]) == 0
    shown = capsys.readouterr().out
    assert "mine" in shown
    assert "rm -r" in shown
    assert not trap.exists()


def test_a_group_is_named(project: Path) -> None:
    lines = list(command_lines(experiment(project), "on every host of rack"))
    assert lines[0] == "on every host of rack, in the experiment's cages:"
