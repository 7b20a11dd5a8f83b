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
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult, Figures
from pagecage.agent.collectors.tracer import BpftraceProcess, Part, TracerProgram, Variant, programs
from pagecage.agent.facts import Kernel
from pagecage.model.json_codec import Json

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
) -> dict[str, list[Json]]:
    """Return running totals over these inodes, in the tables that the program fills."""
    tables = {}
    for name in program.maps:
        counted: Counter[tuple[int, ...]] = Counter()
        for key, count in maps.get(name, {}).items():
            inode, *words = map(int, key.split(","))
            if inode in inodes:
                counted[tuple(words)] += count
        table, columns = _TABLES[name]
        tables[table] = [{**_row(columns, words), "count": n} for words, n in counted.items()]
    return tables


def _row(columns: Sequence[str], words: Sequence[int]) -> Json:
    row: Json = {}
    for column, word in zip(columns, words):  # noqa: B905 - tracepoints have no flags
        row[column] = word
        if column in _FLAGS:
            names, key = _FLAGS[column]
            row[key] = decode(word, names)
    return row


class FaultTracer(BpftraceProcess):
    """A tracer of page faults and read-ahead."""

    name, script = "bpftrace", "faults.bt"

    def programs(self) -> Iterator[TracerProgram]:
        return programs(parts(), Kernel())

    def excerpt(self, inodes: Set[int], start: float, path: Path) -> CollectorResult:
        """Write the counts of these inodes since the last tick before `start` (CLOCK_MONOTONIC)."""
        ticks = self.ticks_since(start)
        rows = (tables_of(tick.maps, inodes, self.program) for tick in ticks)
        return self.keep(ticks, rows, path)

    def take(
        self, context: CollectorContext, launched: float, _measured: object
    ) -> tuple[CollectorResult, Figures]:
        if not context.files:
            return CollectorResult("missing", "the trial has no dataset"), {}
        self.wait_for_tick()
        inodes = {file.stat().st_ino for file in context.files}
        return self.excerpt(inodes, launched, context.directory / "bpftrace.jsonl"), {}


def _bits(prefix: str, names: str) -> dict[int, str]:
    return {1 << n: prefix + name for n, name in enumerate(names.split()) if name != "-"}


VM_FLAGS = _bits(
    "VM_",
    "READ WRITE EXEC SHARED MAYREAD MAYWRITE MAYEXEC MAYSHARE GROWSDOWN UFFD_MISSING PFNMAP - "
    "- LOCKED IO SEQ_READ RAND_READ DONTCOPY DONTEXPAND LOCKONFAULT ACCOUNT NORESERVE HUGETLB "
    "SYNC ARCH_1 WIPEONFORK DONTDUMP SOFTDIRTY MIXEDMAP HUGEPAGE NOHUGEPAGE MERGEABLE",
)
FAULT_FLAGS = _bits(
    "FAULT_FLAG_",
    "WRITE MKWRITE ALLOW_RETRY RETRY_NOWAIT KILLABLE TRIED USER REMOTE INSTRUCTION "
    "INTERRUPTIBLE UNSHARE ORIG_PTE_VALID VMA_LOCK",
)
# enum vm_fault_reason (include/linux/mm_types.h). 0 is a fault without a remark.
VM_FAULTS = _bits(
    "VM_FAULT_",
    "OOM SIGBUS MAJOR - HWPOISON HWPOISON_LARGE SIGSEGV - NOPAGE LOCKED RETRY FALLBACK "
    "DONE_COW NEEDDSYNC COMPLETED",
)


def decode(word: int, names: dict[int, str]) -> list[str]:
    """Return the names of the set bits, lowest first. A bit without a name is in hexadecimal."""
    bits = (1 << position for position in range(word.bit_length()))
    return [names.get(bit, hex(bit)) for bit in bits if word & bit]


_FLAGS = {
    "vm_flags": (VM_FLAGS, "vm_flag_names"),
    "fault_flags": (FAULT_FLAGS, "fault_flag_names"),
    "returned": (VM_FAULTS, "returned_names"),
}
"""The names of the bits in a column, and the column of these names."""
_FAULT_COLUMNS = ("vm_flags", "fault_flags", "ra_pages")
_TABLES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "@fault": ("filemap_fault", _FAULT_COLUMNS),
    "@fault_return": ("filemap_fault_return", ("returned",)),
    "@major": ("filemap_fault_major", _FAULT_COLUMNS),
    "@added": ("page_cache_additions", ("order",)),
    "@ra": ("page_cache_ra_order", ("pages", "order", "ra_pages")),
}
"""The table of each map, and the columns of its key after the inode."""
