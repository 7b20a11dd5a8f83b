"""What puts a workload behind a trial's limits. Every driver works inside the trial's slice: one place that counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from pagecage.agent.system.block_device import Disk
from pagecage.agent.system.cgroupfs import members
from pagecage.agent.system.systemd import Systemd
from pagecage.model.cage import IO_MAX_KEY, Cage

Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""Puts a question to the controller, which knows the machine around a guest; raises HostError with its refusal."""


@dataclass(frozen=True)
class LaunchContext:
    """Where one trial runs: its slice, the cage around it, the measured disk, and what of this host it must see.

    `data_dir` is None where the data lie in the container itself; `files` are those data then. `environment` names the
    variables of the agent's that the workload gets where it would not inherit them.
    """

    systemd: Systemd
    unit: str
    cgroup: Path
    cage: Cage
    disk: Disk
    programs_dir: Path
    spool: Path
    data_dir: Path | None
    directory: Path | None = None
    paths: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    environment: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of what is started in the slice: a scope, a service, a container."""
        return self.unit.removesuffix(".slice").replace("pagecage-", "pagecage-run-")


@dataclass(frozen=True)
class ExternalLimits:
    """Limits that something outside of this host's cgroups holds: who, and what it says is in force, by property."""

    by: str
    read_back: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The entry `outside` of a record's cage."""
        return {"by": self.by, "read_back": dict(self.read_back)}


class Driver(Protocol):
    """One way of running a workload in a cage. Calls come in this order; each may raise HostError with its reason."""

    name: str

    def prepare(self) -> dict[str, Any]:
        """Have everything there that a start needs, while nothing is measured; what a record keeps of it."""

    def on_slice(self, cage: Cage, /) -> Cage:
        """The part of the cage that the trial's slice carries."""

    def impose(self, place: LaunchContext, /) -> ExternalLimits | None:
        """Have somebody outside hold the rest, before the start; None where nobody does."""

    def command(self, place: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """The command that starts the workload and passes its standard streams and exit status through."""

    def shown(self, place: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        """The commands that `command` stands for, as a plan shows them; nothing is started."""

    def limited(self, place: LaunchContext, /) -> Path | None:
        """The cgroup in which it has put limits of its own, once the workload runs; None where the slice has all."""

    def leader(self, place: LaunchContext, client: int, /) -> int | None:
        """The workload's own process, once it runs; `client` is the one that `command` became."""

    def clear(self, place: LaunchContext, /) -> None:
        """Remove what `impose` and `command` left. Safe when they never ran, and on every way out."""


class SliceDriver:
    """A driver for which the trial's slice carries every limit."""

    def prepare(self) -> dict[str, Any]:
        """Nothing to have there."""
        return {}

    def on_slice(self, cage: Cage, /) -> Cage:
        """All of it."""
        return cage

    def command(self, place: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """What each driver has for itself."""
        raise NotImplementedError

    def shown(self, place: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        """The one command that it is."""
        return [self.command(place, argv)]

    def impose(self, _place: LaunchContext, /) -> ExternalLimits | None:
        """Nobody else holds anything."""
        return None

    def limited(self, _place: LaunchContext, /) -> Path | None:
        """No cgroup but the slice has limits."""
        return None

    def leader(self, _place: LaunchContext, client: int, /) -> int | None:
        """The command has become the workload."""
        return client

    def clear(self, _place: LaunchContext, /) -> None:
        """The slice takes everything along."""


class ClientDriver(SliceDriver):
    """The same, where `command` becomes a client that stays outside of the slice."""

    def leader(self, place: LaunchContext, _client: int, /) -> int | None:
        """The first process in the slice."""
        return next((member.pid for member in members(place.cgroup)), None)


def without(cage: Cage, properties: Sequence[str]) -> Cage:
    """The cage without these properties."""
    return replace(cage, properties={k: v for k, v in cage.properties.items() if k not in properties})


def io_properties(cage: Cage) -> dict[str, int]:
    """The cage's caps on I/O alone."""
    return {name: value for name, value in cage.properties.items() if name in IO_MAX_KEY}
