"""Disks made for one trial: null_blk in memory with a latency, or dm-delay over null_blk.

null_blk completes each request by a timer (Documentation/block/null_blk.rst: irqmode,
completion_nsec) at any queue depth; dm-delay delays reads by whole milliseconds
(Documentation/admin-guide/device-mapper/delay.rst). Names are fixed, since one agent locks the
host: the next start finds what a killed agent left.
"""

from __future__ import annotations

import mmap
import os
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.system.block_device import Disk, resolve_disk
from pagecage.agent.system.kernel_text import read_text
from pagecage.errors import HostError, PagecageError
from pagecage.process import find_tool, run
from pagecage.units import BLOCK_BYTES, MIB

NULL_BLK = Path("/sys/kernel/config/nullb/pagecage")
MAPPER = Path("/dev/mapper/pagecage-delay")
_SPARE_BYTES = (
    512 * MIB
)  # more than a dataset must leave free; null_blk allocates memory only for written blocks
_LOOKS = 16
_MAX_SECTORS = 2560  # 1280 KiB, what the kernel gives other disks (BLK_DEF_MAX_SECTORS_CAP)
_NODE_SECONDS = 5.0


@dataclass(frozen=True)
class TrialStorage:
    """A disk and the mount point of its file system."""

    disk: Disk
    mount_point: Path


def make_storage(kind: str, latency_us: int, data_bytes: int, spool: Path) -> TrialStorage:
    """Make a disk with room for the data and a file system, and mount it.

    Raises PagecageError with the reason.
    """
    size_bytes = data_bytes * 6 // 5 + _SPARE_BYTES
    node = make_null_blk(size_bytes, latency_us if kind == "null_blk" else 0)
    if kind == "dm_delay":
        node = _delay(node, latency_us // 1000)
    mount_point = spool / "storage"
    mount_point.mkdir(parents=True, exist_ok=True)
    settings = "lazy_itable_init=0,nodiscard"
    run(
        ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-O", "^has_journal", "-E", settings, node],
        timeout_seconds=300,
    )
    run(["mount", "-o", "noatime", node, mount_point], timeout_seconds=60)
    return TrialStorage(resolve_disk(mount_point), mount_point)


def make_null_blk(size_bytes: int, latency_us: int, configfs: Path = NULL_BLK) -> Path:
    """Make a null_blk disk; return its node.

    Raises HostError if the kernel lacks the module or refuses a setting.
    """
    run(["modprobe", "null_blk", "nr_devices=0"], timeout_seconds=30)
    settings = {
        "size": -(-size_bytes // MIB),
        "memory_backed": 1,
        "irqmode": 2 if latency_us else 1,
        "completion_nsec": latency_us * 1000,
        "hw_queue_depth": 256,
    }
    try:
        configfs.mkdir()
        for name, value in settings.items():
            (configfs / name).write_text(str(value))
        _take_large_requests(configfs)
        (configfs / "power").write_text("1")
        index = (configfs / "index").read_text().strip()
    except OSError as error:
        raise HostError(
            f"null_blk cannot be set up: {error.strerror} ({error.filename})", "use HOST=vm"
        ) from None
    return _first_node(Path(f"/dev/nullb{index}"), Path("/dev") / configfs.name)


def _take_large_requests(configfs: Path) -> None:
    """Raise null_blk's limit of 255 sectors, which would split 128 KiB into two I/Os of io.max.

    A kernel without the setting keeps its limit.
    """
    with suppress(OSError):
        (configfs / "max_sectors").write_text(str(_MAX_SECTORS))


def _first_node(*names: Path) -> Path:
    """Return the node that appears: numbered, since Linux 6.11 named after its configfs folder."""
    deadline = time.monotonic() + _NODE_SECONDS
    while time.monotonic() < deadline:
        for name in names:
            if name.is_block_device():
                return name
        time.sleep(0.02)
    raise HostError(f"{names[0]} did not appear", "use HOST=vm")


def _delay(node: Path, milliseconds: int) -> Path:
    """Make a device over another that delays reads but not writes."""
    if not find_tool("dmsetup"):
        raise HostError("dmsetup is not installed", "apt-get install dmsetup")
    run(["modprobe", "dm-delay"], timeout_seconds=30)
    sectors = int((read_text(Path("/sys/class/block") / node.name / "size") or "0").strip())
    table = f"0 {sectors} delay {node} 0 {milliseconds} {node} 0 0"
    run(["dmsetup", "create", MAPPER.name, "--table", table], timeout_seconds=30)
    return _first_node(MAPPER)


def remove_storage(spool: Path, configfs: Path = NULL_BLK, mapper: Path = MAPPER) -> list[str]:
    """Remove whatever make_storage made, even in part; return the names of what was there."""
    mount_point = spool / "storage"
    removed = []
    if mount_point.is_mount():
        run(["umount", mount_point], timeout_seconds=60)
        removed.append(str(mount_point))
    if mapper.exists():
        run(["dmsetup", "remove", "--retry", mapper.name], timeout_seconds=60)
        removed.append(mapper.name)
    if configfs.exists():
        _remove_null_blk(configfs)
        removed.append(f"null_blk {configfs.name}")
    if mount_point.exists():
        mount_point.rmdir()
    return removed


def _remove_null_blk(configfs: Path) -> None:
    try:
        (configfs / "power").write_text("0")
        configfs.rmdir()
    except OSError as error:
        raise PagecageError(
            f"null_blk cannot be removed: {error.strerror}", "restart the host"
        ) from None


def read_latency_us(path: Path) -> float | None:
    """Return the median time of a direct read of 4 KiB of a file.

    Returns None without support for direct reads.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return None
    try:
        blocks = os.fstat(descriptor).st_size // BLOCK_BYTES
        with mmap.mmap(-1, BLOCK_BYTES) as buffer:
            took = [
                _read_seconds(descriptor, buffer, n * blocks // _LOOKS)
                for n in range(min(_LOOKS, blocks))
            ]
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return statistics.median(took) * 1e6 if took else None


def _read_seconds(descriptor: int, buffer: mmap.mmap, number: int) -> float:
    begin = time.perf_counter()
    os.preadv(descriptor, [buffer], number * BLOCK_BYTES)
    return time.perf_counter() - begin
