"""A check that the C files of a program depend on each other in one direction only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.tree import ROOT

C = ROOT / "workloads/c"
OUT = ROOT / "build/c"
# types in the output of nm(1): data, code and weak symbols that other files can use
DEFINED_SOMEWHERE = "BDRTV"
FOLDERS = {
    "pclog": "plain",
    "contract": "plain",
    "pcscan": "plain",
    "pcappend": "plain",
    "pccrash": "points",
}
"""The folders with C sources, and the folder of their objects."""


def cycle(objects: Iterable[Path]) -> list[str]:
    """Return the files of a circle in which each uses a symbol of the next, or an empty list."""
    homes: dict[str, str] = {}
    used: dict[str, set[str]] = {}
    for path in objects:
        file = f"{path.parent.name}/{path.stem}.c"
        lines = subprocess.run(
            ["nm", "-P", path], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        symbols = [line.split()[:2] for line in lines]
        homes |= {name: file for name, kind in symbols if kind in DEFINED_SOMEWHERE}
        used[file] = {name for name, kind in symbols if kind == "U"}
    graph = {
        name: {homes[symbol] for symbol in symbols if symbol in homes}
        for name, symbols in used.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.fixture(scope="module")
def compiled() -> None:
    """Compile all C programs, once: make alone takes as long as the check of a folder."""
    subprocess.run(["flock", OUT, "make", "-s", "-C", C, f"OUT={OUT}"], check=True)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("folder", FOLDERS)
def test_c_files_form_no_cycle(folder: str) -> None:
    sources = {
        *(C / folder).glob("*.c"),
        *(C / "pclog").glob("*.c"),
    }  # a program, and the library that it may link
    objects = [
        OUT / FOLDERS[folder] / source.relative_to(C).with_suffix(".o") for source in sources
    ]
    assert len(objects) > 20
    assert cycle(objects) == []


def test_a_cycle_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int b(void);\nint a(void) {\n    return b();\n}\n")
    for text, expected in (
        ("int a(void);\nint b(void) {\n    return a();\n}\n", 2),
        ("int b(void);\n", 0),
    ):
        (tmp_path / "b.c").write_text(text)
        subprocess.run(["gcc", "-c", "a.c", "b.c"], check=True, cwd=tmp_path)
        assert len(set(cycle([tmp_path / "a.o", tmp_path / "b.o"]))) == expected
