"""A bpftrace program that counts page faults and read-ahead of the trial's files.

Each fault is counted by the flags of its mapping, its own flags and the file's read-ahead, and
once more by the value that filemap_fault() returned. Each read-ahead is counted by its pages and
the order of its folios.
"""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Set
from pathlib import Path
from typing import Any

from pagecage.agent.collectors.collector import CollectorResult
from pagecage.agent.collectors.tracer import TICK, BpftraceProcess
from pagecage.agent.system.child_processes import ToolProcesses

# Each pointer is cast separately, because the chain vmf->vma->vm_file->f_inode does not compile.
# The inode of a read-ahead is reached through the mapping, because ractl->file may be null.
_FAULT = """
fentry:vmlinux:filemap_fault {
  $file = (struct file *)args.vmf->vma->vm_file;
  $inode = (struct inode *)$file->f_inode;
  @fault[$inode->i_ino, (uint64)args.vmf->vma->vm_flags, (uint64)args.vmf->flags,
         (uint64)$file->f_ra.ra_pages] = count();
}
"""
_RETURN = """
fexit:vmlinux:filemap_fault {
  $file = (struct file *)args.vmf->vma->vm_file;
  $inode = (struct inode *)$file->f_inode;
  @fault_return[$inode->i_ino, (uint64)retval] = count();
}
"""
_READAHEAD = """
fentry:vmlinux:page_cache_ra_order {
  $mapping = (struct address_space *)args.ractl->mapping;
  $host = (struct inode *)$mapping->host;
  @ra[$host->i_ino, (uint64)args.ra->size, (uint64)ORDER] = count();
}
"""
_TICK = f"interval:ms:250 {{ print(@fault); print(@fault_return); print(@ra); {TICK} }}\n"
_ORDER_IN_FILE_RA_STATE = (6, 17)  # commit c4602f9fa77f moved it there from a parameter


def program(kernel: str | None = None) -> str:
    """Return the bpftrace program for a kernel, by default for the running one.

    `kernel` is a release like 6.12.41+deb13-amd64.
    """
    version = re.match(r"(\d+)\.(\d+)", kernel or platform.release())
    is_new = version is not None and tuple(map(int, version.groups())) >= _ORDER_IN_FILE_RA_STATE
    order = "args.ra->order" if is_new else "args.new_order"
    return _FAULT + _RETURN + _READAHEAD.replace("ORDER", order) + _TICK


def tables_of(maps: dict[str, dict[str, int]], inodes: Set[int]) -> dict[str, list[dict[str, Any]]]:
    """Return running totals over these inodes, with the flags by name."""
    faults = _of_inodes(maps.get("@fault", {}), inodes)
    returned = _of_inodes(maps.get("@fault_return", {}), inodes)
    windows = _of_inodes(maps.get("@ra", {}), inodes)
    return {
        "filemap_fault": [_fault(words, count) for words, count in faults.items()],
        "filemap_fault_return": [_returned(word, count) for (word,), count in returned.items()],
        "page_cache_ra_order": [
            {"pages": pages, "order": order, "count": count}
            for (pages, order), count in windows.items()
        ],
    }


def _of_inodes(rows: dict[str, int], inodes: Set[int]) -> Counter[tuple[int, ...]]:
    """Sum the counts of these inodes by the rest of the key."""
    counted: Counter[tuple[int, ...]] = Counter()
    for key, count in rows.items():
        inode, *words = map(int, key.split(","))
        if inode in inodes:
            counted[tuple(words)] += count
    return counted


def _fault(words: tuple[int, ...], count: int) -> dict[str, Any]:
    vm_flags, fault_flags, ra_pages = words
    return {
        "vm_flags": vm_flags,
        "vm_flag_names": decode(vm_flags, VM_FLAGS),
        "fault_flags": fault_flags,
        "fault_flag_names": decode(fault_flags, FAULT_FLAGS),
        "ra_pages": ra_pages,
        "count": count,
    }


def _returned(word: int, count: int) -> dict[str, Any]:
    return {"returned": word, "returned_names": decode(word, VM_FAULTS), "count": count}


