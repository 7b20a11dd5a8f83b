"""Disks of a guest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pagecage.agent.volume_server import VolumeServer
from pagecage.errors import HostError, PagecageError
from pagecage.hosts.controller import require_free_space
from pagecage.hosts.host import Progress, ResourceNeeds
from pagecage.hosts.vm.cache import GuestCache, allocated_bytes
from pagecage.hosts.vm.qemu import PORTS, QmpClient
from pagecage.linux.block_device import MAKE_EXT4
from pagecage.model.cage import DATA_DISK
from pagecage.model.json_codec import Json
from pagecage.process import run
from pagecage.units import GIB, format_bytes

LEAST_BYTES = 8 * GIB
DEVICE = "data-disk"
_BACKEND = f"/machine/peripheral/{DEVICE}/virtio-backend"  # QEMU's path of the throttled device
# systemd property -> QEMU's name (block_set_io_throttle in qapi/block-core.json).
_THROTTLE = {
    "IOReadBandwidthMax": "bps_rd",
    "IOWriteBandwidthMax": "bps_wr",
    "IOReadIOPSMax": "iops_rd",
    "IOWriteIOPSMax": "iops_wr",
}
_UNMERGED = {"request_merging": False}
"""A volume merges by its provider's rules. QEMU would merge adjacent requests before it counts."""
AIO_BY_PREFERENCE = ("io_uring", "native", "threads")


class DataDiskError(HostError):
    """QEMU cannot open the data disk as required; a new saved state would not help."""


def disk_bytes_for(data_bytes: int) -> int:
    """Return the size of a disk for so much data: a fifth and 1 GiB more, in whole GiB."""
    wanted = max(LEAST_BYTES, data_bytes * 6 // 5 + GIB)
    return -(-wanted // GIB) * GIB


def ensure_data_disk(path: Path, data_bytes: int, progress: Progress) -> None:
    """Make the disk anew if it is missing or too small. Raises HostError without room."""
    size_bytes = disk_bytes_for(data_bytes)
    missing_bytes = max(0, data_bytes - allocated_bytes(path))
    require_free_space(path.parent, missing_bytes, "the experiment's data")
    if path.exists() and path.stat().st_size >= size_bytes:
        return
    progress(f"making the guest's data disk ({format_bytes(size_bytes)}, sparse)")
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with part.open("wb") as disk:
        disk.truncate(size_bytes)
    run([*MAKE_EXT4, "-L", "data", part])
    part.rename(path)


def drop_if_broken(path: Path, progress: Progress) -> None:
    """Remove the disk unless e2fsck(8) ends with 0 or 1: clean, or repaired."""
    if not path.exists():
        return
    checked = run(["e2fsck", "-f", "-p", path], check=False)
    if checked.status not in (0, 1):
        progress("the data disk's file system is broken: datasets will be made again")
        path.unlink()


def serial(name: str) -> str:
    """Return the serial number by which the guest knows a disk; at most 20 bytes (virtio-blk)."""
    return f"pagecage-{name}"


NBD = "nbd"
"""The aio of a disk that a simulated volume serves, through the page cache of this machine."""
OUTER_CACHE = "outer page cache"


def plug(
    monitor: QmpClient,
    path: Path,
    volume: Path | None = None,
    *,
    name: str = DATA_DISK,
    port: int = 0,
) -> str:
    """Plug a disk into a port with `cache.direct=on`; return the fastest aio that works.

    `volume` is the socket at which a simulated volume serves the disk; the answer is then `nbd`.
    Raises DataDiskError if the file cannot be opened with O_DIRECT (on tmpfs, for example).
    """
    node: Json = {"driver": "raw", "node_name": name}
    disk = {"driver": "virtio-blk-pci", "drive": name, "id": f"{name}-disk", "bus": PORTS[port]}
    if volume is not None:
        # Without a delay for reconnecting, I/O fails at once when the server has ended.
        server = {"type": "unix", "path": str(volume)}
        file = {"driver": "nbd", "server": server, "reconnect-delay": 0}
        monitor.execute("blockdev-add", **node, file=file)
        monitor.execute("device_add", **disk, serial=serial(name), **_UNMERGED)
        return NBD
    direct, refusal = {"direct": True}, HostError("QEMU has no aio for the data disk")
    for aio in AIO_BY_PREFERENCE:
        file = {"driver": "file", "filename": str(path), "aio": aio, "cache": direct}
        try:
            monitor.execute("blockdev-add", **node, cache=direct, file=file)
        except HostError as error:
            refusal = error
            continue
        monitor.execute("device_add", **disk, serial=serial(name))
        return aio
    reason = f"the data disk cannot be opened with O_DIRECT: {refusal.message}"
    raise DataDiskError(reason, "set XDG_CACHE_HOME to a directory on a disk (ext4, xfs, btrfs)")


def throttle(monitor: QmpClient, limits: Mapping[str, int]) -> dict[str, int]:
    """Limit the disk to these I/O properties of systemd, and return the limits in force.

    Without properties the limits are removed. Raises HostError.
    """
    requested = {name: limits.get(property_, 0) for property_, name in _THROTTLE.items()}
    arguments = {"id": _BACKEND, "bps": 0, "iops": 0, **requested}
    monitor.execute_verbatim("block_set_io_throttle", arguments)
    for block in monitor.execute("query-block"):
        if block.get("qdev") == _BACKEND:
            actual = block["inserted"]
            return {key: actual[name] for key, name in _THROTTLE.items() if actual.get(name)}
    raise HostError("QEMU does not list the data disk", "pagecage host rebuild vm")


DATA_MOUNT = "/data"
DIRECTORIES = {
    "root": (DATA_MOUNT, "/dev/shm/pagecage"),
    "bench": (f"{DATA_MOUNT}/bench", "/dev/shm/pagecage-bench"),
}
"""Data directory and spool of each account. The spool is in memory: Debian mounts /run noexec."""


def mount_point(name: str) -> str:
    return DATA_MOUNT if name == DATA_DISK else f"/disks/{name}"


def disk_directories(names: Sequence[str], account: str) -> dict[str, str]:
    """Return the directory of each other disk in which an account of the guest may write."""
    below = "" if account == "root" else f"/{account}"
    return {name: f"{mount_point(name)}{below}" for name in names if name != DATA_DISK}


def ensure_disks(cache: GuestCache, need: ResourceNeeds, progress: Progress) -> tuple[str, ...]:
    """Make the files of a plan's disks; return their names. Raises PagecageError for too many."""
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
    if plugin is None:
        return {}
    servers: dict[str, VolumeServer] = {}
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
    for server in servers.values():
        server.end()


def plug_disks(
    monitor: QmpClient, cache: GuestCache, names: Sequence[str], servers: Mapping[str, VolumeServer]
) -> str:
    """Plug in the disks; return the aio with which QEMU reads the data disk."""
    found = {}
    for port, name in enumerate(names):
        socket = servers[name].data_socket if name in servers else None
        found[name] = plug(monitor, cache.disk(name), socket, name=name, port=port)
    return found[DATA_DISK]
