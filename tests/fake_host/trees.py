"""Fake trees of sysfs and procfs: block devices, linked as in the kernel's, and probes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pagecage.agent.facts import Kernel

QUEUE = {
    "read_ahead_kb": "256",
    "scheduler": "[none] mq-deadline",
    "max_sectors_kb": "1280",
    "nr_requests": "256",
    "rotational": "0",
    "optimal_io_size": "0",
    "logical_block_size": "512",
    "write_cache": "write back",
}


def disk(sys: Path, name: str, maj_min: str, slaves: tuple[str, ...] = (), place: str = "") -> Path:
    """Make a whole disk, or a layer (dm, md) over `slaves`, with its queue."""
    where = sys / "devices" / (place or "virtual/block") / name
    (where / "queue").mkdir(parents=True)
    (where / "slaves").mkdir()
    for setting, text in QUEUE.items():
        (where / "queue" / setting).write_text(f"{text}\n")
    for slave in slaves:
        (where / "slaves" / slave).symlink_to((sys / "class/block" / slave).resolve())
    _link(sys, where, maj_min)
    (sys / "block").mkdir(exist_ok=True)
    (sys / "block" / name).symlink_to(where)
    return where


def partition(sys: Path, parent: str, name: str, maj_min: str) -> Path:
    """Make a partition: a folder in its disk's, without a queue or slaves."""
    where = (sys / "block" / parent).resolve() / name
    where.mkdir()
    (where / "partition").write_text("1\n")
    _link(sys, where, maj_min)
    return where


def _link(sys: Path, where: Path, maj_min: str) -> None:
    (where / "dev").write_text(f"{maj_min}\n")
    for folder, name in (("dev/block", maj_min), ("class/block", where.name)):
        (sys / folder).mkdir(parents=True, exist_ok=True)
        (sys / folder / name).symlink_to(where)


def btrfs(
    sys: Path, members: tuple[str, ...], uuid: str = "11111111-2222-3333-4444-555555555555"
) -> None:
    """Make a btrfs over these block devices."""
    devices = sys / "fs/btrfs" / uuid / "devices"
    devices.mkdir(parents=True)
    for member in members:
        (devices / member).symlink_to((sys / "class/block" / member).resolve())


def kernel(
    root: Path,
    *,
    btf: bool = True,
    kprobes: bool = True,
    functions: Iterable[str] = (),
    tracepoints: Mapping[str, Iterable[str]] | None = None,
) -> Kernel:
    """Make the files by which a kernel shows its probes; None: tracefs is not mounted."""
    sys, proc = root / "sys", root / "proc"
    (sys / "kernel/tracing").mkdir(parents=True, exist_ok=True)
    (proc / "self").mkdir(parents=True, exist_ok=True)
    (proc / "self/status").write_text("CapEff:\t000001ffffffffff\n")
    symbols = (f"ffffffff81{n:06x} T {name}\n" for n, name in enumerate(functions))
    (proc / "kallsyms").write_text("".join(symbols))
    for wanted, path in ((btf, "kernel/btf/vmlinux"), (kprobes, "bus/event_source/devices/kprobe")):
        if wanted:
            (sys / path).mkdir(parents=True, exist_ok=True)
    for name, fields in (tracepoints or {}).items():
        folder = sys / "kernel/tracing/events" / name.replace(":", "/")
        folder.mkdir(parents=True, exist_ok=True)
        lines = (f"\tfield:unsigned long {one};\toffset:8;\tsize:8;\n" for one in fields)
        (folder / "format").write_text("format:\n" + "".join(lines))
    return Kernel(sys, proc)


def mountinfo(*mounts: tuple[str, str, str, str]) -> str:
    """Return lines of /proc/self/mountinfo for (maj:min, mount point, type, source)."""
    return "".join(
        f"{30 + n} 1 {maj_min} / {point} rw,relatime shared:{n} - {kind} {source} rw\n"
        for n, (maj_min, point, kind, source) in enumerate(mounts)
    )
