"""The tests in Rust, of every library and of every program as it is started, and the dependencies
of modules.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from pagecage.process import run
from tests.cargo import cargo
from tests.tree import ROOT, files

FEW_CASES = {"PROPTEST_CASES": "32"}
"""Number of cases per property; proptest's default is 256."""
SOURCES = (*files(ROOT / "workloads", ".rs"), *files(ROOT / "volume", ".rs"))
CRATES = sorted(
    path.parent for path in (ROOT / "volume/Cargo.toml", *(ROOT / "workloads").glob("*/Cargo.toml"))
)
USED = re.compile(r"\bcrate::(?:(\w+)|\{([^}]*)\})")
FIRST_NAMES = re.compile(r"(?:^|,)\s*(\w+)")


def ran(*words: str, **environment: str) -> int:
    """Run tests and return their number. If one fails, fail with cargo's output."""
    path = f"{os.environ['PATH']}:{Path.home() / '.cargo/bin'}"
    argv = [*cargo("test"), *words]
    done = run(argv, check=False, timeout_seconds=880, cwd=ROOT, env={**environment, "PATH": path})
    if not done.ok:
        pytest.fail(f"{done.stdout[-8000:]}{done.stderr[-4000:]}", pytrace=False)
    return sum(map(int, re.findall(r"^test result: ok\. (\d+) passed", done.stdout, re.MULTILINE)))


def written() -> int:
    """Return the number of tests in the sources."""
    return sum(
        len(re.findall(r"^ *#\[test\]$", path.read_text(), re.MULTILINE)) for path in SOURCES
    )


@pytest.mark.slow
def test_libraries_and_programs() -> None:
    """Skip `main.rs` and examples in comments: they hold no test, and linking them takes half a
    minute.
    """
    assert ran("--lib", "--test", "*", **FEW_CASES) == written()


@pytest.mark.long
def test_properties_with_every_case() -> None:
    assert ran() == written()


def dependencies(crate: Path) -> dict[str, set[str]]:
    """Return the modules that each module of a crate names.

    A module's children count as part of it.
    """
    found: dict[str, set[str]] = {}
    for path in files(crate / "src", ".rs"):
        module = path.relative_to(crate / "src").parts[0].removesuffix(".rs")
        if module not in {"lib", "main"}:
            found.setdefault(module, set()).update(_used_in(path.read_text()))
    return {module: (used & found.keys()) - {module} for module, used in found.items()}


def _used_in(text: str) -> Iterator[str]:
    for single, several in USED.findall(text):
        yield from FIRST_NAMES.findall(several) if several else [single]


def cycle(crate: Path) -> list[str]:
    """Return a cycle among the modules of a crate; empty if there is none."""
    try:
        TopologicalSorter(dependencies(crate)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("crate", CRATES, ids=lambda crate: crate.name)
def test_modules_depend_on_each_other_one_way(crate: Path) -> None:
    assert not cycle(crate)


def test_a_cycle_of_modules_is_found(tmp_path: Path) -> None:
    (tmp_path / "src/a").mkdir(parents=True)
    (tmp_path / "src/lib.rs").write_text("mod a;\nmod b;\nmod c;\nuse crate::a::A;\n")
    (tmp_path / "src/a/child.rs").write_text("use crate::{b::B, c};\nuse super::A;\n")
    (tmp_path / "src/b.rs").write_text("use crate::c::C;\n")
    (tmp_path / "src/c.rs").write_text("use contract::b;\n")
    assert cycle(tmp_path) == []
    (tmp_path / "src/c.rs").write_text("fn c() -> crate::a::A {}\n")
    assert sorted(set(cycle(tmp_path))) in (["a", "b", "c"], ["a", "c"])
