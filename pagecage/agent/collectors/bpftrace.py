"""Faults and read-ahead of the trial's files, as bpftrace counts them in kernel maps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from pathlib import Path
from typing import Any

from pagecage.agent.children import Children
from pagecage.agent.collectors.collector import Outcome
from pagecage.agent.collectors.fault_flags import FAULT_FLAGS, VM_FLAGS, decode
from pagecage.agent.collectors.tracer import TICK, Tracer

# Each pointer is cast by itself: the chain vmf->vma->vm_file->f_inode does not compile. The read-ahead's file is
# reached through its mapping, because ractl->file may be null.
_FAULT = """
fentry:vmlinux:filemap_fault {
  $file = (struct file *)args.vmf->vma->vm_file;
  $inode = (struct inode *)$file->f_inode;
  @fault[$inode->i_ino, (uint64)args.vmf->vma->vm_flags, (uint64)args.vmf->flags,
         (uint64)$file->f_ra.ra_pages] = count();
}
"""
_READAHEAD = """
fentry:vmlinux:page_cache_ra_order {
  $mapping = (struct address_space *)args.ractl->mapping;
  $host = (struct inode *)$mapping->host;
  @ra[$host->i_ino, (uint64)args.ra->size] = count();
}
"""
_TICK = f"interval:ms:250 {{ print(@fault); print(@ra); {TICK} }}\n"


def program() -> str:
    """The bpftrace program, whole."""
    return _FAULT + _READAHEAD + _TICK


def tables_of(maps: dict[str, dict[str, int]], inodes: Set[int]) -> dict[str, list[dict[str, Any]]]:
    """Running totals of these inodes together, with the flag words spelled out."""
    faults = _of_inodes(maps.get("@fault", {}), inodes)
    windows = _of_inodes(maps.get("@ra", {}), inodes)
    return {
        "filemap_fault": [_fault(words, count) for words, count in faults.items()],
        "page_cache_ra_order": [{"pages": pages, "count": count} for (pages,), count in windows.items()],
    }


def _of_inodes(rows: dict[str, int], inodes: Set[int]) -> Counter[tuple[int, ...]]:
    """Counts by what follows the inode in a map's key."""
    counted: Counter[tuple[int, ...]] = Counter()
    for key, count in rows.items():
        inode, *words = map(int, key.split(","))
        if inode in inodes:
            counted[tuple(words)] += count
    return counted


def _fault(words: tuple[int, ...], count: int) -> dict[str, Any]:
    vm_flags, fault_flags, ra_pages = words
    return {
        "vm_flags": vm_flags, "vm_flag_names": decode(vm_flags, VM_FLAGS), "fault_flags": fault_flags,
        "fault_flag_names": decode(fault_flags, FAULT_FLAGS), "ra_pages": ra_pages, "count": count,
    }  # fmt: skip


class Bpftrace(Tracer):
    """The tracer of faults and read-ahead."""

    name = "bpftrace"

    def __init__(self, directory: Path, children: Children) -> None:
        super().__init__(directory / "faults.bt", program(), children)

    def excerpt(self, inodes: Set[int], start: float, path: Path) -> Outcome:
        """Write what was counted of these inodes from the last tick before `start` (CLOCK_MONOTONIC) to now."""
        ticks = self.ticks_since(start)
        return self.keep(ticks, (tables_of(tick.maps, inodes) for tick in ticks), path)
