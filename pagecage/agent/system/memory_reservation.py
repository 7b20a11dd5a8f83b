"""Reservation of a machine's memory for one trial, as unused huge pages that cannot be reclaimed.

Pages in the pool of vm.nr_hugepages are taken from the buddy allocator and never swapped or
reclaimed (Documentation/admin-guide/mm/hugetlbpage.rst), so the rest behaves like a machine with
less memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pagecage.agent.system.kernel_text import parse_meminfo, read_text
from pagecage.agent.system.settings import RestoreJournal, write_number
from pagecage.errors import HostError
from pagecage.units import MIB, format_bytes

OF_OURS = Path(
    "/dev/virtio-ports/pagecage"
)  # the guest daemon's port, only in a guest that pagecage made
_TRIES = 8
_TOLERANCE_BYTES = 8 * MIB


class MemoryReservation:
    """The reserved memory, journalled in the spool until it is released."""

    def __init__(self, spool: Path, proc: Path = Path("/proc")) -> None:
        self._journal = RestoreJournal(spool / "machine-memory.json")
        self._proc = proc
        self._pool = proc / "sys/vm/nr_hugepages"

    def leave(self, wanted_bytes: int) -> dict[str, Any]:
        """Reserve memory until `wanted_bytes` are available (MemAvailable).

        Return the values read back. Raises HostError if the machine has less to begin with, or
        gives up too little.
        """
        huge_bytes = self._meminfo_bytes("Hugepagesize")
        self._journal.remember(lambda: {"nr_hugepages": self._pool_pages()})
        for _ in range(_TRIES):
            self._write(self._proc / "sys/vm/drop_caches", 3)
            surplus = (self._meminfo_bytes("MemAvailable") - wanted_bytes) // huge_bytes
            if surplus == 0:
                break
            self._write(self._pool, max(0, self._pool_pages() + surplus))
        available = self._meminfo_bytes("MemAvailable")
        if abs(available - wanted_bytes) > _TOLERANCE_BYTES + huge_bytes:
            left, wanted = format_bytes(available), format_bytes(wanted_bytes)
            raise HostError(f"{left} of memory are available, not {wanted}", "choose a larger SIZE")
        return {
            "requested_bytes": wanted_bytes,
            "available_bytes": available,
            "hugepages": self._pool_pages(),
            "hugepage_bytes": huge_bytes,
        }

    def restore(self) -> list[str]:
        """Release the memory; return one sentence per failure."""
        return self._journal.put_back(
            "vm.nr_hugepages", lambda saved: self._write(self._pool, int(saved["nr_hugepages"]))
        )

    def _pool_pages(self) -> int:
        return int(read_text(self._pool) or 0)

    def _meminfo_bytes(self, key: str) -> int:
        kib = parse_meminfo(read_text(self._proc / "meminfo") or "").get(key)
        if kib is None:
            raise HostError(
                f"/proc/meminfo has no {key}, so that no memory can be taken away", "use HOST=vm"
            )
        return kib * 1024

    def _write(self, path: Path, value: int) -> None:
        write_number(path, value, str(path))
