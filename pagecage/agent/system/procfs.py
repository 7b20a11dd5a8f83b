"""Counters of the host and of one disk in /proc, and listening ports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pagecage.agent.system.kernel_text import (
    parse_flat_keyed,
    parse_meminfo,
    parse_pressure,
    read_text,
)

PROC = Path("/proc")
# Documentation/admin-guide/iostats.rst, in the order of the columns.
DISKSTATS_FIELDS = (
    "reads",
    "reads_merged",
    "sectors_read",
    "read_ms",
    "writes",
    "writes_merged",
    "sectors_written",
    "write_ms",
    "in_flight",
    "io_ticks",
    "weighted_io_ticks",
    "discards",
    "discards_merged",
    "sectors_discarded",
    "discard_ms",
    "flushes",
    "flush_ms",
)
_CPU_FIELDS = (
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


def parse_diskstats(text: str, maj_min: str) -> dict[str, int] | None:
    """Return the line of one disk, or None.

    Never add disks: a dm device counts the same I/O as its parent.
    """
    major, _, minor = maj_min.partition(":")
    for line in text.splitlines():
        words = line.split()
        if words[:2] == [major, minor]:
            return _numbered(DISKSTATS_FIELDS, words[3:])
    return None


def _numbered(fields: Sequence[str], words: Sequence[str]) -> dict[str, int]:
    """Return the numbers by field; an older kernel has fewer, a newer one more."""
    # No `strict=`, because a customer's Python may be 3.9 (pagecage/hosts/verify_package.py).
    return {name: int(word) for name, word in zip(fields, words)}  # noqa: B905


def parse_cpu(text: str) -> dict[str, int] | None:
    """Return the `cpu` line of /proc/stat, in ticks, with `ticks_per_second`."""
    for line in text.splitlines():
        if line.startswith("cpu "):
            ticks = _numbered(_CPU_FIELDS, line.split()[1:])
            return {**ticks, "ticks_per_second": os.sysconf("SC_CLK_TCK")}
    return None


def read_device(maj_min: str, proc: Path = PROC) -> dict[str, int] | None:
    """Return a disk's line of /proc/diskstats, or None."""
    return parse_diskstats(read_text(proc / "diskstats") or "", maj_min)


def read_vmstat(proc: Path = PROC) -> dict[str, int] | None:
    """Return the counters of the host's memory management (/proc/vmstat)."""
    return parse_flat_keyed(read_text(proc / "vmstat") or "") or None


def read_host(proc: Path = PROC) -> dict[str, Any]:
    """Return the host's vmstat, meminfo (kB), stat (ticks) and pressure on its CPUs (psi.rst)."""
    return {
        "vmstat": read_vmstat(proc),
        "meminfo": parse_meminfo(read_text(proc / "meminfo") or "") or None,
        "stat": parse_cpu(read_text(proc / "stat") or ""),
        "cpu_pressure": parse_pressure(read_text(proc / "pressure/cpu") or "") or None,
    }


def available_memory_bytes(proc: Path = PROC) -> int | None:
    """Return the memory that programs can have without swapping (proc_meminfo(5))."""
    kib = parse_meminfo(read_text(proc / "meminfo") or "").get("MemAvailable")
    return None if kib is None else kib * 1024


def boot_id(proc: Path = PROC) -> str | None:
    """Return the kernel's random id of this boot, which a restored guest keeps."""
    text = read_text(proc / "sys/kernel/random/boot_id")
    return text.strip() if text else None


# TCP_LISTEN of include/net/tcp_states.h, in the column `st` of /proc/net/tcp (proc_pid_net(5))
_LISTEN = "0A"


def parse_listening(text: str) -> set[int]:
    """Return the ports in state LISTEN in the text of /proc/PID/net/tcp or tcp6."""
    ports = set()
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) > 3 and words[3] == _LISTEN:
            _, _, port = words[1].rpartition(":")
            try:
                ports.add(int(port, 16))
            except ValueError:
                continue
    return ports


def listens(port: int, pids: Iterable[int | str], proc: Path = Path("/proc")) -> bool:
    """Return whether a socket listens on the port in a network namespace of the processes.

    "self" is this process.
    """
    texts = (
        read_text(proc / str(pid) / "net" / name) or "" for pid in pids for name in ("tcp", "tcp6")
    )
    return any(port in parse_listening(text) for text in texts)


EMULATED_CPU = "QEMU TCG"
"""Part of the name of a CPU whose instructions QEMU translates."""
# QEMU's `-cpu max` has no implementer, and the part 'Q' (target/arm/cpu64.c).
_EMULATED_MAX = ("0x00", "0x051")
_CPU_PARTS = {  # lscpu-arm.c of util-linux
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
}


def cpu_model(cpuinfo: str) -> str | None:
    """Return the name of the first processor; None if /proc/cpuinfo states none.

    x86-64 states a name. arm64 states the fields of MIDR_EL1 (arch/arm64/kernel/cpuinfo.c).
    """
    first = dict(map(_field, cpuinfo.split("\n\n", 1)[0].splitlines()))
    if "model name" in first:
        return first["model name"]
    maker, part = first.get("CPU implementer"), first.get("CPU part")
    if maker is None or part is None:
        return None
    if (maker, part) == _EMULATED_MAX:
        return f"{EMULATED_CPU} CPU (aarch64 max)"
    revision = f"r{int(first.get('CPU variant', '0'), 0)}p{first.get('CPU revision', '0')}"
    return f"{_CPU_PARTS.get((maker, part), f'implementer {maker} part {part}')} {revision}"


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()
