"""How much of a machine's memory may wait to be written, set for one trial: vm.dirty_bytes, vm.dirty_background_bytes.

From the first on the kernel makes writers wait, from the second on it writes back beside them. Each stands in bytes or
as a share of the memory that could hold pages; writing one sets its counterpart to 0
(Documentation/admin-guide/sysctl/vm.rst).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagecage.agent.journal import Journal, write_number
from pagecage.agent.kernelfs import read_text
from pagecage.errors import HostError

_PAIRS = (("dirty_bytes", "dirty_ratio"), ("dirty_background_bytes", "dirty_background_ratio"))
_TOLD = (*(name for pair in _PAIRS for name in pair), "dirty_expire_centisecs", "dirty_writeback_centisecs")


class DirtyLimits:
    """What they were, kept in a file of the spool until it is put back."""

    def __init__(self, spool: Path, proc: Path = Path("/proc")) -> None:
        self._journal = Journal(spool / "dirty-limits.json")
        self._vm = proc / "sys/vm"

    def read(self) -> dict[str, int]:
        """The limits in force, by the names of their files; one that the kernel lacks is left out."""
        texts = {name: read_text(self._vm / name) for name in _TOLD}
        return {name: int(text) for name, text in texts.items() if text}

    def set(self, wanted: Mapping[str, int]) -> dict[str, Any]:
        """Set what is wanted, bytes by file name; the values read back. Raises HostError when they are others."""
        self._journal.remember(self.read)
        for name, value in wanted.items():
            self._write(name, value)
        got = self.read()
        wrong = [
            f"vm.{name} is {got.get(name)}, not {value}" for name, value in wanted.items() if got.get(name) != value
        ]
        if wrong:
            raise HostError("; ".join(wrong), "use HOST=vm")
        return got

    def restore(self) -> list[str]:
        """Put back what was there; what could not be is told."""
        return self._journal.put_back("vm.dirty_bytes and its like", self._write_saved)

    def _write_saved(self, saved: Mapping[str, int]) -> None:
        for in_bytes, in_percent in _PAIRS:
            name = in_bytes if saved[in_bytes] else in_percent
            self._write(name, saved[name])

    def _write(self, name: str, value: int) -> None:
        write_number(self._vm / name, value, f"vm.{name}")
