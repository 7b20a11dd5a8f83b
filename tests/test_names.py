"""Rules about names and docstrings that keep the code readable."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tree import ROOT, files

QUESTION = re.compile(r"(What|Who|Whose|Which|How|So|Whether)\b")


def modules(root: Path) -> list[Path]:
    return [path for package in ("pagecage", "analysis") for path in files(root / package, ".py")]


def repeated_classes(root: Path) -> list[str]:
    """Return public class names that two modules define."""
    places = defaultdict(list)
    for path in modules(root):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(root)))
    return [
        f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1
    ]


def questions(root: Path) -> list[str]:
    """Return docstrings that begin with a question word."""
    return [
        f"{place}: {text.splitlines()[0]}"
        for place, text in docstrings(root)
        if QUESTION.match(text)
    ]


def docstrings(root: Path) -> Iterator[tuple[str, str]]:
    for path in modules(root):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
                text := ast.get_docstring(node)
            ):
                yield f"{path.relative_to(root)}:{getattr(node, 'lineno', 1)}", text


def imports_of_tests(root: Path) -> list[str]:
    """Return test modules that import another; what they share belongs to tests/builders."""
    found = []
    for path in files(root / "tests", ".py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.module if isinstance(node, ast.ImportFrom) else None
            if name and name.startswith("tests.") and name.rpartition(".")[2].startswith("test_"):
                found.append(f"{path.relative_to(root)} imports {name}")
    return found


RULES = (repeated_classes, questions, imports_of_tests)


@pytest.mark.parametrize("rule", RULES)
def test_names(rule: Callable[[Path], list[str]]) -> None:
    found = rule(ROOT)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("rule", "written"),
    [
        (
            repeated_classes,
            {"pagecage/a.py": "class Plan: ...\n", "analysis/b.py": "class Plan: ...\n"},
        ),
        (questions, {"pagecage/a.py": 'def f():\n    """What it is."""\n'}),
        (imports_of_tests, {"tests/unit/test_b.py": "from tests.unit.test_a import made\n"}),
    ],
)
def test_a_breach_is_found(
    tmp_path: Path, rule: Callable[[Path], list[str]], written: dict[str, str]
) -> None:
    for folder in ("pagecage", "analysis", "tests"):
        (tmp_path / folder).mkdir()
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert rule(tmp_path)
