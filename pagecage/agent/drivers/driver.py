"""Drivers: the ways of starting a workload under a trial's limits.

Every driver but one works inside the trial's slice, so counters are always read from the same
cgroup. The driver `process` needs no cgroup, and serves trials without limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pagecage.agent.drivers.engine import ContainerEngines
from pagecage.errors import HostError
from pagecage.linux.block_device import Disk
from pagecage.linux.cgroup import Cgroup
from pagecage.linux.systemd import scope_name
from pagecage.linux.trial_processes import CgroupMaker, TrialProcesses
from pagecage.model.cage import IO_MAX_KEY, Cage
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.trial import ImageSpec
from pagecage.process import Process

Ask = Callable[[str, JsonView], Json]
"""Asks the controller, which can reach the machine around a guest. Raises HostError if refused."""


@dataclass(frozen=True)
class LaunchContext:
    """Context of a trial's start: its slice, cage, measured disk, and the host folders it needs.

    `data_dir` is None if the data are stored in the container's own layer; `files` are then those
    data. `environment` names the agent's variables that a driver passes to a workload that would
    not inherit them. `disks` are the cage's other disks by name, and `folders` the trial's folders
    on them.
    """

    maker: CgroupMaker
    unit: str
    processes: TrialProcesses
    cage: Cage
    disk: Disk
    programs_dir: Path
    spool: Path
    data_dir: Path | None
    directory: Path | None = None
    paths: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    environment: tuple[str, ...] = ()
    is_gated: bool = False
    disks: Mapping[str, Disk] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)

    @property
    def cgroup(self) -> Cgroup:
        if self.processes.cgroup is None:
            raise HostError("the trial has no cgroup, because its driver uses none")
        return self.processes.cgroup

    @property
    def name(self) -> str:
        return scope_name(self.unit)


@dataclass(frozen=True)
class ExternalLimits:
    """Limits enforced outside this host's cgroups by program `by`, with its values by property.

    `model` is all that a simulated volume has in force, and `path` the way to it; both are None for
    another program.
    """

    by: str
    read_back: Mapping[str, int] = field(default_factory=dict)
    model: JsonView | None = None
    path: JsonView | None = None

    def to_json(self) -> Json:
        parts = {"model": self.model, "path": self.path}
        known = {name: dict(part) for name, part in parts.items() if part is not None}
        return {"by": self.by, "read_back": dict(self.read_back), **known}


@dataclass(frozen=True)
class DriverServices:
    """Services of the agent for drivers, and the image that the program is in, if any."""

    engines: ContainerEngines
    ask: Ask
    spool: Path
    image: ImageSpec | None = None


class Driver:
    """One way of running a workload in a cage; this one has all limits on the trial's slice.

    Its start command enters the trial's cgroup and execs the workload; stopping the slice ends it.
    Methods are called in this order; each may raise HostError.
    """

    name: str
    has_slice = True
    """False if the trial has no cgroup of its own, so that it cannot have limits."""

    def __init__(self, services: DriverServices) -> None:
        self._services = services

    def prepare(self) -> Json:
        """Provide what a start needs, before anything is measured; return it for the record."""
        return {}

    def slice_cage(self, cage: Cage, /) -> Cage:
        return cage

    def apply_external(self, _context: LaunchContext, /) -> ExternalLimits | None:
        """Have the other limits, if any, enforced outside this host before the start."""
        return None

    def command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return the start command, which passes standard streams and exit status through."""
        return context.maker.enter_command(context.unit, argv)

    def held_command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return that of a program that reads its standard input and is admitted once it runs."""
        return self.command(context, argv)

    def admit(self, _context: LaunchContext, _process: Process[bytes], /) -> None:
        """Take the started process into its cage, before it becomes the workload."""

    def preview_commands(self, context: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        """Return all commands that a start runs, for display in a plan. Nothing is started."""
        return [self.command(context, argv)]

    def own_cgroup(self, _context: LaunchContext, /) -> Cgroup | None:
        return None

    def main_pid(self, _context: LaunchContext, client: int, /) -> int | None:
        return client

    def clear(self, _context: LaunchContext, /) -> None:
        """Undo `apply_external` and `command`. Always called, even if neither of them ran."""


class ClientDriver(Driver):
    """A driver whose start command is a client that stays outside the slice."""

    def main_pid(self, context: LaunchContext, _client: int, /) -> int | None:
        return next((member.pid for member in context.processes.members()), None)


def io_properties(cage: Cage) -> dict[str, int]:
    return {name: value for name, value in cage.properties.items() if name in IO_MAX_KEY}
