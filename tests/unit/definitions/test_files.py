"""Experiments and cages of a project beside those of pagecage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pagecage.definitions.reader import Definitions
from pagecage.errors import PagecageError
from tests.tree import ROOT

SMOKE = (ROOT / "experiments/smoke.toml").read_text()
PROGRAMS = ["pcread"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    top = tmp_path / "project"
    for folder in ("experiments", "cgroups"):
        (top / folder).mkdir(parents=True)
    return top


def known(project: Path) -> Definitions:
    return Definitions(ROOT, PROGRAMS, project)


def test_both_kinds_are_known(project: Path) -> None:
    (project / "experiments/mine.toml").write_text(SMOKE)
    names = known(project).experiment_names()
    assert {"mine", "smoke", "prefault"} <= {*names}
    assert known(project).experiments.own_names() == ["mine"]
    assert known(project).experiments.replacing() == []


def test_of_two_with_one_name_the_projects_counts(project: Path) -> None:
    (project / "experiments/smoke.toml").write_text(SMOKE.replace("Is every", "Is mine"))
    assert known(project).experiment("smoke").question.startswith("Is mine")
    assert known(project).experiment("smoke").project == project
    assert known(project).experiments.replacing() == ["smoke"]
    assert known(project).experiment_names().count("smoke") == 1
    assert Definitions(ROOT, PROGRAMS).experiment("smoke").project is None


def test_a_cage_of_the_project_is_used_by_either(project: Path) -> None:
    (project / "cgroups/smoke.toml").write_text('about = "mine"\nIOReadIOPSMax = 7\n')
    assert known(project).cage("smoke", None).properties["IOReadIOPSMax"] == 7
    assert known(project).cage("customer", None).properties["IOReadIOPSMax"] == 5000


def test_a_file_is_an_experiment_wherever_it_lies(project: Path, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.toml"
    path.write_text(SMOKE)
    found = known(project).experiment(str(path))
    assert (found.name, found.project) == ("elsewhere", project)


def test_a_project_without_experiments_says_how_to_make_one(project: Path) -> None:
    with pytest.raises(PagecageError) as refusal:
        known(project).experiment("zzz")
    assert f"the project {project} defines none" in refusal.value.message
    assert "pagecage init" in refusal.value.hint
    with pytest.raises(PagecageError) as refusal:
        known(project).experiment("smoek")
    assert 'did you mean "smoke"' in refusal.value.hint


def test_the_folder_of_a_user_without_a_project_is_not_blamed(tmp_path: Path) -> None:
    with pytest.raises(PagecageError) as refusal:
        known(tmp_path / "share/pagecage").experiment("zzz")
    assert refusal.value.message == "there is no experiment 'zzz'"


def test_a_workload_that_nobody_has(project: Path) -> None:
    (project / "experiments/mine.toml").write_text(SMOKE.replace('"pcread"', '"theirs"'))
    with pytest.raises(PagecageError, match="there is no workload 'theirs'"):
        known(project).experiment("mine")


@pytest.mark.parametrize("stem", ["My Run", "-x", "a.b", "x" * 80, "ü"])
def test_a_stem_that_cannot_name_runs(project: Path, stem: str) -> None:
    path = project / f"experiments/{stem}.toml"
    path.write_text(SMOKE)
    for name in (stem, str(path)):
        with pytest.raises(PagecageError) as refusal:
            known(project).experiment(name)
        assert "is not a valid name for an experiment" in refusal.value.message


def test_the_control_cannot_be_replaced(project: Path) -> None:
    (project / "cgroups/uncaged.toml").write_text("IOReadIOPSMax = 7\n")
    with pytest.raises(PagecageError, match="is the control without limits"):
        known(project).cage("uncaged", None)


def test_a_missing_file(project: Path) -> None:
    with pytest.raises(PagecageError, match="No such file"):
        known(project).experiment("./nowhere/x.toml")


def test_a_project_may_lack_either_folder(project: Path) -> None:
    shutil.rmtree(project / "cgroups")
    assert "customer" in known(project).cage_names()
