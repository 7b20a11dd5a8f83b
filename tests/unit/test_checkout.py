"""The folders that pagecage reads and writes, and the project above a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.checkout import MARKER, TOP, find_project, user_folder
from tests.tree import ROOT


def test_the_tests_run_from_a_checkout() -> None:
    assert TOP == ROOT


def test_a_project_is_found_from_below(tmp_path: Path) -> None:
    below = tmp_path / "a/b"
    below.mkdir(parents=True)
    assert find_project(below) not in (tmp_path, below)
    (tmp_path / MARKER).touch()
    assert find_project(below) == tmp_path
    assert find_project(tmp_path) == tmp_path


def test_the_nearest_project_counts(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    for folder in (tmp_path, inner):
        for part in ("experiments", "cgroups"):
            (folder / part).mkdir(parents=True)
    assert find_project(inner / "experiments") == inner


def test_one_of_the_two_folders_is_no_project(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    assert find_project(tmp_path) != tmp_path
    (tmp_path / "cgroups").mkdir()
    assert find_project(tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("given", "base"), [("/var/x", "/var/x"), ("x", "~/.state"), ("", "~/.state")]
)
def test_a_folder_of_the_user(monkeypatch: pytest.MonkeyPatch, given: str, base: str) -> None:
    """The XDG specification: a relative path is ignored."""
    monkeypatch.setenv("XDG_STATE_HOME", given)
    expected = Path(base).expanduser() / "pagecage"
    assert user_folder("XDG_STATE_HOME", ".state") == expected
