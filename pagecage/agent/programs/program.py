"""The protocol of a workload kind, and what all kinds use."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol

from pagecage.agent.caging import Caged, ProgramFiles
from pagecage.agent.drivers.driver import LaunchContext
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import Ending, Measured, TrialRun
from pagecage.linux import block_device, procfs
from pagecage.model.cage import Cage
from pagecage.model.record_sections import cpu_usec


class Program(Protocol):
    """One kind of workload."""

    inherits_environment: bool
    """True if the workload gets all variables of the agent's environment."""
    is_gated: bool
    """True if a shell in the cage waits for `go` and then becomes the program."""

    def find_files(
        self, run: TrialRun, storage: Storage, datasets: tuple[Path, ...]
    ) -> ProgramFiles:
        """Check that the program can run here and find its files. Raises RequirementMissed."""

    def calibration_file(
        self, run: TrialRun, storage: Storage, files: ProgramFiles, slice_cage: Cage
    ) -> Path | None:
        """Return the file that calibration reads, or None if no file is fit for it."""

    def measure(self, run: TrialRun, caged: Caged) -> Measured:
        """Start the workload, measure it and end it. Raises RequirementMissed or NotPrepared."""

    def judge(self, run: TrialRun, measured: Measured) -> Ending:
        """Return the outcome from the evidence, strongest first."""


def read_all_counters(context: LaunchContext) -> dict[str, Any]:
    """Return every counter that records keep, of the trial, the disk, the host and the agent."""
    return {
        **context.processes.counters(),
        "device": procfs.read_device(context.disk.maj_min),
        "lower_device": block_device.read_lower_device(context.disk),
        "host": procfs.read_host(),
        "agent": {"cpu_usec": round(1e6 * time.process_time())},
        **_other_disks(context),
    }


def keep_around(run: TrialRun, context: LaunchContext, moment: str) -> None:
    """Keep the CPU time of all, `before` the collectors start or `after` they have stopped.

    Ticks of 10 ms do not show who was busy in a short measured part, but in the time around it.
    """
    around = run.sections["counters"].setdefault("around", {})
    around[moment] = {
        "monotonic_seconds": time.monotonic(),
        "trial_cpu_usec": cpu_usec(context.processes.counters()),
        "agent_cpu_usec": round(1e6 * time.process_time()),
        "stat": procfs.read_host()["stat"],
    }


def _other_disks(context: LaunchContext) -> dict[str, Any]:
    """Return the counters of the cage's other disks by name."""
    disks = {
        name: {
            "device": procfs.read_device(disk.maj_min),
            "lower_device": block_device.read_lower_device(disk),
        }
        for name, disk in context.disks.items()
    }
    return {"disks": disks} if disks else {}
