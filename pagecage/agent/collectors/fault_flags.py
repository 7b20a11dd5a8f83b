"""Names of the bits in vm_area_struct.vm_flags and vm_fault.flags (kernel 6.1 to 6.12, linux/mm.h and mm_types.h)."""

from __future__ import annotations

VM_FLAGS = {
    0x1: "VM_READ", 0x2: "VM_WRITE", 0x4: "VM_EXEC", 0x8: "VM_SHARED",
    0x10: "VM_MAYREAD", 0x20: "VM_MAYWRITE", 0x40: "VM_MAYEXEC", 0x80: "VM_MAYSHARE",
    0x100: "VM_GROWSDOWN", 0x200: "VM_UFFD_MISSING", 0x400: "VM_PFNMAP", 0x2000: "VM_LOCKED", 0x4000: "VM_IO",
    0x8000: "VM_SEQ_READ", 0x10000: "VM_RAND_READ", 0x20000: "VM_DONTCOPY", 0x40000: "VM_DONTEXPAND",
    0x80000: "VM_LOCKONFAULT", 0x100000: "VM_ACCOUNT", 0x200000: "VM_NORESERVE", 0x400000: "VM_HUGETLB",
    0x800000: "VM_SYNC", 0x1000000: "VM_ARCH_1", 0x2000000: "VM_WIPEONFORK", 0x4000000: "VM_DONTDUMP",
    0x8000000: "VM_SOFTDIRTY", 0x10000000: "VM_MIXEDMAP", 0x20000000: "VM_HUGEPAGE", 0x40000000: "VM_NOHUGEPAGE",
    0x80000000: "VM_MERGEABLE",
}  # fmt: skip
FAULT_FLAGS = {
    0x1: "FAULT_FLAG_WRITE", 0x2: "FAULT_FLAG_MKWRITE", 0x4: "FAULT_FLAG_ALLOW_RETRY",
    0x8: "FAULT_FLAG_RETRY_NOWAIT", 0x10: "FAULT_FLAG_KILLABLE", 0x20: "FAULT_FLAG_TRIED", 0x40: "FAULT_FLAG_USER",
    0x80: "FAULT_FLAG_REMOTE", 0x100: "FAULT_FLAG_INSTRUCTION", 0x200: "FAULT_FLAG_INTERRUPTIBLE",
    0x400: "FAULT_FLAG_UNSHARE", 0x800: "FAULT_FLAG_ORIG_PTE_VALID", 0x1000: "FAULT_FLAG_VMA_LOCK",
}  # fmt: skip


def decode(word: int, names: dict[int, str]) -> list[str]:
    """The names of the set bits, lowest first; a bit without a name stands as its hexadecimal value."""
    bits = (1 << place for place in range(word.bit_length()))
    return [names.get(bit, hex(bit)) for bit in bits if word & bit]
