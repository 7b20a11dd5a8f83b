"""What every collector is: started beside a trial, proven to record, stopped, and honest about how that went."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pagecage.agent.system.block_device import Disk
from pagecage.agent.system.child_processes import ToolProcesses


@dataclass(frozen=True)
class CollectorContext:
    """What a collector may look at: the measured disk, the cgroup, the files; where it writes, who starts tools."""

    directory: Path
    disk: Disk
    cgroup: Path
    datasets: tuple[Path, ...]
    children: ToolProcesses


@dataclass(frozen=True)
class CollectorResult:
    """How collecting went: `ok`, `partial` (events lost, file cut off), `failed` (died), `missing` (not started)."""

    status: str
    reason: str | None = None
    lost_events: int | None = None
    files: tuple[Path, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The collector's entry in the record."""
        return {"status": self.status, "reason": self.reason, "lost_events": self.lost_events}


class Collector(Protocol):
    """Started before `go`, stopped after `end`. Neither call raises for the tool's own failure: stop() reports it."""

    name: str

    def start(self) -> None:
        """Begin; returns without waiting for the first data."""

    def wait_until_recording(self) -> None:
        """Return when data really arrives, or when it is clear that it will not."""

    def stop(self) -> CollectorResult:
        """End, and say what was recorded."""
