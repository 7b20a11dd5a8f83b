"""A trial's files and its cage, as the programs that run in it need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pagecage.agent.collectors.sampler import Sampler
from pagecage.agent.drivers.driver import Driver, LaunchContext
from pagecage.agent.limits.io_max_controller import IoMaxController
from pagecage.agent.limits.simulated_volume import SimulatedVolume
from pagecage.agent.storage import OtherDisk
from pagecage.agent.system.block_device import Disk


@dataclass(frozen=True)
class ProgramFiles:
    """The files that a program reads, and the disk that holds them."""

    paths: tuple[Path, ...]
    disk: Disk


@dataclass(frozen=True)
class Caged:
    """A trial's cage with everything in place but the workload.

    `controllers` rewrite io.max, one per disk whose limits need it. `disks` are the cage's other
    disks by name.
    """

    driver: Driver
    context: LaunchContext
    files: tuple[Path, ...]
    data_dir: Path
    sampler: Sampler
    controllers: tuple[IoMaxController, ...] = ()
    volume: SimulatedVolume | None = None
    disks: Mapping[str, OtherDisk] = field(default_factory=dict)

    @property
    def disk(self) -> Disk:
        """The disk that is measured and limited."""
        return self.context.disk

    @property
    def folders(self) -> Mapping[str, Path]:
        """The folder of each {disk.NAME}."""
        return self.context.folders
