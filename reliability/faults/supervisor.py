"""Executions whose changing system calls are recorded, one of which meets a fault."""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from reliability.faults import system_calls as calls
from reliability.faults.calls import (
    NOTIFICATION,
    Call,
    command_line,
    read_call,
    thread_group,
    written_bytes,
)
from reliability.faults.injection import (
    CLOCK_JUMPS,
    DISK_FULL,
    KILLED,
    NO_ANSWER,
    NUMBERS,
    TORN,
    Injection,
    Point,
)

_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV and _SEND of linux/seccomp.h
_RESPONSE = struct.Struct("<QqiI")
_CONTINUE = 1
_POLL_MILLISECONDS = 20
_FILLING = (*calls.WRITES, *calls.FOLDERS, *calls.OPENS)
_IGNORED = ("/dev/null", "anon_inode", "/log")
"""Targets of no consequence; the last is the log of the fake machine."""
Role = Callable[[int], str | None]
"""Returns the kind of a process; None for one whose calls do not count."""


@dataclass(frozen=True)
class Limits:
    """Durations that an execution and the processes that it started may last.

    `interrupt_after` is when the user of one that gets no answer presses Ctrl-C.
    """

    seconds: float = 60.0
    lingering_seconds: float = 10.0
    interrupt_after: float = 2.0


DEFAULT = Limits()


@dataclass
class Outcome:
    """The end of an execution: its exit status, its calls, and the processes that it left.

    `status` is None if it had to be ended. `fired` tells that the fault was met.
    """

    status: int | None = None
    trace: list[Point] = field(default_factory=list)
    fired: bool = False
    left: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Clock:
    """An offset of the wall clock in seconds, shared with forked processes."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 64)

    @property
    def offset(self) -> float:
        return float(struct.unpack_from("<d", self._memory)[0])

    @offset.setter
    def offset(self, seconds: float) -> None:
        struct.pack_into("<d", self._memory, 0, seconds)

    def install(self) -> None:
        """Have Python's clocks of this process and its forks follow the offset."""
        real, local, utc, text = time.time, time.localtime, time.gmtime, time.strftime
        time.time = lambda: real() + self.offset
        time.time_ns = lambda: int(time.time() * 1e9)
        time.gmtime = lambda seconds=None: utc(time.time() if seconds is None else seconds)
        time.localtime = lambda seconds=None: local(time.time() if seconds is None else seconds)
        time.strftime = lambda form, *when: text(form, *(when or [time.localtime()]))


