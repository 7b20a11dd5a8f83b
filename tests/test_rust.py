"""The Rust tests of every library and program."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pagecage.process import run
from tests.cargo import cargo
from tests.tree import ROOT, files

FEW_CASES = {"PROPTEST_CASES": "32"}
"""The number of examples per property; proptest's own default is 256."""
SOURCES = tuple(files(ROOT / "workloads", ".rs"))


def ran(*words: str, **environment: str) -> int:
    """Run tests; return their number. Fails with cargo's output if one fails."""
    path = f"{os.environ['PATH']}:{Path.home() / '.cargo/bin'}"
    argv = [*cargo("test"), *words]
    done = run(argv, check=False, timeout_seconds=880, cwd=ROOT, env={**environment, "PATH": path})
    if not done.ok:
        pytest.fail(f"{done.stdout[-8000:]}{done.stderr[-4000:]}", pytrace=False)
    return sum(map(int, re.findall(r"^test result: ok\. (\d+) passed", done.stdout, re.MULTILINE)))


def written() -> int:
    """Return the number of tests to run."""
    return sum(len(re.findall(r"^ *#\[test\]$", path.read_text(), re.MULTILINE)) for path in SOURCES)


def test_libraries_and_programs() -> None:
    """`main.rs` and examples in comments are left out: they have no tests, and linking them takes
    half a minute.
    """
    assert ran("--lib", "--test", "*", **FEW_CASES) == written()


@pytest.mark.long
def test_properties_with_every_case() -> None:
    assert ran() == written()
