"""Trees of processes: who belongs to them, how they are ended, and which were left."""

from __future__ import annotations

import json
import operator
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pagecage.linux.procfs import name_of, parse_pressure, read_text
from pagecage.model.json_codec import Json
from pagecage.process import PROC, stat_fields, wait_until

MARKER = "PAGECAGE_TRIAL"
"""Environment variable of a trial's processes, by which leftovers are found."""
_ATTEMPTS = 5
_KILL_SECONDS, _POLL_SECONDS = 10.0, 0.01
_EXEC_SECONDS, _EXEC_POLL_SECONDS = 1.0, 0.001
# Fields of proc_pid_stat(5), counted from the third.
_PARENT, _MINFLT, _CMINFLT, _MAJFLT, _CMAJFLT = 4 - 3, 10 - 3, 11 - 3, 12 - 3, 13 - 3
_USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM = 14 - 3, 15 - 3, 16 - 3, 17 - 3
_FLAGS, _VSIZE, _ENV_START, _ENV_END = 9 - 3, 23 - 3, 50 - 3, 51 - 3
_PF_EXITING = 0x4  # include/linux/sched.h
_KTHREADD = 2
_KINDS = ("cpu", "io", "memory")


@dataclass(frozen=True)
class ProcessInfo:
    """A process: its id, the name of its command, and its cgroup."""

    pid: int
    name: str
    cgroup: str


@dataclass(frozen=True)
class TreeCounters:
    """Counters of a process and its descendants, those that have ended and were reaped included."""

    read_bytes: int = 0
    write_bytes: int = 0
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    minor_faults: int = 0
    major_faults: int = 0

    def __add__(self, other: TreeCounters) -> TreeCounters:
        return TreeCounters(*map(operator.add, vars(self).values(), vars(other).values()))

    def to_json(self) -> Json:
        usage_seconds = self.user_seconds + self.system_seconds
        return {
            "io": {"rbytes": self.read_bytes, "wbytes": self.write_bytes},
            "cpu": {"usage_usec": round(1e6 * usage_seconds)},
            "faults": {"minor": self.minor_faults, "major": self.major_faults},
        }


def is_running(pid: int, proc: Path = PROC) -> bool:
    fields = stat_fields(pid, proc)
    return fields is not None and fields[0] not in "ZX"


def is_exiting(pid: int, proc: Path = PROC) -> bool:
    """Return whether a process has ended or is being ended by the kernel.

    /proc/PID/cgroup names the root of each hierarchy of version 1 from then on
    (proc_cgroup_show, kernel/cgroup/cgroup.c).
    """
    fields = stat_fields(pid, proc)
    return fields is None or bool(int(fields[_FLAGS]) & _PF_EXITING)


def children(pid: int, proc: Path = PROC) -> list[int]:
    texts = [read_text(task / "children") for task in _tasks(pid, proc)]
    if None not in texts:
        return [int(word) for text in texts for word in (text or "").split()]
    return [
        int(entry.name)
        for entry in proc.iterdir()
        if entry.name.isdigit()
        and (fields := stat_fields(int(entry.name), proc))
        and int(fields[_PARENT]) == pid
    ]


def kernel_threads_usec(proc: Path = PROC) -> int | None:
    """Return the CPU time of all kernel threads in us; None if this namespace does not show them.

    They are the children of kthreadd, and most of their work is for the tasks that do I/O: a loop
    device's requests, reclaim, writeback. Source: proc_pid_stat(5). A worker that ends takes its
    time along, so that a difference may be too small, and is never too large.
    """
    if name_of(_KTHREADD, proc) != "kthreadd":
        return None
    found = (stat_fields(pid, proc) for pid in children(_KTHREADD, proc))
    ticks = sum(int(fields[_USER]) + int(fields[_SYSTEM]) for fields in found if fields)
    return round(1e6 * ticks / os.sysconf("SC_CLK_TCK"))


def _tasks(pid: int, proc: Path) -> list[Path]:
    try:
        return list((proc / str(pid) / "task").iterdir())
    except OSError:  # the process is gone
        return []


def tree(pid: int, proc: Path = PROC) -> Iterator[int]:
    yield pid
    for child in children(pid, proc):
        yield from tree(child, proc)


def read_tree(pid: int, proc: Path = PROC) -> TreeCounters | None:
    """Return the counters of a process and its descendants; None if it has ended.

    A process that is reaped between two reads would be counted twice or not at all, so the tree is
    read until the root's counters of reaped processes are the same before and after.
    """
    total: TreeCounters | None = None
    for _ in range(_ATTEMPTS):
        before, members = _reaped(pid, proc), list(tree(pid, proc))
        found = [counters for one in members if (counters := _read_one(one, proc))]
        total = sum(found[1:], found[0]) if found else None
        if len(found) == len(members) and before == _reaped(pid, proc):
            break
    return total


def _reaped(pid: int, proc: Path) -> list[str]:
    fields = stat_fields(pid, proc) or []
    return [fields[n] for n in (_CMINFLT, _CMAJFLT, _CHILDREN_USER, _CHILDREN_SYSTEM) if fields]


