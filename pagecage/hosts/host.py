"""Protocols of hosts. Hosts differ only in how commands and files reach the agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pagecage.hosts.agent_package import AgentPackage
from pagecage.model.cage import DATA_DISK
from pagecage.model.record_sections import Row
from pagecage.model.trial import Package

Progress = Callable[[str], None]
"""Called when a step that takes seconds begins, with a phrase such as "booting the guest"."""


@dataclass(frozen=True)
class ResourceNeeds:
    """Memory and space on the data disk that a plan needs.

    `resident_bytes` must be in memory at the same time. Each of the further `disks` has room for
    `written_bytes`. A host may install `package` and attach `tracers` in advance.
    """

    memory_bytes: int
    data_bytes: int
    resident_bytes: int = 0
    has_volume: bool = False
    disks: tuple[str, ...] = ()
    written_bytes: int = 0
    package: AgentPackage | None = None
    tracers: tuple[str, ...] = ()
    distribution_packages: tuple[Package, ...] = ()


@dataclass(frozen=True)
class MachineState:
    """A machine state. `state_id` names the saved state; None without. `details` are facts."""

    state_id: str | None
    restore_seq: int | None
    emulated: bool
    details: Row


class NamedHost(Protocol):
    """A host, or a group of hosts."""

    @property
    def name(self) -> str:
        """Its name in plans and records."""


class SizedHost(NamedHost, Protocol):
    """A host, or a group of hosts, for which a size is chosen."""

    def is_emulated(self, progress: Progress) -> bool:
        """Return whether instructions are translated (TCG). Called before prepare()."""


class ObservedHost(NamedHost, Protocol):
    """A host whose surrounding machine can be observed and throttled while a trial runs."""

    def outer_sample(self) -> Row | None:
        """Return counters of the machine around a guest; None if the host is not a guest."""

    def throttle(self, limits: Mapping[str, int]) -> dict[str, int]:
        """Limit the measured disk from outside, and return the limits in force.

        Without properties the limits are removed. Raises HostError if the host is not a guest.
        """

    def command_volume(self, command: Row, disk: str = DATA_DISK) -> Row:
        """Return the answer of a disk's simulated volume. Raises HostError, HostDied."""


class AgentHost(NamedHost, Protocol):
    """A host to which requests for an agent are addressed."""

    @property
    def data_dir(self) -> str:
        """The directory whose disk is measured and limited."""

    @property
    def disks(self) -> Mapping[str, str]:
        """A directory on each disk beside the data directory's, by name."""

    @property
    def own_disk(self) -> Mapping[str, str | int] | None:
        """The disk that the agent makes for the data (`file size_bytes data_bytes`), if any."""

    @property
    def spool_dir(self) -> str:
        """The directory in memory for the agent, workloads and traces."""

    @property
    def user(self) -> bool:
        """True if the user's own systemd creates units, instead of the system's."""


class Host(ObservedHost, SizedHost, AgentHost, Protocol):
    """A machine that runs trials: prepare, start, install, command..., (restart), stop."""

    def prepare(self, need: ResourceNeeds, progress: Progress) -> None:
        """Make everything that start() needs (image, saved state). Slow the first time."""

    def start(self) -> MachineState:
        """Bring the machine to its starting state. Raises HostError, also if it is in use."""

    def restart(self) -> MachineState:
        """Restore the starting state: for `fresh`, or after the host or its agent died."""

    def install(self, package: AgentPackage) -> None:
        """Install the agent and the workloads; called after each start."""

    def agent_command(self) -> list[str]:
        """Return the local command that runs the agent, which reads a request from stdin."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the local command that runs `argv` on the host, with its standard streams."""

    def interactive(self, argv: Sequence[str]) -> list[str]:
        """Return the local command that runs `argv` on the host with a terminal of its own."""

    def push(self, sources: Sequence[Path], directory: str) -> None:
        """Copy files to a directory on the host, created if missing; names and modes are kept."""

    def stop(self) -> None:
        """End what start() began. Safe at any time; does not raise if the machine has ended."""
