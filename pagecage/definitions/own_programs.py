"""Files that a definition brings along as texts: programs, collectors, scripts, report sections."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.checkout import find_project
from pagecage.definitions.collector_tables import is_beside
from pagecage.errors import PagecageError, nearest
from pagecage.units import MIB, format_bytes

FOLDER = "programs"
_NAMED = re.compile(r"\{programs\}/([A-Za-z0-9._-]*)")
_SECTION = re.compile(r"(\./)?[A-Za-z0-9][A-Za-z0-9._-]*\.py")
_MOST_BYTES = MIB


def own_programs(definition: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Return the texts of the programs that the definition in `path` names, by name.

    `{programs}/NAME` in any of its words names experiments/programs/NAME. A word of a collector
    that begins with ./ names a file beside the definition, and so does a bpftrace script. Raises
    PagecageError for a file that is missing, is not text, or is larger than 1 MiB.
    """
    folder = path.parent / FOLDER
    names = sorted({name for word in _words(definition) for name in _NAMED.findall(word)})
    found = {name: _read(folder, name, path) for name in names}
    for word in dict.fromkeys(_words_beside(definition)):
        file = _inside(path, word)
        if file.name in found:
            raise PagecageError(
                f"{path.name}: two of its files are named {file.name!r}", f"rename {file}"
            )
        found[file.name] = _read(file.parent, file.name, path)
    return found


def own_sections(definition: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Return the texts of the definition's own parts of the report, by file name.

    Raises PagecageError for a name that is no Python file beside the definition, and like
    own_programs().
    """
    names: Sequence[str] = definition.get("sections", ())
    for name in names:
        if not _SECTION.fullmatch(name):
            raise PagecageError(
                f"{path.name}: sections: {name!r} is not the name of a Python file beside it",
                f"move it to {path.parent}, and name it as in mine.py",
            )
    files = [_inside(path, name) for name in names]
    return {file.name: _read(file.parent, file.name, path) for file in files}


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


def _words_beside(definition: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of collectors and scripts that name files beside the definition."""
    collectors = definition.get("collectors")
    tables = collectors.values() if isinstance(collectors, dict) else ()
    commands = [table["command"] for table in tables if isinstance(table, dict)]
    commands.append((definition.get("bpftrace") or {}).get("scripts", ()))
    yield from (word for command in commands for word in command if is_beside(word))


def _inside(path: Path, word: str) -> Path:
    """Return the file beside the definition that a word names.

    Raises PagecageError if it is outside of the definition's project, or of its folder without one.
    """
    file = (path.parent / word).resolve()
    top = (find_project(path.absolute().parent) or path.parent).resolve()
    if not file.is_relative_to(top):
        raise PagecageError(f"{path.name}: {word!r} is outside of {top}", "move it there")
    return file


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
