"""Caches below a file system, from which a read may be served that the page cache does not hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pagecage.agent.system.block_device import SYS, Disk, stack_names
from pagecage.agent.system.kernel_text import read_text
from pagecage.agent.system.page_cache import evict, measure_residency

_LVM_CACHES = {
    "cpool": "dm-cache",
    "cdata": "dm-cache",
    "cmeta": "dm-cache",
    "cvol": "dm-cache",
    "vdata": "VDO",
    "vpool": "VDO",
}
"""Last part of the dm/uuid of LVM's hidden volumes (lib/activate/dev_manager.c of LVM2)."""


def caches_below(disk: Disk, *, is_evicted: bool, sys: Path = SYS) -> list[dict[str, Any]]:
    """Return each layer of the disk's stack with a cache of its own: `{layer, kind}`.

    A loop device also has the `file` below it, its `file_bytes`, and its `resident_bytes`, which
    are null if it cannot be read. With `is_evicted`, its pages are dropped before they are counted.
    """
    found = []
    for name in stack_names(disk, sys):
        place = sys / "class/block" / name
        if backing := read_text(place / "loop/backing_file"):
            found.append(_loop(name, place, Path(backing.strip()), is_evicted=is_evicted))
        elif (place / "bcache").exists():
            found.append({"layer": name, "kind": "bcache"})
        elif kind := _mapped(read_text(place / "dm/uuid") or ""):
            found.append({"layer": name, "kind": kind})
    return found


def _loop(name: str, place: Path, file: Path, *, is_evicted: bool) -> dict[str, Any]:
    layer = {"layer": name, "kind": "loop", "file": str(file)}
    if (read_text(place / "loop/dio") or "").strip() == "1":
        return {**layer, "file_bytes": None, "resident_bytes": 0}  # it bypasses the page cache
    try:
        state = evict(file) if is_evicted else measure_residency(file)
    except OSError:
        return {**layer, "file_bytes": None, "resident_bytes": None}
    return {**layer, "file_bytes": state.file_bytes, "resident_bytes": state.resident_bytes}


def _mapped(uuid: str) -> str | None:
    """Return the kind of cache that a device-mapper device is or has; None without one."""
    uuid = uuid.strip()
    if uuid.startswith("VDO-"):
        return "VDO"
    return _LVM_CACHES.get(uuid.rpartition("-")[2]) if uuid.startswith("LVM-") else None
