"""Sweeping what the cache no longer needs."""

from __future__ import annotations

import shutil
from pathlib import Path


def keep_newest(directory: Path, count: int) -> list[Path]:
    """Remove all but the `count` last used entries, and every unfinished `.part`; returns what was removed."""
    entries = sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    whole = [path for path in entries if path.suffix != ".part"]
    doomed = whole[count:] + [path for path in entries if path.suffix == ".part"]
    for path in doomed:
        shutil.rmtree(path, ignore_errors=True)
    return doomed
