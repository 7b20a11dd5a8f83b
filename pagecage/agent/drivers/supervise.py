"""A supervisor of one trial's processes, for hosts without cgroups.

    python3 -I -S supervise.py [--wait-for-all] REPORT AGENT_PID PROGRAM [ARGUMENT...]

It runs PROGRAM in a process group of its own and ends with its exit status. Orphaned descendants
become its children (PR_SET_CHILD_SUBREAPER, prctl(2)), so none of them outlives it: they are killed
when PROGRAM has ended, on SIGTERM, and when the agent dies (PR_SET_PDEATHSIG). With --wait-for-all
they are only killed on SIGTERM, so that the agent can see which of them stay behind.

Before it ends it writes to REPORT the counters of all processes that it has reaped, since the
kernel adds those of a reaped process to its parent's (proc_pid_io(5), getrusage(2)). The file runs
alone: it imports nothing of pagecage.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_NOT_STARTED = 127  # a shell's exit status for a program that it does not find
_BLOCKED = (signal.SIGTERM, signal.SIGCHLD)


def parents() -> dict[int, int]:
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # a name may have any bytes
                found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:  # it has ended
            continue
    return found


def descendants(pid: int) -> Iterator[int]:
    known = parents()
    generation = {pid}
    while generation:
        generation = {child for child, parent in known.items() if parent in generation}
        yield from generation


def start(argv: list[str], libc: ctypes.CDLL) -> int:
    """Start the program in its own process group and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    os._exit(_NOT_STARTED)


def reap(main: int, status: int | None) -> int | None:
    """Reap all children that have ended; return the wait status of `main` once it is known."""
    while True:
        try:
            pid, found = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        status = found if pid == main else status


def has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_all() -> None:
    """Kill every descendant and reap it. New ones may be forked meanwhile, so repeat."""
    while has_children():
        for pid in descendants(os.getpid()):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        signal.sigtimedwait((signal.SIGCHLD,), 0.05)
        reap(0, None)


def follow(main: int, waits_for_all: bool) -> int:
    """Wait until the program, and if asked every descendant, has ended; return the wait status."""
    status: int | None = None
    while status is None or (waits_for_all and has_children()):
        if signal.sigwait(_BLOCKED) == signal.SIGTERM:
            break
        status = reap(main, status)
    if status is None:
        os.kill(main, signal.SIGKILL)
        status = os.waitpid(main, 0)[1]
    kill_all()
    return status


def write_report(path: str) -> None:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open("/proc/self/io") as file:
        io = dict(line.split(": ") for line in file.read().splitlines())
    report = {
        "io": {key: int(value) for key, value in io.items()},
        "user_seconds": used.ru_utime,
        "system_seconds": used.ru_stime,
        "minor_faults": used.ru_minflt,
        "major_faults": used.ru_majflt,
    }
    with suppress(OSError):  # without a report the totals are unknown; the status still counts
        with open(f"{path}.part", "w") as file:
            json.dump(report, file)
        os.rename(f"{path}.part", path)


def end_like(status: int) -> None:
    """End as the program did: by the same signal without a core dump, or with its exit status."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(-code, signal.SIG_DFL) if -code not in (9, 19) else None
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def main(argv: list[str]) -> None:
    waits_for_all = argv[0] == "--wait-for-all"
    report, agent, *program = argv[1:] if waits_for_all else argv
    libc = ctypes.CDLL(None)
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(agent):  # it died before the signal was asked for
        os._exit(_NOT_STARTED)
    status = follow(start(program, libc), waits_for_all)
    write_report(report)
    end_like(status)


if __name__ == "__main__":
    main(sys.argv[1:])
