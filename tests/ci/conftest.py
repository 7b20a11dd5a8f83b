"""A project of the user's own, and a PATH with this checkout's pagecage."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from pagecage.process import run
from tests.checkout import environment
from tests.tree import ROOT

READER = """import sys
for _ in range(int(sys.argv[1])):
    open("data.bin", "rb").read()
"""


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the command `pagecage`, as an installation would add it to the PATH."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "pagecage"
    python = shlex.quote(sys.executable)
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {python} -m pagecage.cli.main "$@"\n'
    )
    script.chmod(0o755)
    return folder


def make_project(folder: Path, path: Path) -> Path:
    """Make a project with the experiment `reader`, which reads a file once."""
    folder.mkdir()
    (folder / "read.py").write_text(READER)
    (folder / "data.bin").write_bytes(bytes(range(256)) * 4096)
    words = ("init", "--ci", "none", "--name", "reader")
    run(
        [path / "pagecage", *words, "--", "python3", "read.py", "1", "data.bin"],
        cwd=folder,
        env=environment(folder),
    )
    return folder
