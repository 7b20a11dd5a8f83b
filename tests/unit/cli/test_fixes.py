"""Fixes of an installed package name no target of make, which only a checkout has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from pagecage.cli.failures import fix_here
from tests.tree import ROOT, files

TARGETS = re.findall(r"(?m)^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text())
COMMAND = re.compile(rf"\bmake ({'|'.join(TARGETS)})\b")


def hints() -> Iterator[str]:
    """Yield strings of the code, besides docstrings, and messages of roles that name a target."""
    for path in files(ROOT / "pagecage", ".py"):
        tree = ast.parse(path.read_text())
        told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and id(node) not in told and path.name != "fixes.py":
                yield node.value
    for path in files(ROOT / "ansible/roles", ".yml"):
        yield from re.findall(r"Fix: ([^\n]*)", path.read_text())


FOUND = sorted({text for text in hints() if COMMAND.search(text)})


def test_fixes_with_make_are_found() -> None:
    assert "make setup" in FOUND
    assert any("make build" in text for text in FOUND)


@pytest.mark.parametrize("hint", FOUND)
def test_an_installed_package_names_a_command_that_it_has(hint: str) -> None:
    assert not COMMAND.search(fix_here(hint, is_installed=True)), hint
    assert fix_here(hint, is_installed=False) == hint
