"""The modules that one part of pagecage imports, for a file that is copied to other machines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from pagecage.hosts.agent_package import PACKAGE_DIR


def module_files(entry: str, package_dir: Path = PACKAGE_DIR) -> dict[str, Path]:
    """Return the modules of pagecage that `entry` imports, directly or not, with their files."""
    found: dict[str, Path] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        path = _file_of(name, package_dir)
        if name not in found and path is not None:
            found[name] = path
            waiting += [*_parents(name), *_imports(path)]
    return found


def _file_of(name: str, package_dir: Path) -> Path | None:
    """Return the file of a module or package; None for a name within a module."""
    place = package_dir.parent.joinpath(*name.split("."))
    candidates = (place.with_suffix(".py"), place / "__init__.py")
    return next((path for path in candidates if path.exists()), None)


def _parents(name: str) -> Iterator[str]:
    while name := name.rpartition(".")[0]:
        yield name


def _imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports from pagecage, and the names that may be modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pagecage"):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
