"""The guest's data disk: a raw file of its own, read past the host's page cache, kept between runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pagecage.errors import HostError
from pagecage.hosts.host import Progress
from pagecage.hosts.vm.machine import DATA_PORT
from pagecage.hosts.vm.prerequisites import require_room
from pagecage.hosts.vm.qmp import QmpClient
from pagecage.process import run
from pagecage.units import GIB, format_bytes

LEAST_BYTES = 8 * GIB
SERIAL = "pagecage-data"
DEVICE = "data-disk"
_BACKEND = f"/machine/peripheral/{DEVICE}/virtio-backend"  # where QEMU keeps what it throttles
# systemd property -> QEMU's name (block_set_io_throttle in qapi/block-core.json); the totals of both ways stay open.
_THROTTLE = {
    "IOReadBandwidthMax": "bps_rd", "IOWriteBandwidthMax": "bps_wr",
    "IOReadIOPSMax": "iops_rd", "IOWriteIOPSMax": "iops_wr",
}  # fmt: skip
AIO_BY_PREFERENCE = ("io_uring", "native", "threads")


class DataDiskError(HostError):
    """QEMU cannot open the data disk as it must; a new saved state would not help."""


def disk_bytes_for(data_bytes: int) -> int:
    """The size of a disk that holds that much data: a fifth more and 1 GiB for the file system, in whole GiB."""
    wanted = max(LEAST_BYTES, data_bytes * 6 // 5 + GIB)
    return -(-wanted // GIB) * GIB


def ensure_data_disk(path: Path, data_bytes: int, progress: Progress) -> None:
    """Make the disk if it is missing or too small (what it held are datasets, which are made again).

    Raises HostError when the disk it lies on has not room for the data.
    """
    size_bytes = disk_bytes_for(data_bytes)
    held_bytes = path.stat().st_blocks * 512 if path.exists() else 0
    require_room(path.parent, max(0, data_bytes - held_bytes), "the experiment's data")
    if path.exists() and path.stat().st_size >= size_bytes:
        return
    progress(f"making the guest's data disk ({format_bytes(size_bytes)}, sparse)")
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with part.open("wb") as disk:
        disk.truncate(size_bytes)
    # lazy_*=0: no kernel thread fills inode tables in while something is being measured (mke2fs(8)).
    settings = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    make = ["mke2fs", "-q", "-t", "ext4", "-L", "data", "-m", "0", "-F", "-E", settings]
    run([*make, part])
    part.rename(path)


def drop_if_broken(path: Path, progress: Progress) -> None:
    """Check the file system (e2fsck(8): status 0 or 1 is whole or repaired); remove the disk if it is beyond repair."""
    if not path.exists():
        return
    checked = run(["e2fsck", "-f", "-p", path], check=False)
    if checked.status not in (0, 1):
        progress("the data disk's file system is broken: datasets will be made again")
        path.unlink()


def plug(monitor: QmpClient, path: Path) -> str:
    """Plug the disk in, `cache.direct=on`; returns the aio by which QEMU reads it, the quickest that works here.

    Raises DataDiskRefused when the file cannot be opened past the host's page cache (it lies on a tmpfs, say).
    """
    aio = _add_block_node(monitor, path)
    monitor.execute("device_add", driver="virtio-blk-pci", drive="data", id=DEVICE, bus=DATA_PORT, serial=SERIAL)
    return aio


def _add_block_node(monitor: QmpClient, path: Path) -> str:
    refusal = HostError("no way to open the data disk")
    for aio in AIO_BY_PREFERENCE:
        file = {"driver": "file", "filename": str(path), "aio": aio, "cache": {"direct": True}}
        try:
            monitor.execute("blockdev-add", driver="raw", node_name="data", cache={"direct": True}, file=file)
            return aio
        except HostError as error:
            refusal = error
    raise DataDiskError(
        f"the data disk cannot be opened past the page cache: {refusal.message}",
        "set XDG_CACHE_HOME to a directory on a disk (ext4, xfs, btrfs)",
    )


def throttle(monitor: QmpClient, limits: Mapping[str, int]) -> dict[str, int]:
    """Hold the disk to these systemd properties, or let go of it where there are none; what QEMU says is in force.

    Raises HostError when QEMU refuses, or does not show the disk.
    """
    wanted = {name: limits.get(name_of, 0) for name_of, name in _THROTTLE.items()}
    monitor.execute_as_spelt("block_set_io_throttle", {"id": _BACKEND, "bps": 0, "iops": 0, **wanted})
    for block in monitor.execute("query-block"):
        if block.get("qdev") == _BACKEND:
            inserted = block["inserted"]
            return {name_of: inserted[name] for name_of, name in _THROTTLE.items() if inserted.get(name)}
    raise HostError("QEMU does not show the data disk", "pagecage host rebuild vm")