class FaultTracer(BpftraceProcess):
    """A tracer of page faults and read-ahead."""

    name = "bpftrace"

    def __init__(self, directory: Path, children: ToolProcesses) -> None:
        super().__init__(directory / "faults.bt", program(), children)

    def excerpt(self, inodes: Set[int], start: float, path: Path) -> CollectorResult:
        """Write the counts of these inodes since the last tick before `start` (CLOCK_MONOTONIC)."""
        ticks = self.ticks_since(start)
        return self.keep(ticks, (tables_of(tick.maps, inodes) for tick in ticks), path)


VM_FLAGS = {
    0x1: "VM_READ",
    0x2: "VM_WRITE",
    0x4: "VM_EXEC",
    0x8: "VM_SHARED",
    0x10: "VM_MAYREAD",
    0x20: "VM_MAYWRITE",
    0x40: "VM_MAYEXEC",
    0x80: "VM_MAYSHARE",
    0x100: "VM_GROWSDOWN",
    0x200: "VM_UFFD_MISSING",
    0x400: "VM_PFNMAP",
    0x2000: "VM_LOCKED",
    0x4000: "VM_IO",
    0x8000: "VM_SEQ_READ",
    0x10000: "VM_RAND_READ",
    0x20000: "VM_DONTCOPY",
    0x40000: "VM_DONTEXPAND",
    0x80000: "VM_LOCKONFAULT",
    0x100000: "VM_ACCOUNT",
    0x200000: "VM_NORESERVE",
    0x400000: "VM_HUGETLB",
    0x800000: "VM_SYNC",
    0x1000000: "VM_ARCH_1",
    0x2000000: "VM_WIPEONFORK",
    0x4000000: "VM_DONTDUMP",
    0x8000000: "VM_SOFTDIRTY",
    0x10000000: "VM_MIXEDMAP",
    0x20000000: "VM_HUGEPAGE",
    0x40000000: "VM_NOHUGEPAGE",
    0x80000000: "VM_MERGEABLE",
}
FAULT_FLAGS = {
    0x1: "FAULT_FLAG_WRITE",
    0x2: "FAULT_FLAG_MKWRITE",
    0x4: "FAULT_FLAG_ALLOW_RETRY",
    0x8: "FAULT_FLAG_RETRY_NOWAIT",
    0x10: "FAULT_FLAG_KILLABLE",
    0x20: "FAULT_FLAG_TRIED",
    0x40: "FAULT_FLAG_USER",
    0x80: "FAULT_FLAG_REMOTE",
    0x100: "FAULT_FLAG_INSTRUCTION",
    0x200: "FAULT_FLAG_INTERRUPTIBLE",
    0x400: "FAULT_FLAG_UNSHARE",
    0x800: "FAULT_FLAG_ORIG_PTE_VALID",
    0x1000: "FAULT_FLAG_VMA_LOCK",
}
# enum vm_fault_reason (include/linux/mm_types.h). 0 is a fault without a remark.
VM_FAULTS = {
    0x1: "VM_FAULT_OOM",
    0x2: "VM_FAULT_SIGBUS",
    0x4: "VM_FAULT_MAJOR",
    0x10: "VM_FAULT_HWPOISON",
    0x20: "VM_FAULT_HWPOISON_LARGE",
    0x40: "VM_FAULT_SIGSEGV",
    0x100: "VM_FAULT_NOPAGE",
    0x200: "VM_FAULT_LOCKED",
    0x400: "VM_FAULT_RETRY",
    0x800: "VM_FAULT_FALLBACK",
    0x1000: "VM_FAULT_DONE_COW",
    0x2000: "VM_FAULT_NEEDDSYNC",
    0x4000: "VM_FAULT_COMPLETED",
}


def decode(word: int, names: dict[int, str]) -> list[str]:
    """Return the names of the set bits, lowest first. A bit without a name is in hexadecimal."""
    bits = (1 << position for position in range(word.bit_length()))
    return [names.get(bit, hex(bit)) for bit in bits if word & bit]
