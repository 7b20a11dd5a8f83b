"""Probes of the running kernel, and tracefs, which a session mounts where it is missing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pagecage.agent.system.kernel_text import read_text
from pagecage.agent.system.settings import RestoreJournal
from pagecage.errors import HostError
from pagecage.process import run

_SYS, _PROC = Path("/sys"), Path("/proc")
_CAP_SYS_ADMIN = 21  # capabilities(7)
_FIELD = re.compile(r"^\tfield:.*?(\w+)(?:\[\w*\])?;", re.MULTILINE)
_FUNCTION = re.compile(r" [tT] (\w+)$", re.MULTILINE)
_CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-f]+)$", re.MULTILINE)


class Kernel:
    """The probes of the running kernel."""

    def __init__(self, sys: Path = _SYS, proc: Path = _PROC) -> None:
        self._sys, self._proc = sys, proc
        self.tracefs = sys / "kernel/tracing"

    @property
    def has_btf(self) -> bool:
        """True if the kernel describes its own types, which fentry and casts need."""
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
        """Return the arguments of a tracepoint like block:block_rq_issue; empty without it."""
        events = self.events()
        text = read_text(events / tracepoint.replace(":", "/") / "format") if events else None
        return frozenset(_FIELD.findall(text or ""))

    def functions(self, names: Iterable[str]) -> frozenset[str]:
        """Return those of these functions that the kernel has."""
        symbols = read_text(self._proc / "kallsyms") or ""
        return frozenset(names) & set(_FUNCTION.findall(symbols))

    def abilities(self) -> dict[str, Any]:
        """Return what a host's facts keep of it."""
        found = _CAPABILITIES.search(read_text(self._proc / "self/status") or "")
        present = "not mounted" if self.tracefs.is_dir() else "absent"
        return {
            "tracefs": "mounted" if self.events() else present,
            "may_mount": bool(found and int(found[1], 16) >> _CAP_SYS_ADMIN & 1),
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
        """Unmount what was mounted; return one sentence per failure."""
        return self._journal.put_back("tracefs", self._unmount)

    def _unmount(self, _saved: Mapping[str, Any]) -> None:
        folder = self._kernel.tracefs
        if not os.path.ismount(folder):
            return
        done = run(["umount", folder], check=False, timeout_seconds=30)
        if not done.ok:
            raise HostError(done.stderr.strip() or "umount failed", f"umount {folder}")


def tracing_obstacle(abilities: Mapping[str, Any], uid: int) -> tuple[str, str] | None:
    """Return why bpftrace cannot trace on a host, and what fixes it; None if it can."""
    if uid != 0:
        return "only root can trace", "run pagecage as root"
    if abilities["tracefs"] == "absent":
        return "the kernel has no tracefs (CONFIG_TRACING)", "use HOST=vm"
    if abilities["tracefs"] == "not mounted" and not abilities["may_mount"]:
        reason = "tracefs is not mounted, and without CAP_SYS_ADMIN pagecage cannot mount it"
        return reason, "mount -t tracefs tracefs /sys/kernel/tracing"
    return None
