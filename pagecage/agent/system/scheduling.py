"""Settings that decide a trial's speed besides its limits: CPUs, frequencies, priorities, pages."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pagecage.agent.system.kernel_text import parse_meminfo, read_text
from pagecage.agent.system.procfs import PROC
from pagecage.process import stat_fields

SYS = Path("/sys")
_MOST_CPUS = 64
"""Reading a frequency may interrupt its CPU, so those of larger machines are not all read."""
_NICE = 16
"""Index of `nice` behind the name of the process (proc_pid_stat(5), field 19)."""
_OF_CGROUP = {
    "cpuset": ("cpuset.cpus.effective",),
    "cpu_weight": ("cpu.weight", "cpu.shares"),
    "io_weight": ("io.weight", "blkio.weight", "blkio.bfq.weight"),
}
"""Files of both versions, by the key of a record (cgroup-v2.rst, cgroup-v1)."""
_BOOST = ("cpufreq/boost", "intel_pstate/no_turbo")
_LIBC = ctypes.CDLL(None, use_errno=True)
_IOPRIO_GET = {"x86_64": 252, "aarch64": 31}
_WHO_PROCESS, _CLASS_SHIFT = 1, 13
_CLASSES = ("none", "realtime", "best-effort", "idle")
"""Numbers of ioprio_get(2) and of include/uapi/linux/ioprio.h."""


def machine_settings(sys: Path = SYS, proc: Path = PROC) -> dict[str, Any]:
    """Return the CPUs' governors and frequencies in kHz, and the pool of huge pages.

    Keys are absent where the machine has no such setting, as most virtual machines.
    """
    cpu = sys / "devices/system/cpu"
    policies = sorted(cpu.glob("cpu[0-9]*/cpufreq"))[:_MOST_CPUS]
    governors = {_text(policy / "scaling_governor") for policy in policies}
    present = [_number(policy / "scaling_cur_freq") for policy in policies]
    most = [_number(policy / "scaling_max_freq") for policy in policies]
    found = {
        "governors": sorted(filter(None, governors)) or None,
        "frequencies_khz": _ends(present),
        "most_khz": _ends(most),
        "boost": next((text for name in _BOOST if (text := _text(cpu / name))), None),
        "transparent_hugepages": _chosen(_text(sys / "kernel/mm/transparent_hugepage/enabled")),
        "hugepages": _hugepages(proc),
    }
    return {name: value for name, value in found.items() if value is not None}


def process_settings(pid: int, proc: Path = PROC) -> dict[str, Any]:
    """Return affinity, nice and I/O priority of a process; empty if it has gone."""
    status = read_text(proc / str(pid) / "status") or ""
    fields = stat_fields(pid, proc)
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    found = {
        "affinity": lines.get("Cpus_allowed_list"),
        "nice": int(fields[_NICE]) if fields else None,
        "io_priority": _io_priority(pid),
    }
    return {name: value for name, value in found.items() if value is not None}


def cgroup_settings(directories: Sequence[Path]) -> dict[str, str]:
    """Return a cgroup's CPUs and weights, without those whose controller it does not have.

    `directories` are those of the cgroup in each hierarchy.
    """
    found = {}
    for key, names in _OF_CGROUP.items():
        texts = (_text(one / name) for one in directories for name in names)
        if text := next(filter(None, texts), None):
            found[key] = text
    return found


def _io_priority(pid: int) -> str | None:
    """Return class and level, such as `best-effort 4`; None on an unknown architecture."""
    number = _IOPRIO_GET.get(os.uname().machine)
    value = -1 if number is None else _LIBC.syscall(number, _WHO_PROCESS, pid)
    if value < 0:
        return None
    return f"{_CLASSES[value >> _CLASS_SHIFT]} {value & ((1 << _CLASS_SHIFT) - 1)}"


def _hugepages(proc: Path) -> dict[str, int] | None:
    """Return the pool of huge pages, which no limit on memory covers (hugetlbpage.rst)."""
    memory = parse_meminfo(read_text(proc / "meminfo") or "")
    if "HugePages_Total" not in memory:
        return None
    total, free = memory["HugePages_Total"], memory.get("HugePages_Free", 0)
    return {"total": total, "used": total - free, "page_bytes": memory["Hugepagesize"] * 1024}


def _text(path: Path) -> str | None:
    return (read_text(path) or "").strip() or None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text and text.isdigit() else None


def _ends(values: list[int | None]) -> list[int] | None:
    known = [value for value in values if value is not None]
    return [min(known), max(known)] if known else None


def _chosen(text: str | None) -> str | None:
    """Return the word in brackets, as in `always [madvise] never`."""
    return text.partition("[")[2].partition("]")[0] or None if text else None
