"""A definition's own programs: scripts in experiments/programs/ that it names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pagecage.errors import PagecageError, nearest
from pagecage.units import MIB, format_bytes

FOLDER = "programs"
_NAMED = re.compile(r"\{programs\}/([A-Za-z0-9._-]*)")
_MOST_BYTES = MIB


def own_programs(definition: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Return the texts of the programs that the definition in `path` names, by name.

    `{programs}/NAME` in any of its words names experiments/programs/NAME. Raises PagecageError for
    a program that is missing, is not text, or is larger than 1 MiB.
    """
    folder = path.parent / FOLDER
    names = sorted({name for word in _words(definition) for name in _NAMED.findall(word)})
    return {name: _read(folder, name, path) for name in names}


def definition_sha256(path: Path, programs: Mapping[str, str]) -> str:
    """Return the hash of the definition's file and of its own programs."""
    digest = hashlib.sha256(path.read_bytes())
    for name, text in programs.items():
        digest.update(f"\0{name}\0{text}".encode())
    return digest.hexdigest()


def _words(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    values = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    for value in values:
        yield from _words(value)


def _read(folder: Path, name: str, path: Path) -> str:
    program = folder / name
    if not program.is_file():
        known = sorted(one.name for one in folder.glob("*") if one.is_file())
        raise PagecageError(
            f"{path.name}: there is no program {name!r} in {folder}",
            nearest(name, known) if known else f"write {program}",
        )
    if (size_bytes := program.stat().st_size) > _MOST_BYTES:
        raise PagecageError(
            f"{path.name}: {program} has {format_bytes(size_bytes)}; a definition's own program"
            f" has at most {format_bytes(_MOST_BYTES)}",
            "let the program fetch or make what it needs",
        )
    try:
        return program.read_text()
    except UnicodeDecodeError:
        raise PagecageError(
            f"{path.name}: {program} is not text", "write a script, or add a workload"
        ) from None
    except OSError as error:
        raise PagecageError(
            f"{program} cannot be read: {error.strerror}", f"ls -l {program}"
        ) from None
