"""Files of /proc and /sys: their formats, figures of processes, scheduling of a thread."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pagecage.model.json_codec import Json
from pagecage.process import stat_fields

_PIECE_BYTES = 1 << 16
Pressure = dict[str, dict[str, float]]


def read_text(path: Path) -> str | None:
    """Return a kernel file's text; None if this kernel lacks it or refuses to read it (PSI).

    Paths are decoded as Python decodes them, since they may have any bytes (os.fsdecode).
    A trial reads over a hundred; a file object for each would take half of that time.
    """
    descriptor = open_text(path)
    if descriptor is None:
        return None
    try:
        return os.fsdecode(b"".join(iter(lambda: os.read(descriptor, _PIECE_BYTES), b"")))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def open_text(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def pread_text(descriptor: int | None) -> str | None:
    try:
        return None if descriptor is None else os.pread(descriptor, _PIECE_BYTES, 0).decode()
    except OSError:
        return None


def parse_flat_keyed(text: str) -> dict[str, int]:
    """Parse `KEY VALUE` lines whose values are numbers (memory.stat, cpu.stat, /proc/vmstat)."""
    pairs = (line.split() for line in text.splitlines())
    return {
        pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].lstrip("-").isdigit()
    }


def parse_limits(text: str) -> dict[str, dict[str, str]]:
    """Parse io.max: {"254:16": {"rbps": "20000000", "wbps": "max", ...}}."""
    rows = (line.split() for line in text.splitlines())
    return {
        key: dict(pair.partition("=")[::2] for pair in pairs) for key, *pairs in filter(None, rows)
    }


def parse_nested_keyed(text: str) -> dict[str, dict[str, int]]:
    """Parse `KEY SUB=VALUE ...` lines (io.stat); a device that was never busy is a bare key."""
    return {
        key: {name: int(value) for name, value in row.items() if value.isdigit()}
        for key, row in parse_limits(text).items()
    }


def parse_pressure(text: str) -> Pressure:
    """Parse PSI (accounting/psi.rst): {"some": {"avg10": .., "total": microseconds}, ..}."""
    return {k: {name: float(n) for name, n in row.items()} for k, row in parse_limits(text).items()}


def parse_meminfo(text: str) -> dict[str, int]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key: int(rest.split()[0]) for key, colon, rest in pairs if colon and rest.split()}


PROC = Path("/proc")
# Documentation/admin-guide/iostats.rst, in the order of the columns.
DISKSTATS_FIELDS = (
    *("reads", "reads_merged", "sectors_read", "read_ms"),
    *("writes", "writes_merged", "sectors_written", "write_ms"),
    *("in_flight", "io_ticks", "weighted_io_ticks"),
    *("discards", "discards_merged", "sectors_discarded", "discard_ms"),
    *("flushes", "flush_ms"),
)
_CPU_FIELDS = (
    *("user", "nice", "system", "idle", "iowait"),
    *("irq", "softirq", "steal", "guest", "guest_nice"),
)


def parse_diskstats(text: str, maj_min: str) -> dict[str, int] | None:
    """Return the line of one disk. Never add disks: a dm device counts the I/O of its parent."""
    major, _, minor = maj_min.partition(":")
    for line in text.splitlines():
        words = line.split()
        if words[:2] == [major, minor]:
            return _numbered(DISKSTATS_FIELDS, words[3:])
    return None


def _numbered(fields: Sequence[str], words: Sequence[str]) -> dict[str, int]:
    """Return the numbers by field; an older kernel has fewer, a newer one more."""
    # No `strict=`, because a customer's Python may be 3.9 (pagecage/hosts/agent_package.py).
    return {name: int(word) for name, word in zip(fields, words)}  # noqa: B905


def parse_cpu(text: str) -> dict[str, int] | None:
    for line in text.splitlines():
        if line.startswith("cpu "):
            ticks = _numbered(_CPU_FIELDS, line.split()[1:])
            return {**ticks, "ticks_per_second": os.sysconf("SC_CLK_TCK")}
    return None


def read_device(maj_min: str, proc: Path = PROC) -> dict[str, int] | None:
    return parse_diskstats(read_text(proc / "diskstats") or "", maj_min)


def read_vmstat(proc: Path = PROC) -> dict[str, int] | None:
    return parse_flat_keyed(read_text(proc / "vmstat") or "") or None


def read_host(proc: Path = PROC) -> Json:
    return {
        "vmstat": read_vmstat(proc),
        "meminfo": parse_meminfo(read_text(proc / "meminfo") or "") or None,
        "stat": parse_cpu(read_text(proc / "stat") or ""),
        "cpu_pressure": parse_pressure(read_text(proc / "pressure/cpu") or "") or None,
    }


def meminfo_bytes(key: str, proc: Path = PROC) -> int | None:
    kib = parse_meminfo(read_text(proc / "meminfo") or "").get(key)
    return None if kib is None else kib * 1024


def name_of(pid: int | str, proc: Path = PROC) -> str:
    """Return the name of a process; "?" if it has ended. A long one is cut within a character."""
    text = read_text(proc / str(pid) / "comm") or "?"
    return os.fsencode(text).decode(errors="replace").strip()


def has_capability(number: int, proc: Path = PROC) -> bool:
    """Return whether this process has a capability by its number (capabilities(7))."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", read_text(proc / "self/status") or "", re.M)
    return bool(found and int(found[1], 16) >> number & 1)


