"""A trial's files and its cage, as the programs that run in it need them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.collectors.sampler import Sampler
from pagecage.agent.drivers.driver import Driver, LaunchContext
from pagecage.agent.limits.io_max_controller import IoMaxController
from pagecage.agent.limits.simulated_volume import SimulatedVolume
from pagecage.agent.system.block_device import Disk


@dataclass(frozen=True)
class ProgramFiles:
    """The files that a program reads, and the disk that holds them."""

    paths: tuple[Path, ...]
    disk: Disk


@dataclass(frozen=True)
class Caged:
    """A trial's cage with everything in place but the workload."""

    driver: Driver
    context: LaunchContext
    files: tuple[Path, ...]
    data_dir: Path
    sampler: Sampler
    controller: IoMaxController | None = None
    volume: SimulatedVolume | None = None

    @property
    def disk(self) -> Disk:
        """The disk that is measured and limited."""
        return self.context.disk
