"""A copy of the checkout that a test may damage, and its command line."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.errors import EXIT_USAGE, RUNNERS, runner_code
from pagecage.process import PIPE, Completed, run, spawn
from tests.tree import ROOT

SOURCES = (
    *("workloads/pc*/src/main.rs", "workloads/c/*/*.c", "workloads/python/*.py"),
    *("workloads/java/*.java", "workloads/lucene/*.java"),
)
PLAIN = ("--host", "local", "--dataset", "smoke")
ANALYSIS = """
def render(folder, include, known_sections):
    return f"render {folder}"
def load(folder, include):
    return f"show {folder}"
def tables(loaded, form):
    return f"analysis {loaded} {form}".strip() + "\\n"
"""


class Checkout:
    """The harness and its definitions in a folder of their own, with a command line from
    tests/preloaded.py.
    """

    def __init__(self, top: Path, program: str = "preloaded.py") -> None:
        self.top = top
        for name in ("pagecage", "experiments", "cgroups"):
            shutil.copytree(ROOT / name, top / name, ignore=shutil.ignore_patterns("*.pyc.*"))
        for folder in ("build/host/bin", "docs/schema", "analysis", "told"):
            (top / folder).mkdir(parents=True)
        for source in (path for pattern in SOURCES for path in ROOT.glob(pattern)):
            (top / source.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            (top / source.relative_to(ROOT)).touch()
        for workload in ("pcgen", "pcread"):
            (top / "build/host/bin" / workload).write_text("#!/bin/sh\n")
        self.write_analysis()
        self._pristine = {path: path.read_bytes() for path in _files(top)}
        self._stamps = {path: _stamp(path) for path in self._pristine}
        argv = [sys.executable, str(ROOT / "tests" / program)]
        self.preloaded = spawn(
            argv, stdin=PIPE, stdout=PIPE, stderr=None, env=environment(top), cwd=top
        )
        assert self.preloaded.stdout is not None
        assert self.preloaded.stdout.readline() == b"ready\n"

    def write_analysis(self) -> None:
        """Write the package `analysis`, which here returns the arguments."""
        (self.top / "analysis/__init__.py").touch()
        (self.top / "analysis/results.py").write_text(ANALYSIS)

    def renew(self) -> None:
        """Restore every file that a test changed, and remove every file that it made."""
        found = set(_files(self.top))
        for path in found - self._stamps.keys():
            path.unlink()
        shutil.rmtree(self.top / "runs", ignore_errors=True)
        for path, stamp in self._stamps.items():
            if path not in found or _stamp(path) != stamp:
                path.unlink(missing_ok=True)
                path.write_bytes(self._pristine[path])
                self._stamps[path] = _stamp(path)

    def run(self, *words: str) -> Completed:
        """Run a command in a process that has already imported its modules."""
        assert self.preloaded.stdin is not None
        assert self.preloaded.stdout is not None
        out, err = self.top / "told/stdout", self.top / "told/stderr"
        for path in (out, err):
            path.write_text("")
        asked = {"argv": words, "cwd": str(self.top), "stdout": str(out), "stderr": str(err)}
        self.preloaded.stdin.write(json.dumps(asked).encode() + b"\n")
        status = int(self.preloaded.stdout.readline())
        return Completed(("pagecage", *words), status, out.read_text(), err.read_text())

    def end(self) -> None:
        assert self.preloaded.stdin is not None
        self.preloaded.stdin.close()
        assert self.preloaded.wait(30) == 0


def _files(folder: Path) -> Iterator[Path]:
    """Yield files, pipes and links below a folder without following links."""
    for where, folders, names in os.walk(folder):
        yield from (Path(where, name) for name in names)
        yield from (path for name in folders if (path := Path(where, name)).is_symlink())


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_mtime_ns, found.st_size, found.st_mode


CHECKOUTS: dict[Path, Checkout] = {}


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    made = Checkout(tmp_path_factory.mktemp("checkout"))
    CHECKOUTS[made.top] = made
    yield made
    made.end()


@pytest.fixture
def top(copy: Checkout) -> Path:
    """The folder of a checkout that a test may damage."""
    copy.renew()
    return copy.top


def environment(top: Path) -> dict[str, str]:
    caches = {
        "XDG_CACHE_HOME": str(top / "cache"),
        "HOME": str(top),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return {**caches, "PYTHONPATH": str(top), "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


def pagecage(top: Path, *words: str) -> Completed:
    return CHECKOUTS[top].run(*words)


def freshly(top: Path, *words: str) -> Completed:
    """Run the same in a new interpreter, as a shell would start it."""
    argv = [sys.executable, "-m", "pagecage.cli.main", *words]
    return run(argv, check=False, cwd=top, env=environment(top), timeout_seconds=60)


def refused(top: Path, *words: str, status: int = EXIT_USAGE) -> str:
    """Return the error for bad input. The command must exit with 2, or 125 where a program's status
    is passed on, print neither traceback nor data, and start nothing.
    """
    done = pagecage(top, *words)
    assert done.status == (runner_code(status) if words[0] in RUNNERS else status), done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert not (top / "runs").exists()
    return " ".join(done.stderr.split())
