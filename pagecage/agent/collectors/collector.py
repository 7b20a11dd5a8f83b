"""The interface of collectors, which record data while a trial runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pagecage.linux.block_device import Disk
from pagecage.linux.child_processes import ToolProcesses
from pagecage.linux.trial_processes import TrialProcesses


@dataclass(frozen=True)
class CollectorContext:
    """Inputs of a collector: the measured disk, the trial's processes, files, folder and tools.

    `disks` are the cage's other disks by name.
    """

    directory: Path
    disk: Disk
    processes: TrialProcesses
    datasets: tuple[Path, ...]
    children: ToolProcesses
    disks: Mapping[str, Disk] = field(default_factory=dict)


@dataclass(frozen=True)
class CollectorResult:
    """Result of a collector.

    `reason` explains any status but `ok`; `lost_events` is None if unknown. `status` is `ok`,
    `partial` (events were lost or a file is cut off), `failed` (the tool died) or `missing` (the
    tool was not started). `own` are further keys of a collector of the definition.
    """

    status: str
    reason: str | None = None
    lost_events: int | None = None
    files: tuple[Path, ...] = ()
    own: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the collector's entry in the record."""
        common = {"status": self.status, "reason": self.reason, "lost_events": self.lost_events}
        return {**common, **self.own}


class Collector(Protocol):
    """A tool that records from before `go` until after `end`.

    Only stop() reports failures of the tool.
    """

    name: str

    def start(self) -> None:
        """Start without waiting for the first data."""

    def wait_until_recording(self) -> None:
        """Return when data arrives, or when the tool has failed."""

    def stop(self) -> CollectorResult:
        """Stop, and return the result."""
