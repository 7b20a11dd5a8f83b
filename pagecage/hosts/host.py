"""What the campaign asks of a host; local, vm and SSH hosts differ only in how bytes reach the agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pagecage.hosts.agent_package import AgentPackage

Progress = Callable[[str], None]
"""Called with a short present-tense sentence when a step that takes seconds begins ("booting the guest")."""


@dataclass(frozen=True)
class ResourceNeeds:
    """Requirements of a plan before its first trial: working memory and room on the data disk.

    A host may prepare `kit` and attach `tracers` (collectors' names) in advance; it need not.
    """

    memory_bytes: int
    data_bytes: int
    kit: AgentPackage | None = None
    tracers: tuple[str, ...] = ()


@dataclass(frozen=True)
class MachineState:
    """One machine state: what started it, how often it was restored, and what runs beneath it.

    `state_id` names the saved state (None for a machine that is simply running), `restore_seq` counts its restores,
    `emulated` tells that instructions are translated (TCG), `details` are facts (QEMU version, accel, aio).
    """

    state_id: str | None
    restore_seq: int | None
    emulated: bool
    details: dict[str, Any]


class SizedHost(Protocol):
    """What choosing a size asks of a host, or of a group of them."""

    @property
    def name(self) -> str:
        """What it is called in plans and records."""

    def is_emulated(self, progress: Progress) -> bool:
        """Whether instructions will be translated (TCG): asked before prepare(), because the size may depend on it."""


class ObservedHost(Protocol):
    """What taking in an agent's stream asks of a host: its name, and what the machine around it shows and does."""

    @property
    def name(self) -> str:
        """What it is called in plans and records."""

    def outer_sample(self) -> dict[str, Any] | None:
        """The machine around a guest, now: CPU, PSI, disk, QEMU's own use. None where there is nothing around."""

    def throttle(self, limits: Mapping[str, int]) -> dict[str, int]:
        """Hold the measured disk from outside to systemd's I/O properties, to none where there are none.

        Returns those in force as the machine around says. Raises HostError where nothing is around.
        """


class AgentHost(Protocol):
    """What asking an agent asks of a host: where it measures and works, and whether by the user's own systemd."""

    @property
    def name(self) -> str:
        """What it is called in plans and records."""

    @property
    def data_dir(self) -> str:
        """Directory on the host whose disk is measured and limited."""

    @property
    def spool_dir(self) -> str:
        """Memory-backed directory on the host for the agent, workloads and traces."""

    @property
    def user(self) -> bool:
        """Whether units are made by the user's own systemd instead of the system's."""


class Host(ObservedHost, SizedHost, AgentHost, Protocol):
    """A machine that runs trials: prepare, start, install, command..., (restart), stop; stop is safe at any time."""

    def prepare(self, need: ResourceNeeds, progress: Progress) -> None:
        """Make everything that start() needs (image, saved state); slow once, nothing afterwards."""

    def start(self) -> MachineState:
        """Bring the machine to its starting state. Raises HostError, or PagecageError when somebody else uses it."""

    def restart(self) -> MachineState:
        """The starting state once more: for `fresh`, or after the host or its agent died."""

    def install(self, kit: AgentPackage) -> None:
        """Have the agent and the workloads there; called after each start."""

    def agent_command(self) -> list[str]:
        """The local argv that runs the installed agent, which reads a request from its standard input."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """The local argv that runs `argv` on the host with stdin, stdout, stderr and exit status passed through."""

    def interactive(self, argv: Sequence[str]) -> list[str]:
        """The same with a terminal of its own there, for whoever sits at ours."""

    def push(self, sources: Sequence[Path], directory: str) -> None:
        """Copy files into a directory on the host (made if missing), keeping names and the executable bit."""

    def stop(self) -> None:
        """End what start() began. Never raises for a machine that is already gone."""
