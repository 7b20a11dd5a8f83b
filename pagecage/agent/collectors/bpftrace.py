"""A bpftrace program that counts page faults and read-ahead of the trial's files.

Each fault is counted by the flags of its mapping, its own flags and the file's read-ahead, and
once more by the value that filemap_fault() returned. Each read-ahead is counted by its pages and
the order of its folios.

Tracepoints have neither flags nor returned values. Where they stand in, a fault is counted as major
if the faulting thread itself adds the page to the page cache, and additions are counted as well.
"""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from pagecage.agent.collectors.collector import CollectorResult
from pagecage.agent.collectors.tracer import BpftraceProcess, Part, TracerProgram, Variant, programs
from pagecage.agent.facts import Kernel
from pagecage.linux.child_processes import ToolProcesses

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
_FAULT_BY_KPROBE = """
kprobe:filemap_fault {
  $vmf = (struct vm_fault *)arg0;
  $vma = (struct vm_area_struct *)$vmf->vma;
  $file = (struct file *)$vma->vm_file;
  $inode = (struct inode *)$file->f_inode;
  @fault[$inode->i_ino, (uint64)$vma->vm_flags, (uint64)$vmf->flags,
         (uint64)$file->f_ra.ra_pages] = count();
}
"""
_FAULT_BY_TRACEPOINT = """
tracepoint:filemap:mm_filemap_fault {
  @fault[args.i_ino] = count();
  @fault_inode[tid] = args.i_ino;
  @fault_end[tid] = args.index + 1;
}
tracepoint:filemap:mm_filemap_add_to_page_cache {
  @added[args.i_ino, args.order] = count();
  $end = @fault_end[tid];
  if ($end > args.index && $end <= args.index + ((uint64)1 << args.order)
      && @fault_inode[tid] == args.i_ino) {
    @major[args.i_ino] = count();
    delete(@fault_end[tid]);
  }
}
"""
_RETURN = """
fexit:vmlinux:filemap_fault {
  $file = (struct file *)args.vmf->vma->vm_file;
  $inode = (struct inode *)$file->f_inode;
  @fault_return[$inode->i_ino, (uint64)retval] = count();
}
"""
_RETURN_BY_KPROBE = """
kprobe:filemap_fault {
  $vmf = (struct vm_fault *)arg0;
  $vma = (struct vm_area_struct *)$vmf->vma;
  $file = (struct file *)$vma->vm_file;
  $inode = (struct inode *)$file->f_inode;
  @returning[tid] = $inode->i_ino;
}
kretprobe:filemap_fault /@returning[tid]/ {
  @fault_return[@returning[tid], (uint64)retval & 0xffffffff] = count();
  delete(@returning[tid]);
}
"""
_READAHEAD = """
fentry:vmlinux:page_cache_ra_order {
  $mapping = (struct address_space *)args.ractl->mapping;
  $host = (struct inode *)$mapping->host;
  @ra[$host->i_ino, (uint64)args.ra->size, (uint64)ORDER, (uint64)args.ra->ra_pages] = count();
}
"""
_READAHEAD_BY_KPROBE = """
kprobe:page_cache_ra_order {
  $ractl = (struct readahead_control *)arg0;
  $ra = (struct file_ra_state *)arg1;
  $mapping = (struct address_space *)$ractl->mapping;
  $host = (struct inode *)$mapping->host;
  @ra[$host->i_ino, (uint64)$ra->size, (uint64)ORDER, (uint64)$ra->ra_pages] = count();
}
"""
_READAHEAD_BY_TRACEPOINT = """
tracepoint:readahead:page_cache_ra_order {
  @ra[args.i_ino, (uint64)args.size, (uint64)args.order, (uint64)args.ra_pages] = count();
}
"""
_ORDER_IN_FILE_RA_STATE = (6, 17)  # commit c4602f9fa77f moved it there from a parameter
_FAULT_TRACEPOINTS = {
    "filemap:mm_filemap_fault": frozenset({"i_ino", "index"}),
    "filemap:mm_filemap_add_to_page_cache": frozenset({"i_ino", "index", "order"}),
}
_READAHEAD_TRACEPOINT = {
    "readahead:page_cache_ra_order": frozenset({"i_ino", "size", "order", "ra_pages"})
}
_OF_ARGUMENTS = tuple(f"filemap_fault.{key}" for key in ("vm_flags", "fault_flags", "ra_pages"))


