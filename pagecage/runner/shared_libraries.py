"""A program of the controller with what it is linked to, so that it runs on a host that has neither.

It is started by its own loader (ld.so(8), `--library-path`), so that not even the C library is the host's. What a
program opens by itself while it runs (plug-ins, modules, helpers) is not found this way.
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


def parse_ldd(text: str) -> dict[str, str | None]:
    """Libraries and the loader by name, with their paths in `ldd`'s output; None where one was not found."""
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


def carried_program(program: str) -> tuple[tuple[UploadedFile, ...], tuple[str, ...]]:
    """What to carry, and the words that start it there, with {directory} for the place.

    Raises PagecageError for a script, a missing library, and what is no program.
    """
    path = shutil.which(program)
    if path is None:
        raise PagecageError(f"--copy-program: there is no program {program!r} here", "look whether PATH has it")
    _require_elf(Path(path))
    name, linked = Path(path).name, _linked(path)
    parts = [_part(program, path, f"{_FOLDER}/{name}")]
    parts += [_part(library, source, f"{_FOLDER}/lib/{library}") for library, source in linked.items()]
    loader = next((library for library in linked if library.startswith("ld")), None)
    inside = f"{{directory}}/{_FOLDER}"
    if loader is None:
        return tuple(parts), (f"{inside}/{name}",)
    start = (f"{inside}/lib/{loader}", "--library-path", f"{inside}/lib", "--argv0", name, f"{inside}/{name}")
    return tuple(parts), start


def _part(typed: str, source: str, name: str) -> UploadedFile:
    return UploadedFile(typed, source, name, Path(source).stat().st_size)


def _require_elf(path: Path) -> None:
    with path.open("rb") as file:
        head = file.readline(200)
    if head.startswith(b"#!"):
        interpreter = head[2:].decode(errors="replace").split()[:1]
        raise PagecageError(
            f"--copy-program: {path} is a script of {' '.join(interpreter)}, and only programs can be carried",
            f"--copy {path}, and name its interpreter in the command",
        )
    if not head.startswith(b"\x7fELF"):
        raise PagecageError(f"--copy-program: {path} is no program of this machine", f"file {path}")


def _linked(path: str) -> dict[str, str]:
    """Libraries with their paths; none for a static program, of which ldd says so and fails."""
    done = run(["ldd", path], check=False, timeout_seconds=30)
    linked = parse_ldd(done.stdout)
    if missing := [name for name, source in linked.items() if source is None]:
        raise PagecageError(f"--copy-program: {path} lacks {missing[0]} on this machine too", f"ldd {path}")
    return {name: source for name, source in linked.items() if source}
