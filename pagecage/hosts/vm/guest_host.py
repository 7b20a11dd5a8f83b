"""A running guest as a host: commands over ssh, disk and outer machine through QEMU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.agent.system.volume_server import VolumeServer
from pagecage.errors import HostDied, HostError
from pagecage.hosts.agent_package import AgentPackage, agent_argv, push_agent_package
from pagecage.hosts.connection import SharedConnection
from pagecage.hosts.ssh import SshTarget, push, ssh_argv
from pagecage.hosts.vm.cache import CacheLock, GuestCache
from pagecage.hosts.vm.data_disk import throttle
from pagecage.hosts.vm.guest_disks import disk_directories
from pagecage.hosts.vm.outer_host import outer_sample
from pagecage.hosts.vm.qemu import Qemu
from pagecage.model.cage import DATA_DISK

DIRECTORIES = {
    "root": ("/data", "/dev/shm/pagecage"),
    "bench": ("/data/bench", "/dev/shm/pagecage-bench"),
}
"""Data directory and spool of each account in the guest.

The spool is in memory. /run would not do: Debian mounts it noexec.
"""


class GuestHost:
    """Base class of guests as hosts.

    `user` is the measuring account (root, or the ordinary user `bench`).
    """

    name = "vm"

    def __init__(self, user: str, cache: GuestCache | None) -> None:
        self.data_dir, self.spool_dir = DIRECTORIES[user]
        self._user = user
        self._cache = cache or GuestCache.of_user()
        self._lock = CacheLock(self._cache.lock_file)
        self._qemu: Qemu | None = None
        self._connection: SharedConnection | None = None
        self._volumes: dict[str, VolumeServer] = {}
        self._disk_names: tuple[str, ...] = (DATA_DISK,)

    @property
    def user(self) -> bool:
        """True if the user's own systemd creates units: for everyone but root."""
        return self._user != "root"

    @property
    def disks(self) -> Mapping[str, str]:
        """A directory on each disk beside the data directory's, by name."""
        return disk_directories(self._disk_names, self._user)

    @property
    def own_disk(self) -> None:
        """None: a guest has disks of its own."""

    def install(self, package: AgentPackage) -> None:
        """Copy the agent and the workloads to the guest. Raises HostDied if it has ended."""
        push_agent_package(self, package)

    def agent_command(self) -> list[str]:
        """Return the ssh command that starts the agent."""
        return self.command(agent_argv(self.spool_dir))

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the ssh command that runs `argv` in the guest as the measuring user."""
        return ssh_argv(self.target, argv)

    def interactive(self, argv: Sequence[str]) -> list[str]:
        """Return the same command with a terminal in the guest."""
        return ssh_argv(self.target, argv, tty=True)

    def push(self, sources: Sequence[Path], directory: str) -> None:
        """Copy files to the guest. Raises HostDied if it has ended."""
        push(self.target, sources, directory)

    def check(self) -> None:
        """Raise HostDied if the guest has ended."""
        self._running().check()

    def outer_sample(self) -> dict[str, Any]:
        """Return counters of the machine around the guest.

        `qemu_cpu_seconds` is None if QEMU has ended.
        """
        return outer_sample(self._running().process_id.pid, self._cache.root)

    def throttle(self, limits: Mapping[str, int]) -> dict[str, int]:
        """Limit the data disk by QEMU; return the limits in force."""
        return throttle(self._running().monitor, limits)

    def command_volume(self, command: Mapping[str, Any], disk: str = DATA_DISK) -> dict[str, Any]:
        """Send a command to the simulated volume that is a data disk; return its answer.

        Raises HostError if that disk is none, and HostDied if its server has ended.
        """
        if disk not in self._volumes:
            raise HostError(f"the guest's disk {disk} is not a simulated volume", "use HOST=vm")
        return self._volumes[disk].command(command)

    @property
    def target(self) -> SshTarget:
        """The measuring account, over the shared connection.

        Raises HostDied if the guest is not running.
        """
        if self._connection is None:
            raise HostDied("the guest is not running", "pagecage host up vm")
        return self._connection.target

    def _running(self) -> Qemu:
        if self._qemu is None:
            raise HostDied("the guest is not running", "pagecage host up vm")
        return self._qemu
