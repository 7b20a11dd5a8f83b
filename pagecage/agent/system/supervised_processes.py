"""The processes of a trial on a host without cgroups: a supervisor and its descendants."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pagecage.agent.system.process_tree import (
    ProcessInfo,
    TreeCounters,
    is_running,
    kill_marked,
    name_of,
    read_report,
    read_tree,
    read_waits,
    tree,
)


@dataclass
class SupervisedProcesses:
    """The descendants of a supervisor, which writes `report` at its end.

    `mark` is in the environment of every one of them. The disk's counters cover all processes of
    the machine; only bytes, CPU times and faults are the trial's own.
    """

    report: Path
    mark: str
    supervisor: int | None = None
    cgroup: None = None

    def launched(self, pid: int) -> None:
        """Note the supervisor."""
        self.supervisor = pid

    def counters(self) -> dict[str, Any]:
        """Return the counters of the tree, and of its waits; zero before the launch."""
        used = self._used()
        own = None if used is None else used.to_json() | read_waits(self._pids())
        return {"cgroup": None, "processes": own}

    def read_bytes(self, maj_min: str) -> int | None:  # noqa: ARG002
        """Return the bytes that they have read, from all disks together."""
        used = self._used()
        return None if used is None else used.read_bytes

    def members(self) -> list[ProcessInfo]:
        """Return the live descendants of the supervisor."""
        return [ProcessInfo(pid, name_of(pid), "") for pid in self._pids() if is_running(pid)]

    def outside(self, pid: int) -> list[ProcessInfo]:  # noqa: ARG002
        """Return nothing: no process can leave, because orphans become the supervisor's."""
        return []

    def signal(self, name: str) -> None:
        """Send a signal to every descendant; KILL also ends the supervisor, after them."""
        number = signal.Signals[f"SIG{name}"]
        for pid in list(self._pids()):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGKILL and self.supervisor is not None:
            with suppress(ProcessLookupError):
                os.kill(self.supervisor, signal.SIGTERM)

    def oom_kills(self) -> int | None:
        """Return None: the kernel counts OOM kills by cgroup, or for the whole machine."""

    def end(self) -> None:
        """Kill whatever is left, whether or not the supervisor lives."""
        self.signal("KILL")
        kill_marked(self.mark)

    def _pids(self) -> Iterator[int]:
        return islice(() if self.supervisor is None else tree(self.supervisor), 1, None)

    def _used(self) -> TreeCounters | None:
        if self.supervisor is None:
            return TreeCounters()
        return read_report(self.report) or read_tree(self.supervisor)
