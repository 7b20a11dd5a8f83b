"""A guest that runs, as the campaign uses it: commands over its ssh connection, its disk and outer machine by QEMU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.errors import HostDied
from pagecage.hosts.agent_package import AgentPackage, agent_argv, push_kit
from pagecage.hosts.connection import SharedConnection
from pagecage.hosts.ssh import SshTarget, push, ssh_argv
from pagecage.hosts.vm.cache import CacheLock, GuestCache
from pagecage.hosts.vm.data_disk import throttle
from pagecage.hosts.vm.outer_host import outer_sample
from pagecage.hosts.vm.qemu import Qemu

DIRECTORIES = {"root": ("/data", "/dev/shm/pagecage"), "bench": ("/data/bench", "/dev/shm/pagecage-bench")}
"""Data directory and spool of each account in the guest. The spool lies in memory.

/run would not do: Debian mounts it noexec.
"""


class GuestHost:
    """Base of the hosts that are guests. `user` is the account that measures (root, or the ordinary `bench`)."""

    name = "vm"

    def __init__(self, user: str, cache: GuestCache | None) -> None:
        self.data_dir, self.spool_dir = DIRECTORIES[user]
        self._user = user
        self._cache = cache or GuestCache.of_user()
        self._lock = CacheLock(self._cache.lock_file)
        self._qemu: Qemu | None = None
        self._connection: SharedConnection | None = None

    @property
    def user(self) -> bool:
        """Whether units are made by the user's own systemd: for anybody but root."""
        return self._user != "root"

    def install(self, kit: AgentPackage) -> None:
        """Copy agent and workloads into the guest. Raises HostDied when it is gone."""
        push_kit(self, kit)

    def agent_command(self) -> list[str]:
        """The ssh argv that starts the agent."""
        return self.command(agent_argv(self.spool_dir))

    def command(self, argv: Sequence[str]) -> list[str]:
        """The ssh argv that runs `argv` in the guest as the measuring user, through the connection that is open."""
        return ssh_argv(self.target, argv)

    def interactive(self, argv: Sequence[str]) -> list[str]:
        """The same with a terminal in the guest."""
        return ssh_argv(self.target, argv, tty=True)

    def push(self, sources: Sequence[Path], directory: str) -> None:
        """Copy files into the guest. Raises HostDied when it is gone."""
        push(self.target, sources, directory)

    def check(self) -> None:
        """Raises HostDied when the guest has ended."""
        self._running().check()

    def outer_sample(self) -> dict[str, Any]:
        """The machine around the guest, now; `qemu_cpu_seconds` is None when QEMU is gone."""
        return outer_sample(self._running().process_id.pid, self._cache.root)

    def throttle(self, limits: Mapping[str, int]) -> dict[str, int]:
        """Have QEMU hold the data disk to these limits; returns those in force."""
        return throttle(self._running().monitor, limits)

    @property
    def target(self) -> SshTarget:
        """The measuring account, over the open connection. Raises HostDied when the guest is not running."""
        if self._connection is None:
            raise HostDied("the guest is not running", "pagecage host up vm")
        return self._connection.target

    def _running(self) -> Qemu:
        if self._qemu is None:
            raise HostDied("the guest is not running", "pagecage host up vm")
        return self._qemu
