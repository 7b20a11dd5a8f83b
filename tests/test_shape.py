"""Limits on the size of functions and files, and on empty names."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tree import ROOT, files, shell_scripts

MOST_LINES_IN_A_FUNCTION = 40
MOST_LINES_IN_A_FILE = 600
"""A module is a chapter: one subject, and split where a second subject begins."""
DATA = "tests/fixtures"
"""Functions that return literal data may be as long as the data."""
SAY_NOTHING = re.compile(r"^(utils?|helpers?|managers?|misc|common)$")
SAYS_NOTHING_CLASS = re.compile(r"(Manager|Helper|Utils?)$")
RUST_FUNCTION = re.compile(
    r"^(\s*)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |extern \"C\" )*fn (\w+)"
)
SHELL_FUNCTION = re.compile(r"^()(\w+)\(\) \{")


@dataclass(frozen=True)
class Function:
    """A function in a file."""

    name: str
    line: int
    lines: int


def python_functions(text: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(
                node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1
            )


def braced_functions(text: str, start: re.Pattern[str]) -> Iterator[Function]:
    """Yield functions of a formatted source: each ends at the first brace with its own
    indentation.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = start.match(line)
        if match and not line.rstrip().endswith((";", "}")):
            last = next(
                i for i in range(number, len(lines)) if lines[i].startswith(f"{match[1]}}}")
            )
            yield Function(match[2], number + 1, last - number + 1)


def functions(path: Path) -> Iterator[Function]:
    text = path.read_text()
    if path.suffix == ".py":
        return python_functions(text)
    return braced_functions(text, RUST_FUNCTION if path.suffix == ".rs" else SHELL_FUNCTION)


def sources(root: Path) -> list[Path]:
    return [*files(root, ".py", ".rs", ".c", ".h"), *shell_scripts(root)]


def long_functions(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{function.line} {function.name} has {function.lines} lines"
        for path in [*files(root, ".py", ".rs"), *shell_scripts(root)]
        if not path.is_relative_to(root / DATA)
        for function in functions(path)
        if function.lines > MOST_LINES_IN_A_FUNCTION
    ]


def long_files(root: Path) -> list[str]:
    counted = [(path.relative_to(root), path.read_text().count("\n")) for path in sources(root)]
    return [f"{path} has {n} lines" for path, n in counted if n > MOST_LINES_IN_A_FILE]


def empty_names(root: Path) -> list[str]:
    """Return modules and classes whose names say nothing."""
    found = [
        str(p.relative_to(root))
        for p in sources(root)
        if SAY_NOTHING.match(p.stem) or _in_empty_folder(p, root)
    ]
    for path in files(root, ".py"):
        classes = (
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
        )
        empty = (node for node in classes if SAYS_NOTHING_CLASS.search(node.name))
        found += [f"{path.relative_to(root)}:{node.lineno} class {node.name}" for node in empty]
    return found


def _in_empty_folder(path: Path, root: Path) -> bool:
    folders = path.relative_to(root).parts[:-1]
    if path.suffix == ".rs" and folders[-2:] == ("tests", "common"):
        return False  # cargo's own name for code shared by integration tests
    return any(SAY_NOTHING.match(part) for part in folders)


@pytest.mark.parametrize("check", [long_functions, long_files, empty_names])
def test_shape(check: Callable[[Path], list[str]]) -> None:
    assert len(sources(ROOT)) > 10, "hardly a source found: is the tree where this test thinks?"
    offenders = check(ROOT)
    assert not offenders, "\n" + "\n".join(offenders)


LONG_PYTHON = "def long():\n" + "    x = 1\n" * MOST_LINES_IN_A_FUNCTION
LONG_RUST = (
    "impl A {\n    pub(crate) fn long() {\n"
    + "        x();\n" * MOST_LINES_IN_A_FUNCTION
    + "    }\n}\n"
)
LONG_SHELL = "#!/bin/sh\nlong() { # why\n" + "    true\n" * MOST_LINES_IN_A_FUNCTION + "}\n"


@pytest.mark.parametrize(
    ("check", "name", "text"),
    [
        (long_functions, "a.py", LONG_PYTHON),
        (long_functions, "a.rs", LONG_RUST),
        (long_functions, "a", LONG_SHELL),
        (long_files, "a.rs", "//\n" * (MOST_LINES_IN_A_FILE + 1)),
        (empty_names, "utils.py", ""),
        (empty_names, "helpers/a.py", ""),
        (empty_names, "a.py", "class HostManager:\n    pass\n"),
    ],
)
def test_a_breach_is_seen(
    tmp_path: Path, check: Callable[[Path], list[str]], name: str, text: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert len(check(tmp_path)) == 1
    (tmp_path / name).rename(tmp_path / "b.py")
    (tmp_path / "b.py").write_text("def short() -> int:\n    return 1\n")
    assert not check(tmp_path)
