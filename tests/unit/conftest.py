"""What several tests of one program stand on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tree import ROOT
from tests.unit.pcappend import Program


@pytest.fixture(scope="session")
def pcappend_binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert shutil.which("gcc"), "there is no gcc: make setup"
    out = tmp_path_factory.mktemp("pcappend")
    subprocess.run(["make", "-s", "-C", ROOT / "workloads/c", f"OUT={out}", out / "pcappend"], check=True)
    return out / "pcappend"


@pytest.fixture
def pcappend(pcappend_binary: Path, tmp_path: Path) -> Iterator[Program]:
    folder = tmp_path / "data"
    folder.mkdir()
    yield Program(pcappend_binary, folder)
    assert not list(folder.iterdir()), "its files must go with it, however it ends"
