"""Looking before a long step whether it can be finished: the tools, and the room on the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from pagecage.errors import HostError
from pagecage.process import find_tool
from pagecage.units import format_bytes


def require_tools(*names: str) -> None:
    """Raises HostError naming the programs that are not installed."""
    missing = [name for name in names if find_tool(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise HostError(f"{', '.join(missing)} {verb} not installed, and the vm is made with it", "make setup")


def require_room(directory: Path, wanted_bytes: int, purpose: str) -> None:
    """Raises HostError when the disk of `directory` has less than that free."""
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < wanted_bytes:
        raise HostError(
            f"{directory} has {format_bytes(free_bytes)} free, {purpose} takes {format_bytes(wanted_bytes)}",
            "free some room there, or set XDG_CACHE_HOME to a directory on a bigger disk",
        )
