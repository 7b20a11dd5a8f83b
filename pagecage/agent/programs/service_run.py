"""The course of a service's trial: until it serves, warm-up, settling, and the measured load."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.caged import Caged
from pagecage.agent.programs.gated_process import GatedProcess
from pagecage.agent.programs.measured_part import MeasuredPart
from pagecage.agent.programs.observation import ProgramObservation, remaining_members
from pagecage.agent.programs.service_load import CpuSplit, LoadEnd, LoadOutput, LoadProcess
from pagecage.agent.trial_run import TrialRun
from pagecage.model.services.spec import ServiceSpec
from pagecage.model.trial import CommandSpec

_POLL_SECONDS = 0.02
_BLAME_SECONDS = 0.5
"""Time after a load's failure in which the server's exit is its cause."""
_LEAVE_SECONDS = 5.0
"""Time that a server's other processes have to end after its first one."""


@dataclass
class ServiceObservation(ProgramObservation):
    """Observation of a server and of its load.

    `during` is the part that was reached: `start`, `warm_up`, `settle` or `load`. `output` is that
    of the measured load; None if it was not started.
    """

    during: str = "start"
    is_load_done: bool = False
    is_timed_out: bool = False
    output: LoadOutput | None = None


@dataclass(frozen=True)
class Service:
    """A server at its gate, with the command of its load and their CPUs."""

    server: GatedProcess
    settings: CommandSpec
    load_argv: Sequence[str]
    spec: ServiceSpec
    cpus: CpuSplit


class ServiceRun:
    """One trial of a service from the server's gate on. Each part ends if the server does."""

    def __init__(self, run: TrialRun, caged: Caged, part: MeasuredPart, service: Service) -> None:
        self._run, self._caged, self._part, self._service = run, caged, part, service
        self._processes = caged.context.processes
        self._load: LoadProcess | None = None
        self.seen = ServiceObservation(time.monotonic())

    def drive(self) -> None:
        """Take the server through all parts, or up to the first that fails."""
        self.seen.began_at = time.monotonic()
        self._service.server.go(None)
        try:
            for part in (self._await_serving, self._warm_up, self._settle, self._measure):
                if not part():
                    break
        finally:
            if self._load is not None:  # interrupted: a server may wait for it before it ends
                self._load.kill()
        self.seen.is_timed_out = self._is_failed and time.monotonic() >= self._part.deadline
        self._run.keep("load", during=self.seen.during)

    def _await_serving(self) -> bool:
        self._tell("waiting until the server serves")
        patience = self._service.spec.ready_timeout_seconds
        until = self._part.deadline if patience is None else self.seen.began_at + patience
        return self._wait(self._serves_within, until)

    def _serves_within(self, seconds: float) -> bool:
        self._service.server.exits_within(min(seconds, _POLL_SECONDS))
        port = self._service.settings.ready_port
        return self.seen.note_serving(self._processes, self._service.server, port)

    def _warm_up(self) -> bool:
        """Run the load for the warm-up, again if it ends before; end it by SIGTERM."""
        seconds, runs = self._service.spec.warm_up_seconds, 0
        if not seconds:
            return True
        self._enter("warm_up", f"warming up for {seconds:g} s")
        until = None
        while until is None or time.monotonic() < until:
            load, runs = self._start_load("warm-up"), runs + 1
            until = until or time.monotonic() + seconds
            load.go()
            has_exited = self._wait(load.exits_within, until)
            if not has_exited:
                load.signal("TERM")
            end = load.finish()
            if self._is_over() or (has_exited and not self._is_successful(end)):
                return False
            if not has_exited:
                break
        self._run.keep("load", warm_up={"seconds": seconds, "runs": runs})
        return True

    def _settle(self) -> bool:
        seconds = self._service.spec.settle_seconds
        if seconds:
            self._enter("settle", f"settling for {seconds:g} s")
            self._wait(_sleep, time.monotonic() + seconds)
        return not self._is_over()

    def _measure(self) -> bool:
        """Measure the load from its start to its exit."""
        self._enter("load", "measuring under load")
        load = self._start_load("load")
        self.seen.output = load.output
        self._part.read_before()
        self._part.begin()
        load.go()
        has_exited = self._wait(load.exits_within, self._part.deadline)
        self._part.end()
        end = load.finish() if has_exited else load.kill()
        self._run.keep("load", **end.to_json(), ended_by_itself=has_exited)
        self.seen.is_load_done = has_exited and self._is_successful(end)
        return self.seen.is_load_done

    def _start_load(self, name: str) -> LoadProcess:
        """Start the load, which waits at its gate, on its CPU."""
        directory = self._service.settings.directory
        self._load = load = LoadProcess(
            self._run,
            self._caged,
            self._service.load_argv,
            Path(directory) if directory else None,
            name,
        )
        if load.wait_at_gate(self._part.deadline) and self._service.cpus.is_apart:
            load.pin(self._service.cpus.load)
        self._run.keep("load", cpus=list(load.cpus()))
        return load

    def _is_successful(self, end: LoadEnd) -> bool:
        """Return whether the load ended with status 0; keep its end if it did not."""
        if end.status == 0:
            return not self._is_over()
        self._run.keep("load", **end.to_json(), ended_by_itself=True)
        self._wait(_sleep, time.monotonic() + _BLAME_SECONDS)
        return False

    def _wait(self, ends_within: Callable[[float], bool], until: float) -> bool:
        """Wait for an end. Returns False at `until`, and when the server has gone."""
        until = min(until, self._part.deadline)
        while (left := until - time.monotonic()) > 0:
            if ends_within(min(left, 0.2)):
                return True
            if self._is_over():
                return False
        return ends_within(0)

    def _is_over(self) -> bool:
        """Return whether the server has ended, with all of its processes, or left its cage."""
        if self._service.server.exits_within(0):
            if self.seen.exited_at is None and not remaining_members(self._processes, 0):
                self.seen.exited_at = time.monotonic()
            return self.seen.exited_at is not None
        self.seen.note_escaped(self._processes, self._service.server)
        return bool(self.seen.escaped)

    @property
    def _is_failed(self) -> bool:
        return not (self.seen.is_load_done or self.seen.exited_at or self.seen.escaped)

    def _enter(self, part: str, text: str) -> None:
        self.seen.during = part
        self._tell(text)

    def _tell(self, text: str) -> None:
        self._run.session.stream.event("step", text=text)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def stop_server(caged: Caged, server: GatedProcess, signal_name: str) -> int:
    """End a server as systemd does with `KillMode=mixed`, and return its exit status.

    Its first process gets the signal; the others are left to it, and get SIGTERM after its end, and
    SIGKILL at last (systemd.kill(5)).
    """
    processes = caged.context.processes
    if not server.exits_within(0):
        with suppress(OSError):
            os.kill(server.main_pid, signal.Signals[f"SIG{signal_name}"])
    status = server.finish()
    if remaining_members(processes, 0):
        processes.signal("TERM")
    if remaining_members(processes, _LEAVE_SECONDS):
        processes.signal("KILL")
    return status
