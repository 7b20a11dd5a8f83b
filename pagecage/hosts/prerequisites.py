"""Checks before a long step: installed programs, and free space."""

from __future__ import annotations

import shutil
from pathlib import Path

from pagecage.errors import HostError
from pagecage.process import find_tool
from pagecage.units import format_bytes


def require_tools(*names: str) -> None:
    """Raise HostError naming the programs that are not installed."""
    missing = [name for name in names if find_tool(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise HostError(f"{', '.join(missing)} {verb} not installed; the vm needs it", "make setup")


def require_free_space(directory: Path, needed_bytes: int, purpose: str) -> None:
    """Raise HostError if the disk of `directory` has less free space than needed."""
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < needed_bytes:
        raise HostError(
            f"{directory} has {format_bytes(free_bytes)} free; {purpose} needs"
            f" {format_bytes(needed_bytes)}",
            "free some space, or set XDG_CACHE_HOME to a directory on a larger disk",
        )
