"""Facts about a machine: its kernel, CPU, memory, disk, tools and packages, and its tracing."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from pagecage.agent.settings import RestoreJournal, chosen
from pagecage.errors import HostError, PagecageError
from pagecage.linux import cgroup, procfs
from pagecage.linux.block_device import (
    Disk,
    find_mount,
    read_queue_settings,
    resolve_disk,
)
from pagecage.linux.cgroupfs import find_place
from pagecage.linux.page_cache import cachestat_pages
from pagecage.linux.procfs import read_text
from pagecage.linux.systemd import Systemd, is_pid1, systemd_version, user_socket
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.trial import Package
from pagecage.process import find_tool, run
from pagecage.units import kernel_page_bytes

_SYS, _PROC = Path("/sys"), Path("/proc")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_CAP_SYS_ADMIN = 21  # capabilities(7)
_FIELD = re.compile(r"^\tfield:.*?(\w+)(?:\[\w*\])?;", re.MULTILINE)
_FUNCTION = re.compile(r" [tT] (\w+)$", re.MULTILINE)


class Kernel:
    """The probes of the running kernel."""

    def __init__(self, sys: Path = _SYS, proc: Path = _PROC) -> None:
        self._sys, self._proc = sys, proc
        self.tracefs = sys / "kernel/tracing"

    @property
    def has_btf(self) -> bool:
        return (self._sys / "kernel/btf/vmlinux").exists()

    @property
    def has_kprobes(self) -> bool:
        """True if kprobes can be attached by perf_event_open(2), as bpftrace does."""
        return (self._sys / "bus/event_source/devices/kprobe").exists()

    def events(self) -> Path | None:
        """Return the folder of tracepoints; None if tracefs is not mounted or not readable."""
        folders = (self.tracefs / "events", self._sys / "kernel/debug/tracing/events")
        return next((folder for folder in folders if os.access(folder, os.R_OK | os.X_OK)), None)

    def fields(self, tracepoint: str) -> frozenset[str]:
        events = self.events()
        text = read_text(events / tracepoint.replace(":", "/") / "format") if events else None
        return frozenset(_FIELD.findall(text or ""))

    def functions(self, names: Iterable[str]) -> frozenset[str]:
        symbols = read_text(self._proc / "kallsyms") or ""
        return frozenset(names) & set(_FUNCTION.findall(symbols))

    def abilities(self) -> Json:
        present = "not mounted" if self.tracefs.is_dir() else "absent"
        return {
            "tracefs": "mounted" if self.events() else present,
            "may_mount": procfs.has_capability(_CAP_SYS_ADMIN, self._proc),
            "btf": self.has_btf,
            "kprobes": self.has_kprobes,
        }


class Tracefs:
    """tracefs in its usual place, readable by root alone, for the length of a session.

    A journal in the spool notes the mount, so that the next start can undo that of a killed agent.
    """

    def __init__(self, spool: Path, sys: Path = _SYS) -> None:
        self._journal = RestoreJournal(spool / "tracefs.json")
        self._kernel = Kernel(sys)

    def mount(self) -> None:
        """Mount it if it is not mounted. Without the right to do so, bpftrace gives the reason."""
        folder = self._kernel.tracefs
        if self._kernel.events() or os.getuid() != 0 or not folder.is_dir():
            return
        self._journal.remember(lambda: {"mounted": 0})
        argv = ["mount", "-t", "tracefs", "-o", "mode=700", "tracefs", str(folder)]
        run(argv, check=False, timeout_seconds=30)

    def restore(self) -> list[str]:
        folder = self._kernel.tracefs

        def unmount(_saved: JsonView) -> None:
            if os.path.ismount(folder):
                done = run(["umount", folder], check=False, timeout_seconds=30)
                if not done.ok:
                    raise HostError(done.stderr.strip() or "umount failed", f"umount {folder}")

        return self._journal.put_back("tracefs", unmount)


def tracing_obstacle(abilities: JsonView, uid: int) -> tuple[str, str] | None:
    """Return why bpftrace cannot trace on a host, and what fixes it; None if it can."""
    if uid != 0:
        return "only root can trace", "run pagecage as root"
    if abilities["tracefs"] == "absent":
        return "the kernel has no tracefs (CONFIG_TRACING)", "use HOST=vm"
    if abilities["tracefs"] == "not mounted" and not abilities["may_mount"]:
        reason = "tracefs is not mounted, and without CAP_SYS_ADMIN pagecage cannot mount it"
        return reason, "mount -t tracefs tracefs /sys/kernel/tracing"
    return None


_VERSION_OPTIONS = {
    **dict.fromkeys(("iostat", "sar", "vmtouch"), "-V"),
    **dict.fromkeys(("bpftrace", "fio", "perf", "systemctl"), "--version"),
}


def read_facts(data_dir: Path, user: bool, disks: Mapping[str, str] | None = None) -> Json:
    """Return everything a reader of records may ask about the host; None for what is not known.

    `disks` has a directory on each disk beside the data directory's, by name. Never raises.
    """
    systemd, pages = find_systemd(user), read_text(_HUGE_PAGES) or ""
    names = re.findall(r"^PRETTY_NAME=(.*)$", read_text(_OS_RELEASE) or "", re.MULTILINE)
    return {
        "hostname": platform.node(),
        "uid": os.getuid(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "os_release": names[0].strip('"') if names else None,
        "kernel_command_line": (read_text(Path("/proc/cmdline")) or "").strip(),
        "boot_id": procfs.boot_id(),
        "cpus": os.cpu_count(),
        "cpu_model": procfs.cpu_model(read_text(Path("/proc/cpuinfo")) or ""),
        "page_bytes": kernel_page_bytes(),
        "memory_bytes": procfs.meminfo_bytes("MemTotal"),
        "swap_bytes": procfs.meminfo_bytes("SwapTotal"),
        "transparent_hugepage": chosen(pages) if "[" in pages else None,
        "systemd": {
            "pid1": is_pid1(),
            "version": systemd.version,
            "user": user,
            "user_manager": user_socket().exists() if user else None,
        },
        "cgroup": _cgroup(systemd),
        "cgroupfs": find_place().to_json(),
        "psi": read_text(Path("/proc/pressure/io")) is not None,
        "cachestat": _has_cachestat(),
        "disk": _disk(data_dir),
        "disks": {name: _disk(Path(folder)) for name, folder in (disks or {}).items()},
        "free_bytes": shutil.disk_usage(_existing(data_dir)).free,
        "data_dir": str(data_dir),
        "tracing": Kernel().abilities(),
        "tools": {name: tool_version(name, word) for name, word in _VERSION_OPTIONS.items()},
    }


def is_emulated(facts: JsonView) -> bool:
    """Return True if the host is a guest without hardware virtualization, by its CPU model."""
    return procfs.EMULATED_CPU in (facts["cpu_model"] or "")


def find_systemd(user: bool) -> Systemd:
    if not find_tool("systemctl"):
        return Systemd(user, 0)
    return Systemd(user, systemd_version(tool_version("systemctl", "--version") or ""))


@cache
def tool_version(*argv: str) -> str | None:
    """Return the first line with a digit that a tool prints; None if it is not installed."""
    if not find_tool(argv[0]):
        return None
    try:
        done = run(argv, check=False, timeout_seconds=30)
    except PagecageError:
        return "does not answer"
    lines = (done.stdout + done.stderr).splitlines()
    return next(
        (line.strip() for line in lines if any(c.isdigit() for c in line)), "version not stated"
    )


def _cgroup(systemd: Systemd) -> Json:
    parent = systemd.parent_cgroup().parent
    controllers = (read_text(parent / "cgroup.controllers") or "").split()
    manager = "this user's systemd" if systemd.user else "systemd"
    v2 = (cgroup.CGROUP_ROOT / "cgroup.controllers").exists()
    return {"v2": v2, "controllers": controllers, "manager": manager, "parent": str(parent)}


def _existing(directory: Path) -> Path:
    """Return the directory or its nearest existing parent, which is on the same disk."""
    return next(path for path in (directory, *directory.parents) if path.exists())


def _disk(data_dir: Path) -> Json:
    try:
        disk = resolve_disk(_existing(data_dir))
        writeback = find_mount(Path(disk.mount_point)).has_cgroup_writeback
    except (PagecageError, OSError) as error:
        return {"error": getattr(error, "message", str(error))}
    return {**describe_disk(disk), "has_cgroup_writeback": writeback}


def describe_disk(disk: Disk) -> Json:
    return {**asdict(disk), "stack": list(disk.stack), "queue_settings": read_queue_settings(disk)}


def _has_cachestat() -> bool:
    try:
        with Path(sys.executable).open("rb") as file:
            return cachestat_pages(file.fileno()) is not None
    except PermissionError:
        return True  # the call exists, and refuses a file of another user
    except OSError:
        return False


_DEBIAN_ROW = "${db:Status-Status}\t${Package}\t${Version}\t${Depends}\n"
_QUERIES = {
    "debian": ["dpkg-query", "--show", f"--showformat={_DEBIAN_ROW}"],
    "redhat": ["rpm", "--query", "--queryformat=installed\t%{NAME}\t%{VERSION}-%{RELEASE}\t\n"],
}
_RELATIVES = {"debian": "debian", "fedora": "redhat", "rhel": "redhat"}
"""Family of a distribution by a word of ID or ID_LIKE in os-release(5)."""
_NAME = re.compile(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]*)")
_OS_RELEASE = Path("/etc/os-release")


def read_packages(packages: Sequence[Package], os_release: Path = _OS_RELEASE) -> Json:
    """Return the family of the distribution, and the version of each package by name.

    A package that is not installed has the version None. The versions of the packages on which
    these depend directly are included, because the name may be that of a metapackage.
    """
    family = distribution_family(read_text(os_release) or "")
    names = [name for package in packages if (name := package.name_on(family))]
    if family is None or not names:
        return {"family": family, "versions": {}}
    rows = _query(family, names)
    # A Depends field is "a (>= 1), b | c:any".
    found = (word for _, depends in rows.values() for word in _NAME.findall(depends))
    needed = set(found) - set(names)
    versions: dict[str, str | None] = dict.fromkeys(names)
    others = _query(family, sorted(needed)) if needed else {}
    return {
        "family": family,
        "versions": versions | {name: row[0] for name, row in {**others, **rows}.items()},
    }


def distribution_family(os_release: str) -> str | None:
    """Return the family of a distribution from the text of os-release(5); None if unknown."""
    for line in os_release.splitlines():
        key, _, value = line.partition("=")
        if key in ("ID", "ID_LIKE"):
            for word in value.strip("\"'").split():
                if word in _RELATIVES:
                    return _RELATIVES[word]
    return None


def _query(family: str, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    try:
        done = run([*_QUERIES[family], *names], check=False, timeout_seconds=30)
    except PagecageError:  # without the package manager, none is known to be installed
        return {}
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {row[1]: (row[2], row[3]) for row in rows if len(row) == 4 and row[0] == "installed"}