def boot_id(proc: Path = PROC) -> str | None:
    text = read_text(proc / "sys/kernel/random/boot_id")
    return text.strip() if text else None


# TCP_LISTEN of include/net/tcp_states.h, in the column `st` of /proc/net/tcp (proc_pid_net(5))
_LISTEN = "0A"


def parse_listening(text: str) -> set[int]:
    ports = set()
    for words in map(str.split, text.splitlines()[1:]):
        if len(words) > 3 and words[3] == _LISTEN:
            with suppress(ValueError):
                ports.add(int(words[1].rpartition(":")[2], 16))
    return ports


def listens(port: int, pids: Iterable[int | str], proc: Path = PROC) -> bool:
    """Return whether a socket listens in a network namespace of the processes, such as "self"."""
    files = (proc / str(pid) / "net" / name for pid in pids for name in ("tcp", "tcp6"))
    return any(port in parse_listening(read_text(file) or "") for file in files)


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
    lines = (line.partition(":") for line in cpuinfo.split("\n\n", 1)[0].splitlines())
    first = {name.strip(): value.strip() for name, _, value in lines}
    if "model name" in first:
        return first["model name"]
    maker, part = first.get("CPU implementer"), first.get("CPU part")
    if maker is None or part is None:
        return None
    if (maker, part) == _EMULATED_MAX:
        return f"{EMULATED_CPU} CPU (aarch64 max)"
    revision = f"r{int(first.get('CPU variant', '0'), 0)}p{first.get('CPU revision', '0')}"
    return f"{_CPU_PARTS.get((maker, part), f'implementer {maker} part {part}')} {revision}"


def listener(port: int, proc: Path = PROC) -> str:
    """Return "postgres (process 123)", or "another process" if its files cannot be read."""
    sockets = set()
    for name in ("tcp", "tcp6"):
        header, *lines = (read_text(proc / "self/net" / name) or "").splitlines() or [""]
        listening = (one for one in lines if port in parse_listening(f"{header}\n{one}"))
        sockets |= {f"socket:[{line.split()[9]}]" for line in listening}
    for entry in proc.iterdir():
        if entry.name.isdigit() and not sockets.isdisjoint(_open_files(entry)):
            return f"{name_of(entry.name, proc)} (process {entry.name})"
    return "another process"


def _open_files(process: Path) -> Iterator[str]:
    with suppress(OSError):  # not permitted, or the process has ended
        for file in (process / "fd").iterdir():
            with suppress(OSError):
                yield str(file.readlink())


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


