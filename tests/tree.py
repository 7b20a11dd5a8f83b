"""The project's own files, and none that was installed, built or measured beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_OURS = frozenset({".git", ".venv", ".venv-ansible", "build", "target", "runs", "node_modules", "__pycache__"})


def files(root: Path, *suffixes: str) -> Iterator[Path]:
    """Every file of ours under `root` with one of `suffixes` (all files where none is given), in a fixed order."""
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink():
            if path.name not in NOT_OURS and not path.name.endswith(("_cache", ".egg-info")):
                yield from files(path, *suffixes)
        elif path.is_file() and (not suffixes or path.suffix in suffixes):
            yield path


def shell_scripts(root: Path) -> list[Path]:
    """Every shell script, told by its suffix or by its first line."""
    return [path for path in files(root) if path.suffix in {".sh", ".bash"} or _has_shell_line(path)]


def _has_shell_line(path: Path) -> bool:
    if path.suffix:
        return False
    with path.open("rb") as file:
        first = file.readline(100)
    return first.startswith(b"#!") and first.split()[-1].rsplit(b"/", 1)[-1] in {b"sh", b"bash", b"dash"}
