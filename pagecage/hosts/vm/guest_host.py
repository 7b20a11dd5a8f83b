"""The guest as a host, and the machine around it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pagecage.agent.volume_server import VolumeServer
from pagecage.errors import HostDied, HostError
from pagecage.hosts.agent_package import AgentPackage, agent_argv, push_agent_package
from pagecage.hosts.ssh import SharedConnection, SshTarget, push, ssh_argv
from pagecage.hosts.vm.cache import CacheLock, GuestCache
from pagecage.hosts.vm.disks import disk_directories, throttle
from pagecage.hosts.vm.qemu import Qemu
from pagecage.linux import procfs
from pagecage.model.cage import DATA_DISK
from pagecage.model.record_sections import Row
from pagecage.process import stat_fields
from pagecage.units import kernel_page_bytes

_DISK = (*procfs.DISKSTATS_FIELDS[:9], "io_ms", "weighted_io_ms")


def outer_sample(qemu_pid: int, cache_dir: Path, root: Path = Path("/")) -> Row:
    """Read all counters once; the difference of two samples is the use between them."""
    return {
        "unix_seconds": time.time(),
        "cpu_seconds": cpu_seconds(root),
        "pressure": pressure(root),
        "swap": swapped_bytes(root),
        "qemu_cpu_seconds": process_cpu_seconds(qemu_pid, root),
        "disk": disk_counters(cache_dir.stat().st_dev, root),
    }


_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: Path) -> dict[str, float]:
    """Return the totals of all CPUs since boot, by kind (proc_stat(5), first line)."""
    ticks = procfs.parse_cpu((root / "proc/stat").read_text()) or {}
    return {name: n / _TICKS for name, n in ticks.items() if name != "ticks_per_second"}


def pressure(root: Path) -> dict[str, dict[str, int]] | None:
    """Return stall totals in microseconds by resource and kind (psi.rst); None without PSI."""
    found = {}
    for name in ("cpu", "io", "memory"):
        # A kernel with PSI switched off answers with EOPNOTSUPP.
        stalls = procfs.parse_pressure(procfs.read_text(root / "proc/pressure" / name) or "")
        found[name] = {f"{kind}_us": int(stall["total"]) for kind, stall in stalls.items()}
    return found if any(found.values()) else None


def swapped_bytes(root: Path) -> dict[str, int] | None:
    """Return the bytes read from and written to swap since boot; None if the kernel has none."""
    pages = procfs.read_vmstat(root / "proc") or {}
    if "pswpin" not in pages:
        return None
    page_bytes = kernel_page_bytes()
    return {"in_bytes": pages["pswpin"] * page_bytes, "out_bytes": pages["pswpout"] * page_bytes}


def process_cpu_seconds(pid: int, root: Path) -> float | None:
    """Return utime + stime of a process (proc_pid_stat(5)); None if it has ended."""
    fields = stat_fields(pid, root / "proc")
    return None if fields is None else (int(fields[11]) + int(fields[12])) / _TICKS


def disk_counters(device: int, root: Path) -> Row | None:
    """Return the counters of the disk behind a device number (iostats.rst); None without one."""
    number = f"{os.major(device)}:{os.minor(device)}"
    entry = root / "sys/dev/block" / number
    if not entry.exists():
        return None
    directory = entry.resolve()
    disk = directory.parent if (directory / "partition").exists() else directory
    values = (disk / "stat").read_text().split()
    return {
        "name": disk.name,
        **{name: int(value) for name, value in zip(_DISK, values, strict=False)},
    }


DIRECTORIES = {
    "root": ("/data", "/dev/shm/pagecage"),
    "bench": ("/data/bench", "/dev/shm/pagecage-bench"),
}
"""Data directory and spool of each account in the guest.

The spool is in memory. /run would not do: Debian mounts it noexec.
"""


class GuestHost:
    """Base class of guests as hosts; `user` is the measuring account (root or `bench`)."""

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

    def outer_sample(self) -> Row:
        """Return counters of the machine around the guest."""
        return outer_sample(self._running().process_id.pid, self._cache.root)

    def throttle(self, limits: Mapping[str, int]) -> dict[str, int]:
        """Limit the data disk by QEMU; return the limits in force."""
        return throttle(self._running().monitor, limits)

    def command_volume(self, command: Row, disk: str = DATA_DISK) -> Row:
        """Return the answer of a disk's simulated volume. Raises HostError, HostDied."""
        if disk not in self._volumes:
            raise HostError(f"the guest's disk {disk} is not a simulated volume", "use HOST=vm")
        return self._volumes[disk].command(command)

    @property
    def target(self) -> SshTarget:
        """The measuring account, over the shared connection. Raises HostDied if it is closed."""
        if self._connection is None:
            raise HostDied("the guest is not running", "pagecage host up vm")
        return self._connection.target

    def _running(self) -> Qemu:
        if self._qemu is None:
            raise HostDied("the guest is not running", "pagecage host up vm")
        return self._qemu