class Supervisor:
    """Executes commands in forked children and answers for the kernel at their calls."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root, self._clock = root, clock
        self._listeners: list[int] = []
        self._roles: dict[int, str | None] = {}
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._outcome = Outcome()
        self._main = 0
        self._is_full = False

    def execute(
        self,
        command: Callable[[], int],
        role: Role,
        injection: Injection | None = None,
        limits: Limits = DEFAULT,
    ) -> Outcome:
        """Run a command in a forked child; return its end."""
        self._outcome, self._counts, self._is_full = Outcome(), Counter(), False
        self._roles, self._role, self._injection = {}, role, injection
        began = time.monotonic()
        told = mmap.mmap(-1, 8)
        pid = os.fork()
        if pid == 0:
            _become(command, told)
        while not (listener := struct.unpack_from("<i", told)[0]):
            time.sleep(0.0005)
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                raise RuntimeError("the child ended before its filter was installed")
        self._listeners.append(calls.take_descriptor(pid, listener))
        struct.pack_into("<i", told, 4, 1)
        self._main = pid
        self._serve_until_end(began, limits)
        self._linger(limits)
        self._outcome.seconds = time.monotonic() - began
        self._clock.offset = 0.0
        return self._outcome

    def end_all(self) -> None:
        while left := descendants(os.getpid()):
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self._serve(0)
            _reap(0)
        for listener in self._listeners:
            os.close(listener)
        self._listeners = []

    def _serve_until_end(self, began: float, limits: Limits) -> None:
        interrupted = False
        while (status := _reap(self._main)) is None:
            self._serve(_POLL_MILLISECONDS)
            elapsed = time.monotonic() - began
            stuck = self._injection is not None and self._injection.fault == NO_ANSWER
            if stuck and elapsed > limits.interrupt_after and not interrupted:
                interrupted = True
                os.kill(self._main, signal.SIGINT)
            if elapsed > limits.seconds:
                os.kill(self._main, signal.SIGKILL)
                while _reap(self._main) is None:
                    self._serve(_POLL_MILLISECONDS)
                return
        self._outcome.status = status

    def _linger(self, limits: Limits) -> None:
        if self._injection is not None and self._injection.fault == NO_ANSWER:
            for pid in descendants(os.getpid()):  # the host that does not answer is switched off
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + limits.lingering_seconds
        while self._listeners and time.monotonic() < until:
            self._serve(_POLL_MILLISECONDS)
            _reap(0)
        self._outcome.left = [
            line for pid in descendants(os.getpid()) if (line := command_line(pid).strip())
        ]

    def _serve(self, milliseconds: int) -> None:
        """Answer the calls that wait now; forget listeners without a process."""
        poll = select.poll()
        for listener in self._listeners:
            poll.register(listener, select.POLLIN)
        for listener, events in poll.poll(milliseconds):
            if events & select.POLLIN:
                self._answer(listener)
            elif events & (select.POLLHUP | select.POLLERR):
                self._listeners.remove(listener)
                os.close(listener)

    def _answer(self, listener: int) -> None:
        raw = bytearray(NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, raw)
        except OSError:  # it was killed meanwhile
            return
        number = -1
        try:
            call = read_call(bytes(raw), self._root)
            number = self._decide(call)
        except OSError:  # it was killed meanwhile
            pass
        cookie = NOTIFICATION.unpack(bytes(raw))[0]
        flags = _CONTINUE if number < 0 else 0
        with suppress(OSError):
            fcntl.ioctl(listener, _SEND, _RESPONSE.pack(cookie, 0, -max(number, 0), flags))

    def _decide(self, call: Call) -> int:
        """Return the error number with which the call fails; -1 to let it pass."""
        if call.pid not in self._roles:
            self._roles[call.pid] = self._role_of(call.pid)
        role = self._roles[call.pid]
        if call.name in calls.EXECS:
            self._roles.pop(call.pid)
        if role is None or call.target in _IGNORED:
            return -1
        key = (role, call.name, call.target)
        self._counts[key] += 1
        point = Point(*key, self._counts[key])
        self._outcome.trace.append(point)
        if self._is_full and call.name in _FILLING and not point.is_stream:
            return int(NUMBERS["ENOSPC"])
        if self._injection is not None and self._injection.point == point:
            self._outcome.fired = True
            return self._inject(call, self._injection.fault)
        return -1

    def _role_of(self, pid: int) -> str | None:
        group = thread_group(pid)
        return "main" if group == self._main else self._role(group)

    def _inject(self, call: Call, fault: str) -> int:
        if fault in CLOCK_JUMPS:
            self._clock.offset = CLOCK_JUMPS[fault]
        elif fault == DISK_FULL:
            self._is_full = True
            return int(NUMBERS["ENOSPC"])
        elif fault in (KILLED, TORN):
            if fault == TORN:
                content = written_bytes(call)
                taken = calls.take_descriptor(
                    thread_group(call.pid), call.arguments[0] & 0xFFFFFFFF
                )
                try:
                    os.write(taken, content[: len(content) // 2])
                finally:
                    os.close(taken)
            os.kill(thread_group(call.pid), signal.SIGKILL)
        elif fault == NO_ANSWER:
            os.kill(thread_group(call.pid), signal.SIGSTOP)
        else:
            return int(NUMBERS[fault])
        return -1


def _become(command: Callable[[], int], told: mmap.mmap) -> None:
    status = 120
    try:
        # No system call may be made between these two: nobody would answer it.
        struct.pack_into("<i", told, 0, listener := calls.install_filter())
        while not struct.unpack_from("<i", told, 4)[0]:
            time.sleep(0.0005)
        os.close(listener)
        status = command()
    finally:
        os._exit(status)


def _reap(pid: int) -> int | None:
    found = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == pid:
                found = os.waitstatus_to_exitcode(ended[1])
    return found


def descendants(pid: int) -> list[int]:
    """Return the living descendants of a process, zombies left out."""
    children: dict[int, list[int]] = {}
    for entry in (path for path in Path("/proc").iterdir() if path.name.isdigit()):
        with suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, generation = [], [pid]
    while generation:
        generation = [child for parent in generation for child in children.get(parent, [])]
        found += generation
    return found
