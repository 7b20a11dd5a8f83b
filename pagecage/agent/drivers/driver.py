"""Drivers: the ways of starting a workload under a trial's limits.

Every driver but one works inside the trial's slice, so counters are always read from the same
cgroup. The driver `process` needs no cgroup, and serves trials without limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from pagecage.errors import HostError
from pagecage.linux.block_device import Disk
from pagecage.linux.cgroup import Cgroup, CgroupMaker
from pagecage.linux.systemd import scope_name
from pagecage.linux.trial_processes import TrialProcesses
from pagecage.model.cage import IO_MAX_KEY, Cage
from pagecage.process import Process

Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]
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
        """The trial's cgroup. Raises HostError if the trial has none."""
        if self.processes.cgroup is None:
            raise HostError("the trial has no cgroup, because its driver uses none")
        return self.processes.cgroup

    @property
    def name(self) -> str:
        """The name of the scope, service or container in the slice."""
        return scope_name(self.unit)


@dataclass(frozen=True)
class ExternalLimits:
    """Limits enforced outside this host's cgroups by program `by`, with its values by property.

    `model` is all that a simulated volume has in force, and `path` the way to it; both are None for
    another program.
    """

    by: str
    read_back: Mapping[str, int] = field(default_factory=dict)
    model: Mapping[str, Any] | None = None
    path: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the entry `external` of a record's cage."""
        parts = {"model": self.model, "path": self.path}
        known = {name: dict(part) for name, part in parts.items() if part is not None}
        return {"by": self.by, "read_back": dict(self.read_back), **known}


class Driver(Protocol):
    """One way of running a workload in a cage.

    Methods are called in this order; each may raise HostError.
    """

    name: str
    has_slice: bool
    """False if the trial has no cgroup of its own, so that it cannot have limits."""

    def prepare(self) -> dict[str, Any]:
        """Provide everything that a start needs, before anything is measured.

        Return it for the record.
        """

    def slice_cage(self, cage: Cage, /) -> Cage:
        """Return the part of the cage that is set on the trial's slice."""

    def apply_external(self, context: LaunchContext, /) -> ExternalLimits | None:
        """Have the other limits enforced outside this host before the start.

        None if there are none.
        """

    def command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return the start command, which passes standard streams and exit status through."""

    def held_command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return the start command of a program that reads its standard input.

        Once it runs, `admit` must be called.
        """

    def admit(self, context: LaunchContext, process: Process[bytes], /) -> None:
        """Take the started process into its cage, before it becomes the workload."""

    def preview_commands(self, context: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        """Return all commands that a start runs, for display in a plan. Nothing is started."""

    def own_cgroup(self, context: LaunchContext, /) -> Cgroup | None:
        """Return the cgroup with the driver's own limits; None if it does not exist (yet)."""

    def main_pid(self, context: LaunchContext, client: int, /) -> int | None:
        """Return the process id of the running workload.

        `client` is the process that was started by `command`.
        """

    def clear(self, context: LaunchContext, /) -> None:
        """Undo `apply_external` and `command`. Always called, even if neither of them ran."""


class SliceDriver:
    """A driver whose limits are all set on the trial's slice."""

    has_slice = True

    def prepare(self) -> dict[str, Any]:
        """Return an empty mapping: nothing needs preparation."""
        return {}

    def slice_cage(self, cage: Cage, /) -> Cage:
        """Return the whole cage."""
        return cage

    def command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return the command that enters the trial's cgroup and execs the workload."""
        return context.maker.enter_command(context.unit, argv)

    def held_command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return the start command, which enters the cage by itself."""
        return self.command(context, argv)

    def admit(self, _context: LaunchContext, _process: Process[bytes], /) -> None:
        """Do nothing: the start command enters the cage by itself."""

    def preview_commands(self, context: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        """Return the start command alone."""
        return [self.command(context, argv)]

    def apply_external(self, _context: LaunchContext, /) -> ExternalLimits | None:
        """Return None: no limit is enforced outside the slice."""
        return None

    def own_cgroup(self, _context: LaunchContext, /) -> Cgroup | None:
        """Return None: only the slice has limits."""
        return None

    def main_pid(self, _context: LaunchContext, client: int, /) -> int | None:
        """Return `client`: the start command execs the workload."""
        return client

    def clear(self, _context: LaunchContext, /) -> None:
        """Do nothing: stopping the slice ends the workload."""


class ClientDriver(SliceDriver):
    """A SliceDriver whose start command is a client that stays outside the slice."""

    def main_pid(self, context: LaunchContext, _client: int, /) -> int | None:
        """Return the process id of the first process in the slice; None if the slice is empty."""
        return next((member.pid for member in context.processes.members()), None)


def without(cage: Cage, properties: Sequence[str]) -> Cage:
    """Return the cage without these properties."""
    return replace(
        cage, properties={k: v for k, v in cage.properties.items() if k not in properties}
    )


def io_properties(cage: Cage) -> dict[str, int]:
    """Return only the cage's I/O limits, by property."""
    return {name: value for name, value in cage.properties.items() if name in IO_MAX_KEY}
