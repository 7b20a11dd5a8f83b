"""The processes of one trial, kept together by a slice or, without cgroups, by a supervisor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pagecage.agent.system import cgroupfs
from pagecage.agent.system.kernel_text import parse_flat_keyed, parse_nested_keyed, read_text
from pagecage.agent.system.process_tree import ProcessInfo
from pagecage.agent.system.systemd import Systemd
from pagecage.process import run


class TrialProcesses(Protocol):
    """The processes of one trial: what they use, which they are, and how they are ended."""

    @property
    def cgroup(self) -> Path | None:
        """The cgroup that contains them all; None if the host has none for them."""

    def launched(self, pid: int) -> None:
        """Note the process that the driver's command has become."""

    def counters(self) -> dict[str, Any]:
        """Return the counters that records keep: `cgroup`, or `processes` if that is None."""

    def read_bytes(self, maj_min: str) -> int | None:
        """Return the bytes that they have read from a disk; None if unknown."""

    def members(self) -> list[ProcessInfo]:
        """Return the live processes."""

    def outside(self, pid: int) -> list[ProcessInfo]:
        """Return the process and descendants of it that have left."""

    def signal(self, name: str) -> None:
        """Send a signal, such as KILL, to every process."""

    def oom_kills(self) -> int | None:
        """Return the OOM kills among them; None if unknown."""


@dataclass(frozen=True)
class SliceProcesses:
    """The processes in a trial's slice."""

    systemd: Systemd
    unit: str
    cgroup: Path

    def launched(self, pid: int) -> None:
        """Do nothing: the slice contains the process."""

    def counters(self) -> dict[str, Any]:
        """Return the counters of the slice's cgroup."""
        return {"cgroup": cgroupfs.read_counters(self.cgroup)}

    def read_bytes(self, maj_min: str) -> int | None:
        """Return `rbytes` of io.stat, which has no line for a disk that was never touched."""
        text = read_text(self.cgroup / "io.stat")
        return None if text is None else parse_nested_keyed(text).get(maj_min, {}).get("rbytes", 0)

    def members(self) -> list[ProcessInfo]:
        """Return the live processes in the slice."""
        return cgroupfs.members(self.cgroup)

    def outside(self, pid: int) -> list[ProcessInfo]:
        """Return the process and descendants of it that are in another cgroup."""
        return cgroupfs.outside(pid, self.cgroup)

    def signal(self, name: str) -> None:
        """Send a signal to every process in the slice."""
        command = self.systemd.systemctl("kill", f"--signal={name}", self.unit)
        run(command, check=False, timeout_seconds=30)

    def oom_kills(self) -> int | None:
        """Return the OOM kills in the slice.

        Returns None without memory.events; an exit status of 137 may be any SIGKILL.
        """
        text = read_text(self.cgroup / "memory.events")
        return None if text is None else parse_flat_keyed(text).get("oom_kill", 0)
