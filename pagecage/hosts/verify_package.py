"""`pagecage-verify.pyz`: verify as one file, which is copied to a customer's machine.

It needs Python alone, of version 3.9 or newer: older than pagecage's own, because customers have
it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from pagecage.errors import EXIT_HOST
from pagecage.hosts.agent_package import PACKAGE_DIR, zipapp_bytes

FILE_NAME = "pagecage-verify.pyz"
OLDEST_PYTHON = (3, 9)
_FIRST_LINE = b"#!/usr/bin/env python3\n"
_ENTRY = "pagecage.verify.main"
_OLDEST = ".".join(map(str, OLDEST_PYTHON))
_MAIN = f"""import sys
if sys.version_info < {OLDEST_PYTHON}:
    sys.stderr.write("pagecage-verify: Python {_OLDEST} or newer is needed\\n")
    sys.exit({EXIT_HOST})
from {_ENTRY} import main
sys.exit(main(sys.argv[1:]))
""".encode()


def verify_sources(package_dir: Path = PACKAGE_DIR) -> dict[str, Path]:
    """Return the modules that verify imports, directly or not, with their files."""
    found: dict[str, Path] = {}
    waiting = [_ENTRY]
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


def verify_bytes(package_dir: Path = PACKAGE_DIR) -> bytes:
    """Return the file."""
    sources = verify_sources(package_dir).values()
    return zipapp_bytes(_MAIN, sources, package_dir, _FIRST_LINE)


def write_verify_package(folder: Path, package_dir: Path = PACKAGE_DIR) -> Path:
    """Write the file to a folder, executable, and return its path."""
    path, content = folder / FILE_NAME, verify_bytes(package_dir)
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)
    path.chmod(0o755)
    return path
