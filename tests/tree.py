"""The project's own files, without installed, built and measured ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_OURS = frozenset({"build", "target", "runs", "__pycache__"})
HIDDEN_BUT_OURS = frozenset({".ci", ".cargo"})


def files(root: Path, *suffixes: str) -> Iterator[Path]:
    """Return every file of the project under `root` with one of `suffixes` (all files if there are
    none), in a fixed order.
    """
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink():
            if _is_ours(path.name):
                yield from files(path, *suffixes)
        elif path.is_file() and (not suffixes or path.suffix in suffixes):
            yield path


def _is_ours(folder: str) -> bool:
    hidden = folder.startswith(".") and folder not in HIDDEN_BUT_OURS
    return not hidden and folder not in NOT_OURS and not folder.startswith("fresh-")


def shell_scripts(root: Path) -> list[Path]:
    """Return every shell script, by its suffix or its first line."""
    shells = {b"sh", b"bash", b"dash"}
    return [
        path
        for path in files(root)
        if path.suffix in {".sh", ".bash"} or _interpreter(path) in shells
    ]


def python_scripts(root: Path) -> list[Path]:
    """Return every Python script without a suffix, by its first line."""
    return [path for path in files(root) if _interpreter(path).startswith(b"python")]


def _interpreter(path: Path) -> bytes:
    """Return the program in the first line of a file without a suffix, without its folder; empty if
    there is none.
    """
    if path.suffix:
        return b""
    with path.open("rb") as file:
        first = file.readline(100)
    return first.split()[-1].rsplit(b"/", 1)[-1] if first.startswith(b"#!") else b""