def parts(kernel: str | None = None) -> tuple[Part, ...]:
    """Return the parts of the program for a kernel, by default for the running one.

    `kernel` is a release like 6.12.41+deb13-amd64.
    """
    version = re.match(r"(\d+)\.(\d+)", kernel or platform.release())
    is_new = version is not None and tuple(map(int, version.groups())) >= _ORDER_IN_FILE_RA_STATE
    order = "args.ra->order" if is_new else "args.new_order"
    order_by_kprobe = "$ra->order" if is_new else "arg2 & 0xffffffff"
    fault, ra = ("filemap_fault",), ("page_cache_ra_order",)
    faults = {
        "fentry": Variant(_FAULT, fault),
        "kprobe": Variant(_FAULT_BY_KPROBE, fault),
        "tracepoint": Variant(_FAULT_BY_TRACEPOINT, (), _FAULT_TRACEPOINTS, _OF_ARGUMENTS),
    }
    returns = {"fentry": Variant(_RETURN, fault), "kprobe": Variant(_RETURN_BY_KPROBE, fault)}
    windows = {
        "fentry": Variant(_READAHEAD.replace("ORDER", order), ra),
        "kprobe": Variant(_READAHEAD_BY_KPROBE.replace("ORDER", f"({order_by_kprobe})"), ra),
        "tracepoint": Variant(_READAHEAD_BY_TRACEPOINT, (), _READAHEAD_TRACEPOINT),
    }
    return (
        Part("filemap_fault", ("@fault", "@major", "@added"), faults),
        Part("filemap_fault_return", ("@fault_return",), returns),
        Part("page_cache_ra_order", ("@ra",), windows),
    )


def tables_of(
    maps: dict[str, dict[str, int]], inodes: Set[int], program: TracerProgram
) -> dict[str, list[dict[str, Any]]]:
    """Return running totals over these inodes, with the flags by name.

    Only tables that the program fills are present.
    """
    tables = {}
    for name in program.maps:
        table, row = _TABLES[name]
        counts = _of_inodes(maps.get(name, {}), inodes)
        tables[table] = [row(words, count) for words, count in counts.items()]
    return tables


def _of_inodes(rows: dict[str, int], inodes: Set[int]) -> Counter[tuple[int, ...]]:
    """Sum the counts of these inodes by the rest of the key."""
    counted: Counter[tuple[int, ...]] = Counter()
    for key, count in rows.items():
        inode, *words = map(int, key.split(","))
        if inode in inodes:
            counted[tuple(words)] += count
    return counted


def _fault(words: tuple[int, ...], count: int) -> dict[str, Any]:
    if not words:
        return {"count": count}
    vm_flags, fault_flags, ra_pages = words
    return {
        "vm_flags": vm_flags,
        "vm_flag_names": decode(vm_flags, VM_FLAGS),
        "fault_flags": fault_flags,
        "fault_flag_names": decode(fault_flags, FAULT_FLAGS),
        "ra_pages": ra_pages,
        "count": count,
    }


def _returned(words: tuple[int, ...], count: int) -> dict[str, Any]:
    return {"returned": words[0], "returned_names": decode(words[0], VM_FAULTS), "count": count}


def _window(words: tuple[int, ...], count: int) -> dict[str, Any]:
    return {**dict(zip(("pages", "order", "ra_pages"), words, strict=True)), "count": count}


def _added(words: tuple[int, ...], count: int) -> dict[str, Any]:
    return {"order": words[0], "count": count}


_TABLES: Mapping[str, tuple[str, Callable[[tuple[int, ...], int], dict[str, Any]]]] = {
    "@fault": ("filemap_fault", _fault),
    "@fault_return": ("filemap_fault_return", _returned),
    "@major": ("filemap_fault_major", _fault),
    "@added": ("page_cache_additions", _added),
    "@ra": ("page_cache_ra_order", _window),
}


class FaultTracer(BpftraceProcess):
    """A tracer of page faults and read-ahead."""

    name = "bpftrace"

    def __init__(self, directory: Path, children: ToolProcesses) -> None:
        super().__init__(directory / "faults.bt", children)

    def programs(self) -> Iterator[TracerProgram]:
        """Yield the programs to try, the most telling first."""
        return programs(parts(), Kernel())

    def excerpt(self, inodes: Set[int], start: float, path: Path) -> CollectorResult:
        """Write the counts of these inodes since the last tick before `start` (CLOCK_MONOTONIC)."""
        ticks = self.ticks_since(start)
        rows = (tables_of(tick.maps, inodes, self.program) for tick in ticks)
        return self.keep(ticks, rows, path)


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
