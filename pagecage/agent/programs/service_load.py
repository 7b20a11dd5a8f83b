"""The load of a service: a command outside the cage, on a CPU of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pagecage.agent.caged import Caged
from pagecage.agent.drivers.process import ProcessDriver
from pagecage.agent.programs.gated_process import GatedProcess, gated
from pagecage.agent.programs.observation import STDERR_LINES
from pagecage.agent.system.process_tree import kill_marked, read_report, tree
from pagecage.agent.system.supervised_processes import SupervisedProcesses
from pagecage.agent.trial_run import TrialRun
from pagecage.units import MIB

OUTPUT_BYTES = 8 * MIB
"""Bytes of a load's output that are kept; the first are dropped, since figures come last."""


@dataclass(frozen=True)
class CpuSplit:
    """The CPUs of the server and of the load; the same if there is only one."""

    server: tuple[int, ...]
    load: tuple[int, ...]

    @property
    def is_apart(self) -> bool:
        """True if server and load have no CPU in common."""
        return not set(self.server) & set(self.load)


def split_cpus(cpus: Iterable[int]) -> CpuSplit:
    """Return the last CPU for the load and the others for the server."""
    ordered = tuple(sorted(cpus))
    return CpuSplit(ordered[:-1] or ordered, ordered[-1:])


def pin(pids: Iterable[int], cpus: Iterable[int]) -> str | None:
    """Set the CPUs of processes, which their children inherit; return why not, or None."""
    wanted, reason = set(cpus), None
    for pid in pids:
        try:
            os.sched_setaffinity(pid, wanted)
        except ProcessLookupError:
            continue
        except OSError as error:
            reason = f"the CPUs of process {pid} could not be set: {error.strerror}"
    return reason


class LoadOutput:
    """The standard output of a load, up to its last 8 MiB."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._kept = 0
        self._lock = threading.Lock()
        self.total_bytes = 0

    def add(self, stream: str, piece: bytes) -> None:
        """Append a piece of output, unless it is standard error, and drop the oldest."""
        if stream != "stdout":
            return
        with self._lock:
            self._pieces.append(piece)
            self.total_bytes += len(piece)
            self._kept += len(piece)
            while self._kept - len(self._pieces[0]) >= OUTPUT_BYTES:
                self._kept -= len(self._pieces.pop(0))

    def read(self) -> bytes:
        """Return what was kept."""
        with self._lock:
            return b"".join(self._pieces)[-OUTPUT_BYTES:]


@dataclass(frozen=True)
class LoadEnd:
    """The end of one run of a load: exit status (negative: a signal), CPU time, last lines."""

    status: int
    user_seconds: float | None
    system_seconds: float | None
    stderr_tail: tuple[str, ...]
    output_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the part of the record's `load` that these are."""
        return {**vars(self), "stderr_tail": list(self.stderr_tail)}


class LoadProcess:
    """One run of the load, supervised so that none of its processes survives it.

    The supervisor is outside the trial's slice, as a trial's without cgroups is, and it reports the
    CPU time of the load's processes.
    """

    def __init__(
        self, run: TrialRun, caged: Caged, argv: Iterable[str], directory: Path | None, name: str
    ) -> None:
        driver, spool = ProcessDriver(run.session.request.spool), run.session.request.spool
        driver.prepare()
        report, mark = run.directory / f"{name}.json", f"{spool}:{name}-{caged.context.unit}"
        self._processes = SupervisedProcesses(report, mark)
        context = replace(caged.context, processes=self._processes, is_gated=False)
        command = driver.command(context, gated([*argv]))
        self.output = LoadOutput()
        self._program = GatedProcess(command, directory, None, self.output.add)
        self._processes.launched(self._program.process.pid)
        self._end: LoadEnd | None = None
        run.cleanup.callback(self.kill)

    def wait_at_gate(self, deadline: float) -> bool:
        """Wait until it can be let go. Returns False if it exits first, or at `deadline`."""
        if not self._program.wait_at_gate(deadline):
            return False
        self._program.follow(next(iter(member.pid for member in self._processes.members()), None))
        return True

    def pin(self, cpus: Iterable[int]) -> str | None:
        """Set the CPUs of the load; return why they could not be set, or None."""
        return pin(tree(self._program.process.pid), cpus)

    def cpus(self) -> tuple[int, ...]:
        """Return the CPUs on which the load may run; empty if it has ended."""
        return cpus_of(self._program.main_pid)

    def go(self) -> None:
        """Let it run, without standard input."""
        self._program.go(None)

    def exits_within(self, seconds: float) -> bool:
        """Wait up to `seconds` for its exit."""
        return self._program.exits_within(seconds)

    def signal(self, name: str) -> None:
        """Send a signal, such as TERM, to every process of the load."""
        self._processes.signal(name)

    def finish(self) -> LoadEnd:
        """Wait up to 10 s for its end, then kill; return the end, the same the second time."""
        if self._end is None:
            status = self._program.finish()
            kill_marked(self._processes.mark)
            used = read_report(self._processes.report)
            self._processes.report.unlink(missing_ok=True)
            self._end = LoadEnd(
                status,
                used.user_seconds if used else None,
                used.system_seconds if used else None,
                tuple(self._program.stderr_lines()[-STDERR_LINES:]),
                self.output.total_bytes,
            )
        return self._end

    def kill(self) -> LoadEnd:
        """Kill every process of the load and return its end."""
        if self._end is None:
            self._processes.signal("KILL")
        return self.finish()


def cpus_of(pid: int) -> tuple[int, ...]:
    """Return the CPUs on which a process may run; empty if it has ended."""
    try:
        return tuple(sorted(os.sched_getaffinity(pid)))
    except OSError:
        return ()
