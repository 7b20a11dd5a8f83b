"""Counters of the machine around the guest: CPU, pressure, swap and disk, and QEMU's own use."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from pagecage.process import stat_fields
from pagecage.units import kernel_page_bytes

_CPU = (
    "user",
    "nice",
    "system",
    "idle",
    "iowait",
    "irq",
    "softirq",
    "steal",
    "guest",
    "guest_nice",
)
_DISK = (
    "reads",
    "reads_merged",
    "sectors_read",
    "read_ms",
    "writes",
    "writes_merged",
    "sectors_written",
    "write_ms",
    "in_flight",
    "io_ms",
    "weighted_io_ms",
)


def outer_sample(qemu_pid: int, cache_dir: Path, root: Path = Path("/")) -> dict[str, Any]:
    """Read all counters once; the difference of two samples is the use between them."""
    return {
        "unix_seconds": time.time(),
        "cpu_seconds": cpu_seconds(root),
        "pressure": pressure(root),
        "swap": swapped_bytes(root),
        "qemu_cpu_seconds": process_cpu_seconds(qemu_pid, root),
        "disk": disk_counters(cache_dir.stat().st_dev, root),
    }


def _seconds(ticks: str) -> float:
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: Path) -> dict[str, float]:
    """Return the totals of all CPUs since boot, by kind (proc_stat(5), first line)."""
    words = (root / "proc/stat").read_text().splitlines()[0].split()[1:]
    return {name: _seconds(ticks) for name, ticks in zip(_CPU, words, strict=False)}


def pressure(root: Path) -> dict[str, dict[str, int]] | None:
    """Return stall totals in microseconds by resource and kind (accounting/psi.rst).

    None if the kernel has no PSI.
    """
    found = {name: _stalls(root / "proc/pressure" / name) for name in ("cpu", "io", "memory")}
    return None if all(not stalls for stalls in found.values()) else found


def _stalls(path: Path) -> dict[str, int]:
    """Read one file; a kernel with PSI switched off answers with EOPNOTSUPP."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return {f"{line.split()[0]}_us": int(line.rsplit("total=", 1)[1]) for line in lines}


def swapped_bytes(root: Path) -> dict[str, int] | None:
    """Return the bytes read from and written to swap since boot; None if the kernel has none."""
    pages = dict(line.split() for line in (root / "proc/vmstat").read_text().splitlines())
    if "pswpin" not in pages:
        return None
    page_bytes = kernel_page_bytes()
    return {
        "in_bytes": int(pages["pswpin"]) * page_bytes,
        "out_bytes": int(pages["pswpout"]) * page_bytes,
    }


def process_cpu_seconds(pid: int, root: Path) -> float | None:
    """Return utime + stime of a process (proc_pid_stat(5), fields 14 and 15).

    None if the process has ended.
    """
    fields = stat_fields(pid, root / "proc")
    return None if fields is None else _seconds(fields[11]) + _seconds(fields[12])


def disk_counters(device: int, root: Path) -> dict[str, Any] | None:
    """Return the counters of the disk behind a device number (admin-guide/iostats.rst).

    None for a file system without a disk of its own (overlay, btrfs, tmpfs).
    """
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
