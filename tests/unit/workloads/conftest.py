"""Fixtures for the tests of pcappend."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.pcappend import Program
from tests.tree import ROOT


@pytest.fixture(scope="session")
def pcappend_binary() -> Path:
    """pcappend, rebuilt if its sources have changed; a lock separates concurrent test processes."""
    assert shutil.which("gcc"), "there is no gcc: make setup"
    out = ROOT / "build/c"
    out.mkdir(parents=True, exist_ok=True)
    make: list[str | Path] = [
        "make",
        "-s",
        "-C",
        ROOT / "workloads/c",
        f"OUT={out}",
        out / "pcappend",
    ]
    subprocess.run(["flock", out, *make], check=True)
    return out / "pcappend"


@pytest.fixture
def pcappend(pcappend_binary: Path, tmp_path: Path) -> Iterator[Program]:
    folder = tmp_path / "data"
    folder.mkdir()
    yield Program(pcappend_binary, folder)
    assert not list(folder.iterdir()), "pcappend must remove its files however it ends"
