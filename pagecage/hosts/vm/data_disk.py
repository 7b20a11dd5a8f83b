"""The guest's data disk: a raw file of its own, read past the host's page cache, kept between runs with its datasets."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pagecage.errors import HostError
from pagecage.hosts.host import Progress
from pagecage.hosts.vm.machine import DATA_PORT
from pagecage.hosts.vm.qmp import Monitor
from pagecage.process import run
from pagecage.units import GIB, format_bytes

LEAST_BYTES = 8 * GIB
SERIAL = "pagecage-data"
AIO_BY_PREFERENCE = ("io_uring", "native", "threads")


def disk_bytes_for(data_bytes: int) -> int:
    """The size of a disk that holds that much data: a fifth more and 1 GiB for the file system, in whole GiB."""
    wanted = max(LEAST_BYTES, data_bytes * 6 // 5 + GIB)
    return -(-wanted // GIB) * GIB


def ensure_data_disk(path: Path, data_bytes: int, progress: Progress) -> None:
    """Make the disk if it is missing or too small (what it held are datasets, which are made again).

    Raises HostError when the disk it lies on has not room for the data.
    """
    size_bytes = disk_bytes_for(data_bytes)
    _check_room(path, data_bytes)
    if path.exists() and path.stat().st_size >= size_bytes:
        return
    progress(f"making the guest's data disk ({format_bytes(size_bytes)}, sparse)")
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with part.open("wb") as disk:
        disk.truncate(size_bytes)
    # lazy_*=0: no kernel thread fills inode tables in while something is being measured (mke2fs(8)).
    settings = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    run(["mke2fs", "-q", "-t", "ext4", "-L", "data", "-m", "0", "-F", "-E", settings, part], env=_with_sbin())
    part.rename(path)


def _with_sbin() -> dict[str, str]:
    """mke2fs lies in /usr/sbin, which an ordinary Debian user's PATH leaves out."""
    return {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}


def _check_room(path: Path, data_bytes: int) -> None:
    used = path.stat().st_blocks * 512 if path.exists() else 0
    free = shutil.disk_usage(path.parent).free
    if free + used < data_bytes:
        raise HostError(
            f"{path.parent} has {format_bytes(free)} free, the experiment's data need {format_bytes(data_bytes)}",
            "free some room, choose a smaller SIZE, or set XDG_CACHE_HOME to a bigger disk",
        )


def plug(monitor: Monitor, path: Path) -> str:
    """Plug the disk in, `cache.direct=on`; returns the aio by which QEMU reads it, the quickest that works here.

    Raises HostError when the file cannot be opened past the host's page cache (it lies on a tmpfs, say).
    """
    aio = _add_block_node(monitor, path)
    monitor.execute("device_add", driver="virtio-blk-pci", drive="data", id="data-disk", bus=DATA_PORT, serial=SERIAL)
    return aio


def _add_block_node(monitor: Monitor, path: Path) -> str:
    refusal = HostError("no way to open the data disk")
    for aio in AIO_BY_PREFERENCE:
        file = {"driver": "file", "filename": str(path), "aio": aio, "cache": {"direct": True}}
        try:
            monitor.execute("blockdev-add", driver="raw", node_name="data", cache={"direct": True}, file=file)
            return aio
        except HostError as error:
            refusal = error
    raise HostError(
        f"the data disk cannot be opened past the page cache: {refusal.message}",
        "set XDG_CACHE_HOME to a directory on a disk (ext4, xfs, btrfs)",
    )