def _read_one(pid: int, proc: Path) -> TreeCounters | None:
    fields, text = stat_fields(pid, proc), read_text(proc / str(pid) / "io")
    if fields is None or text is None:
        return None
    io = dict(line.split(": ") for line in text.splitlines())
    ticks, count = os.sysconf("SC_CLK_TCK"), [int(field) for field in fields[1:]]
    return TreeCounters(
        read_bytes=int(io["read_bytes"]),
        write_bytes=int(io["write_bytes"]),
        user_seconds=(count[_USER - 1] + count[_CHILDREN_USER - 1]) / ticks,
        system_seconds=(count[_SYSTEM - 1] + count[_CHILDREN_SYSTEM - 1]) / ticks,
        minor_faults=count[_MINFLT - 1] + count[_CMINFLT - 1],
        major_faults=count[_MAJFLT - 1] + count[_CMAJFLT - 1],
    )


def read_report(path: Path) -> TreeCounters | None:
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    io = report.pop("io")
    return TreeCounters(io["read_bytes"], io["write_bytes"], **report)


def read_waits(pids: Iterable[int], proc: Path = PROC) -> Json:
    """Return the machine's pressure (psi.rst), else the living threads' delay (sched-stats.rst)."""
    texts = {kind: read_text(proc / "pressure" / kind) for kind in _KINDS}
    if all(text is not None for text in texts.values()):
        return {"pressure": {kind: parse_pressure(text or "") for kind, text in texts.items()}}
    found = (read_text(task / "schedstat") for pid in pids for task in _tasks(pid, proc))
    delays_ns = [int(text.split()[1]) for text in found if text]
    return {"pressure": None, "run_delay_usec": sum(delays_ns) // 1000 if delays_ns else None}


def kill_marked(mark: str, proc: Path = PROC, but_not: str | None = None) -> int:
    """Kill every process whose environment has this mark; return the number of signals sent.

    `mark` may be the beginning of one; processes with the mark `but_not` are kept. A process may
    fork meanwhile, so this repeats until none is found, for up to 10 s.
    """
    killed, deadline = 0, time.monotonic() + _KILL_SECONDS
    while (marked := list(_marked(mark, proc, but_not))) and time.monotonic() < deadline:
        for pid in marked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(_POLL_SECONDS)
    return killed


def leaves_marked(mark: str, patience_seconds: float, proc: Path = PROC) -> bool:
    def are_gone() -> bool:
        return not any(is_running(pid, proc) for pid in _marked(mark, proc))

    return not wait_until(are_gone, patience_seconds, _POLL_SECONDS)


def _marked(mark: str, proc: Path, but_not: str | None = None) -> Iterator[int]:
    wanted, kept = f"{MARKER}={mark}".encode(), f"{MARKER}={but_not}".encode()
    for entry in proc.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                words = _environment(int(entry.name), proc).split(b"\0")
                if kept not in words and any(word.startswith(wanted) for word in words):
                    yield int(entry.name)


def _environment(pid: int, proc: Path) -> bytes:
    """Return the environment; of a process within execve(2), the one of its new program."""
    deadline = time.monotonic() + _EXEC_SECONDS
    while not (text := (proc / str(pid) / "environ").read_bytes()):
        fields = stat_fields(pid, proc)
        # Without a size it is gone, a zombie, or a thread of the kernel.
        if fields is None or int(fields[_VSIZE]) == 0 or time.monotonic() >= deadline:
            break
        start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
        if end and end <= start:  # it is neither in execve(2), nor was it until now
            break
        time.sleep(_EXEC_POLL_SECONDS)
    return text


@dataclass
class SupervisedProcesses:
    """The descendants of a supervisor, which writes `report` at its end.

    `mark` is in the environment of every one of them. The disk's counters cover all processes of
    the machine; only bytes, CPU times and faults are the trial's own.
    """

    report: Path
    mark: str
    supervisor: int | None = None
    cgroup: None = None

    def launched(self, pid: int) -> None:
        self.supervisor = pid

    def counters(self) -> Json:
        used = self._used()
        own = None if used is None else used.to_json() | read_waits(self._pids())
        return {"cgroup": None, "processes": own}

    def read_bytes(self, maj_min: str) -> int | None:  # noqa: ARG002
        used = self._used()
        return None if used is None else used.read_bytes

    def members(self) -> list[ProcessInfo]:
        return [ProcessInfo(pid, name_of(pid), "") for pid in self._pids() if is_running(pid)]

    def outside(self, pid: int) -> list[ProcessInfo]:  # noqa: ARG002
        """Return nothing: no process can leave, because orphans become the supervisor's."""
        return []

    def signal(self, name: str) -> None:
        number = signal.Signals[f"SIG{name}"]
        for pid in list(self._pids()):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGKILL and self.supervisor is not None:
            with suppress(ProcessLookupError):
                os.kill(self.supervisor, signal.SIGTERM)

    def oom_kills(self) -> int | None:
        """Return None: the kernel counts OOM kills by cgroup, or for the whole machine."""

    def end(self) -> None:
        self.signal("KILL")
        kill_marked(self.mark)

    def _pids(self) -> Iterator[int]:
        return islice(() if self.supervisor is None else tree(self.supervisor), 1, None)

    def _used(self) -> TreeCounters | None:
        if self.supervisor is None:
            return TreeCounters()
        return read_report(self.report) or read_tree(self.supervisor)
