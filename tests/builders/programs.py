"""Programs of tests: files that can be executed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def install(path: Path, text: str) -> Path:
    """Write an executable file, and its folder if it is missing; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def install_first(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write an executable file, and put its folder before the others of PATH."""
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    return install(path, text)
