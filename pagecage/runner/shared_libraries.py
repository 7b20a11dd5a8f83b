"""A program with its shared libraries, for a host that has neither.

It is started by its own loader (ld.so(8), `--library-path`), so that it does not use the host's C
library. Files that the program opens at run time (plug-ins, modules, helpers) are not found this
way.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from pagecage.errors import PagecageError
from pagecage.process import run
from pagecage.runner.uploads import UploadedFile

_LINKED = re.compile(r"^\s*(?P<name>\S+)(?: => (?P<path>/\S+|not found))?(?: \(0x[0-9a-f]+\))?$")
_FOLDER = "program"
_ELF = b"\x7fELF"


def parse_ldd(text: str) -> dict[str, str | None]:
    """Return the paths of the libraries and the loader in the output of ldd(1), by name.

    None if a library was not found.
    """
    found: dict[str, str | None] = {}
    for line in text.splitlines():
        match = _LINKED.match(line)
        if not match or match["name"] in ("statically", "linux-vdso.so.1", "linux-gate.so.1"):
            continue
        if match["path"] is None and not match["name"].startswith("/"):
            continue
        path = match["path"] or match["name"]
        found[Path(match["name"]).name] = None if path == "not found" else path
    return found


def program_uploads(program: str) -> tuple[tuple[UploadedFile, ...], tuple[str, ...]]:
    """Return the files to copy, and the command that starts the program from {directory}.

    Raises PagecageError for a script, for a missing library, and for a file that is not a program.
    """
    path = shutil.which(program)
    if path is None:
        raise PagecageError(
            f"--copy-program: there is no program {program!r} on this machine", "check PATH"
        )
    _require_elf(Path(path))
    name, libraries = Path(path).name, _find_libraries(path)
    files = [_upload(program, path, f"{_FOLDER}/{name}")]
    files += [
        _upload(library, source, f"{_FOLDER}/lib/{library}")
        for library, source in libraries.items()
    ]
    loader = next((library for library in libraries if library.startswith("ld")), None)
    folder = f"{{directory}}/{_FOLDER}"
    if loader is None:
        return tuple(files), (f"{folder}/{name}",)
    start = (
        f"{folder}/lib/{loader}",
        "--library-path",
        f"{folder}/lib",
        "--argv0",
        name,
        f"{folder}/{name}",
    )
    return tuple(files), start


def _upload(typed: str, source: str, name: str) -> UploadedFile:
    return UploadedFile(typed, source, name, Path(source).stat().st_size)


def is_elf(path: Path) -> bool:
    """Return whether a file is a binary program or library."""
    with path.open("rb") as file:
        return file.read(4) == _ELF


def _require_elf(path: Path) -> None:
    with path.open("rb") as file:
        head = file.readline(200)
    if head.startswith(b"#!"):
        interpreter = head[2:].decode(errors="replace").split()[:1]
        raise PagecageError(
            f"--copy-program: {path} is a script for {' '.join(interpreter)}, not a binary",
            f"copy the script with --copy {path}, and name its interpreter in the command",
        )
    if not head.startswith(_ELF):
        raise PagecageError(f"--copy-program: {path} is not an ELF program", f"file {path}")


def _find_libraries(path: str) -> dict[str, str]:
    """Return the paths of a program's libraries by name.

    Empty for a static program, for which ldd(1) fails.
    """
    done = run(["ldd", path], check=False, timeout_seconds=30)
    libraries = parse_ldd(done.stdout)
    if missing := [name for name, source in libraries.items() if source is None]:
        raise PagecageError(
            f"--copy-program: {path} needs {missing[0]}, which is not installed", f"ldd {path}"
        )
    return {name: source for name, source in libraries.items() if source}
