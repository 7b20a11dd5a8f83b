"""The project's own files, and none that was installed, built or measured beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_OURS = frozenset({"build", "target", "runs", "__pycache__"})
HIDDEN_BUT_OURS = frozenset({".ci", ".cargo"})


def files(root: Path, *suffixes: str) -> Iterator[Path]:
    """Every file of ours under `root` with one of `suffixes` (all files where none is given), in a fixed order."""
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
    """Every shell script, told by its suffix or by its first line."""
    return [path for path in files(root) if path.suffix in {".sh", ".bash"} or _has_shell_line(path)]


def _has_shell_line(path: Path) -> bool:
    if path.suffix:
        return False
    with path.open("rb") as file:
        first = file.readline(100)
    return first.startswith(b"#!") and first.split()[-1].rsplit(b"/", 1)[-1] in {b"sh", b"bash", b"dash"}
