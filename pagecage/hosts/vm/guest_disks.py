"""All data disks of a guest, by name: their files, their ports, and the volumes that serve them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pagecage.agent.system.volume_server import VolumeServer
from pagecage.errors import PagecageError
from pagecage.hosts.host import Progress, ResourceNeeds
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.data_disk import ensure_data_disk, plug
from pagecage.hosts.vm.machine import PORTS
from pagecage.hosts.vm.qmp import QmpClient
from pagecage.model.cage import DATA_DISK

DATA_MOUNT = "/data"


def mount_point(name: str) -> str:
    """Return where the guest mounts a disk."""
    return DATA_MOUNT if name == DATA_DISK else f"/disks/{name}"


def disk_directories(names: Sequence[str], account: str) -> dict[str, str]:
    """Return the directory of each other disk in which an account of the guest may write."""
    below = "" if account == "root" else f"/{account}"
    return {name: f"{mount_point(name)}{below}" for name in names if name != DATA_DISK}


def ensure_disks(cache: GuestCache, need: ResourceNeeds, progress: Progress) -> tuple[str, ...]:
    """Make the files of all disks that a plan needs, where missing; return the disks' names.

    Raises PagecageError for more disks than the guest has ports.
    """
    if len(need.disks) >= len(PORTS):
        names = ", ".join(need.disks)
        raise PagecageError(
            f"the guest has ports for {len(PORTS) - 1} disks beside the data directory's, and the"
            f" plan names {len(need.disks)}: {names}",
            "run the cages one by one: --cage CAGE",
        )
    ensure_data_disk(cache.data_disk, need.data_bytes, progress)
    for name in need.disks:
        ensure_data_disk(cache.disk(name), need.written_bytes, progress)
    return (DATA_DISK, *need.disks)


def serve_disks(
    cache: GuestCache, names: Sequence[str], plugin: Path | None, sockets: Path
) -> dict[str, VolumeServer]:
    """Start the server of a simulated volume for each disk; without a plugin there is none."""
    servers: dict[str, VolumeServer] = {}
    if plugin is None:
        return servers
    for name in names:
        own = sockets / name
        own.mkdir(exist_ok=True)
        log = cache.scratch / ("nbdkit.log" if name == DATA_DISK else f"nbdkit-{name}.log")
        try:
            servers[name] = VolumeServer.start(plugin, cache.disk(name), own, log)
        except BaseException:
            end_servers(servers)
            raise
    return servers


def end_servers(servers: Mapping[str, VolumeServer]) -> None:
    """End the servers. Safe at any time."""
    for server in servers.values():
        server.end()


def plug_disks(
    monitor: QmpClient,
    cache: GuestCache,
    names: Sequence[str],
    servers: Mapping[str, VolumeServer],
) -> str:
    """Plug in the disks; return the aio with which QEMU reads the data disk."""
    found = {}
    for port, name in zip(PORTS, names, strict=False):
        socket = servers[name].data_socket if name in servers else None
        found[name] = plug(monitor, cache.disk(name), socket, name=name, port=port)
    return found[DATA_DISK]