def machine_settings(sys: Path = SYS, proc: Path = PROC) -> Json:
    """Return the CPUs' governors and frequencies in kHz, huge pages and DAMON's reclaim, if any."""
    cpu = sys / "devices/system/cpu"
    policies = sorted(cpu.glob("cpu[0-9]*/cpufreq"))[:_MOST_CPUS]
    memory = parse_meminfo(read_text(proc / "meminfo") or "")
    total, free = memory.get("HugePages_Total"), memory.get("HugePages_Free", 0)
    huge = _text(sys / "kernel/mm/transparent_hugepage/enabled") or ""
    return _known(
        governors=sorted({text for one in policies if (text := _text(one / "scaling_governor"))}),
        frequencies_khz=_ends(policies, "scaling_cur_freq"),
        most_khz=_ends(policies, "scaling_max_freq"),
        boost=next((text for name in _BOOST if (text := _text(cpu / name))), None),
        # The word in brackets, as in `always [madvise] never`.
        transparent_hugepages=huge.partition("[")[2].partition("]")[0],
        # The pool, which no limit on memory covers (hugetlbpage.rst).
        hugepages=None
        if total is None
        else {"total": total, "used": total - free, "page_bytes": memory["Hugepagesize"] * 1024},
        idle_pageout_seconds=idle_pageout_seconds(sys),
    )


def idle_pageout_seconds(sys: Path = SYS) -> float | None:
    """Return after how long without an access DAMON reclaims a page; None if it does not.

    Such pages are reclaimed though memory is free, by a scheme (damon/usage.rst) or by the module
    damon_reclaim (damon/reclaim.rst). No counter of /proc/vmstat has them.
    """
    ages_us = []
    for kdamond in (sys / "kernel/mm/damon/admin/kdamonds").glob("[0-9]*"):
        for scheme in kdamond.glob("contexts/[0-9]*/schemes/[0-9]*"):
            is_on = (_text(kdamond / "state"), _text(scheme / "action")) == ("on", "pageout")
            age = _text(scheme / "access_pattern/age/min")
            interval = _text(scheme.parents[1] / "monitoring_attrs/intervals/aggr_us")
            if is_on and age and interval:
                ages_us.append(int(age) * int(interval))
    module = sys / "module/damon_reclaim/parameters"
    if _text(module / "enabled") == "Y" and (age := _text(module / "min_age")):
        ages_us.append(int(age))
    return min(ages_us) / 1e6 if ages_us else None


def _known(**values: Any) -> Json:
    return {name: value for name, value in values.items() if value not in (None, "", [])}


def _ends(policies: Sequence[Path], name: str) -> list[int]:
    texts = [text for policy in policies if (text := _text(policy / name)) and text.isdigit()]
    numbers = [int(text) for text in texts]
    return [min(numbers), max(numbers)] if numbers else []


def process_settings(pid: int, proc: Path = PROC) -> Json:
    status = read_text(proc / str(pid) / "status") or ""
    fields = stat_fields(pid, proc)
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    number = _IOPRIO_GET.get(os.uname().machine)
    value = -1 if number is None else _LIBC.syscall(number, _WHO_PROCESS, pid)
    io_priority = f"{_CLASSES[value >> _CLASS_SHIFT]} {value & ((1 << _CLASS_SHIFT) - 1)}"
    return _known(
        affinity=lines.get("Cpus_allowed_list"),
        nice=int(fields[_NICE]) if fields else None,
        io_priority=None if value < 0 else io_priority,
    )


def cgroup_settings(directories: Sequence[Path]) -> dict[str, str]:
    found = {}
    for key, names in _OF_CGROUP.items():
        texts = (_text(one / name) for one in directories for name in names)
        if text := next(filter(None, texts), None):
            found[key] = text
    return found


def _text(path: Path) -> str | None:
    return (read_text(path) or "").strip() or None
