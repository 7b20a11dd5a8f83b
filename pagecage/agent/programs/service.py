"""A service and its load: their start, the measured window, and their outcome."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pagecage.agent.caging import Caged, ProgramFiles
from pagecage.agent.collectors.collector import CollectorResult
from pagecage.agent.drivers.process import ProcessDriver
from pagecage.agent.programs.command import CommandProgram
from pagecage.agent.programs.gated_process import GatedProcess, OutputTail, gated
from pagecage.agent.programs.measured_part import (
    STDERR_LINES,
    MeasuredPart,
    ProgramObservation,
    confirmed,
    describe_status,
    exit_to_json,
    failure_in_cage,
    remaining_members,
)
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import Ending, Measured, TrialRun
from pagecage.linux.processes import SupervisedProcesses, kill_marked, read_report, tree
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.services import ServiceSpec, read_metrics
from pagecage.units import MIB

_WHILE = {
    "start": "before it served",
    "warm_up": "while it was warmed up",
    "settle": "while it settled",
    "load": "while under load",
}
_POLL_SECONDS = 0.02
_BLAME_SECONDS = 0.5
"""Time after a load's failure in which the server's exit is its cause."""
_LEAVE_SECONDS = 5.0
"""Time that a server's other processes have to end after its first one."""
_OUTPUT_FILE = "load.txt"
OUTPUT_BYTES = 8 * MIB
"""Bytes of a load's output that are kept; the first are dropped, since figures come last."""


def _judge_service(
    measured: Measured, load: JsonView, service: ServiceSpec, timeout_seconds: float
) -> Ending:
    found, last_line, during = measured.exit, measured.last_line, load.get("during", "")
    if failure := failure_in_cage(measured, "scope"):
        return failure
    if found["ended_by_itself"]:
        how = describe_status(found["status"])
        return Ending("failed", _with(last_line, f"the server ended {how} {_WHILE[during]}"))
    if during == "start":
        patience = service.ready_timeout_seconds or timeout_seconds
        return Ending("timed_out", f"the server did not serve within {patience:g} s")
    if load.get("ended_by_itself") and load["status"] != 0:
        where = " in the warm-up" if during == "warm_up" else ""
        last_line = next(reversed(load["stderr_tail"]), None)
        how = f"the load ended {describe_status(load['status'])}{where}"
        return Ending("failed", _with(last_line, how))
    if measured.is_timed_out:
        return Ending("timed_out", f"the load did not finish within {timeout_seconds:g} s")
    if load.get("missing_metric"):
        return Ending("failed", f"the load's output has {load['missing_metric']}")
    return Ending("ok")


def _with(last_line: str | None, sentence: str) -> str:
    return f"{sentence}: {last_line}" if last_line else sentence


def split_cpus(cpus: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the CPUs of the server, and the last one for the load; a single one is shared."""
    ordered = tuple(sorted(cpus))
    return ordered[:-1] or ordered, ordered[-1:]


def _pin(pids: Iterable[int], cpus: Iterable[int]) -> str | None:
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


def _cpus_of(pid: int) -> list[int]:
    try:
        return sorted(os.sched_getaffinity(pid))
    except OSError:
        return []


class LoadOutput(OutputTail):
    """The standard output of a load, up to its last 8 MiB."""

    def __init__(self) -> None:
        super().__init__(OUTPUT_BYTES)

    def take(self, stream: str, piece: bytes) -> None:
        """Add a piece of output, unless it is standard error."""
        if stream == "stdout":
            self.add(piece)


class _LoadProcess(GatedProcess):
    """A run of the load under a supervisor outside the slice, which reports its CPU time."""

    def __init__(
        self, program: ServiceProgram, caged: Caged, argv: Iterable[str], name: str
    ) -> None:
        run, spool = program.run, program.run.request.spool
        directory = Path(program.spec.directory) if program.spec.directory else None
        driver = ProcessDriver(spool)
        driver.prepare()
        report, mark = run.directory / f"{name}.json", f"{spool}:{name}-{caged.context.unit}"
        self.output, self._end = LoadOutput(), Json()
        self._processes = SupervisedProcesses(report, mark)
        context = replace(caged.context, processes=self._processes, is_gated=False)
        super().__init__(driver.command(context, gated([*argv])), directory, None, self.output.take)
        self._processes.launched(self.process.pid)
        run.cleanup.callback(self.kill)

    def wait_at_gate(self, deadline: float) -> bool:
        """Wait until it can be let go. Returns False if it exits first, or at `deadline`."""
        if not super().wait_at_gate(deadline):
            return False
        self.follow(next(iter(member.pid for member in self._processes.members()), None))
        return True

    def await_end(self) -> Json:
        """Wait up to 10 s for its end, then kill; return its part of the record's `load`."""
        if not self._end:
            status = self.finish()
            kill_marked(self._processes.mark)
            used = read_report(self._processes.report)
            self._processes.report.unlink(missing_ok=True)
            self._end = {
                "status": status,
                "user_seconds": used.user_seconds if used else None,
                "system_seconds": used.system_seconds if used else None,
                "stderr_tail": self.tail.lines()[-STDERR_LINES:],
                "output_bytes": self.output.total_bytes,
            }
        return self._end

    def kill(self, signal_name: str = "KILL") -> Json:
        if not self._end:
            self._processes.signal(signal_name)
        return self.await_end()


@dataclass
class _ServiceObservation(ProgramObservation):
    """Observation of a server and of its load.

    `during` is the part that was reached: `start`, `warm_up`, `settle` or `load`. `output` is that
    of the measured load; None if it was not started.
    """

    during: str = "start"
    is_load_done: bool = False
    is_timed_out: bool = False
    output: LoadOutput | None = None


class _ServiceRun:
    """One trial of a service from the server's gate on. Each part ends if the server does."""

    def __init__(
        self,
        program: ServiceProgram,
        caged: Caged,
        part: MeasuredPart,
        server: GatedProcess,
        load_argv: list[str],
        load_cpus: Collection[int],
    ) -> None:
        self._program, self._caged, self._part, self._server = program, caged, part, server
        self._load_argv, self._load_cpus = load_argv, load_cpus
        self._processes, self._service = caged.context.processes, program.service
        self._load: _LoadProcess | None = None
        self.seen = _ServiceObservation(time.monotonic())

    def drive(self) -> None:
        """Take the server through all parts, or up to the first that fails."""
        seen = self.seen
        seen.began_at = time.monotonic()
        self._server.go(None)
        try:
            for part in (self._await_serving, self._warm_up, self._settle, self._measure):
                if not part():
                    break
        finally:
            if self._load is not None:  # interrupted: a server may wait for it before it ends
                self._load.kill()
        is_failed = not (seen.is_load_done or seen.exited_at or seen.escaped)
        seen.is_timed_out = is_failed and time.monotonic() >= self._part.deadline
        self._program.keep(during=seen.during)

    def _await_serving(self) -> bool:
        self._program.run.tell("waiting until the server serves")
        patience = self._service.ready_timeout_seconds
        until = self._part.deadline if patience is None else self.seen.began_at + patience
        port = self._program.spec.ready_port

        def serves_within(seconds: float) -> bool:
            self._server.exits_within(min(seconds, _POLL_SECONDS))
            return self.seen.note_serving(self._processes, self._server, port)

        return self._wait(serves_within, until)

    def _warm_up(self) -> bool:
        seconds, runs = self._service.warm_up_seconds, 0
        if not seconds:
            return True
        self._enter("warm_up", f"warming up for {seconds:g} s")
        until = None
        while until is None or time.monotonic() < until:
            load, runs = self._start_load("warm-up"), runs + 1
            until = until or time.monotonic() + seconds
            load.go(None)
            has_exited = self._wait(load.exits_within, until)
            end = load.await_end() if has_exited else load.kill("TERM")
            if self._is_over() or (has_exited and not self._is_successful(end)):
                return False
            if not has_exited:
                break
        self._program.keep(warm_up={"seconds": seconds, "runs": runs})
        return True

    def _settle(self) -> bool:
        if seconds := self._service.settle_seconds:
            self._enter("settle", f"settling for {seconds:g} s")
            self._wait(_sleep, time.monotonic() + seconds)
        return not self._is_over()

    def _measure(self) -> bool:
        self._enter("load", "measuring under load")
        load = self._start_load("load")
        self.seen.output = load.output
        self._part.read_before()
        self._part.begin()
        load.go(None)
        has_exited = self._wait(load.exits_within, self._part.deadline)
        self._part.end()
        end = load.await_end() if has_exited else load.kill()
        self._program.keep(**end, ended_by_itself=has_exited)
        self.seen.is_load_done = has_exited and self._is_successful(end)
        return self.seen.is_load_done

    def _start_load(self, name: str) -> _LoadProcess:
        self._load = load = _LoadProcess(self._program, self._caged, self._load_argv, name)
        if load.wait_at_gate(self._part.deadline) and self._load_cpus:
            _pin(tree(load.process.pid), self._load_cpus)
        self._program.keep(cpus=_cpus_of(load.main_pid))
        return load

    def _is_successful(self, end: JsonView) -> bool:
        """Return whether the load ended with status 0; keep its end if it did not."""
        if end["status"] == 0:
            return not self._is_over()
        self._program.keep(**end, ended_by_itself=True)
        self._wait(_sleep, time.monotonic() + _BLAME_SECONDS)
        return False

    def _wait(self, ends_within: Callable[[float], bool], until: float) -> bool:
        until = min(until, self._part.deadline)
        while (left := until - time.monotonic()) > 0:
            if ends_within(min(left, 0.2)):
                return True
            if self._is_over():
                return False
        return ends_within(0)

    def _is_over(self) -> bool:
        if self._server.exits_within(0):
            if self.seen.exited_at is None and not remaining_members(self._processes, 0):
                self.seen.exited_at = time.monotonic()
            return self.seen.exited_at is not None
        self.seen.note_escaped(self._processes, self._server)
        return bool(self.seen.escaped)

    def _enter(self, part: str, text: str) -> None:
        self.seen.during = part
        self._program.run.tell(text)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


class ServiceProgram(CommandProgram):
    """A user's own server, which waits at a gate in its cage as a command does, and its load."""

    def __init__(self, run: TrialRun) -> None:
        super().__init__(run)
        assert run.trial.workload.service is not None
        self.service = run.trial.workload.service
        self._kept: Json = {}

    def find_files(self, storage: Storage, datasets: tuple[Path, ...]) -> ProgramFiles:
        self.require_program(self.service.load[0], storage)
        return super().find_files(storage, datasets)

    def keep(self, **values: Any) -> None:
        self._kept |= values
        self.run.keep("load", **values)

    def measure(self, caged: Caged) -> Measured:
        part, argv = MeasuredPart(caged), self.argv(caged)
        load_argv, cpus = self.filled(caged, self.service.load), os.sched_getaffinity(0)
        self.run.keep("workload", argv=argv)
        self.keep(argv=load_argv)
        part.before_launch()
        server = self.launch(caged, argv)
        seen: _ServiceObservation | None = None
        try:
            if server.wait_at_gate(part.deadline):
                server.follow(caged.driver.main_pid(caged.context, server.process.pid))
                part.confirm_at_gate(lambda: server.has_exited)
                of_server, of_load = split_cpus(cpus)
                is_apart, note = of_server != of_load, None
                if not is_apart:
                    note = "the host has one CPU, which server and load share"
                else:
                    pids = [member.pid for member in caged.context.processes.members()]
                    note = _pin(pids, of_server)
                self.keep(server_cpus=_cpus_of(server.main_pid), cpu_note=note)
                load_cpus = of_load if is_apart else ()
                driven = _ServiceRun(self, caged, part, server, load_argv, load_cpus)
                seen = driven.seen
                driven.drive()
        finally:
            found = self._end_server(caged, server, seen)
        is_timed_out = seen is not None and seen.is_timed_out
        response = self._responses(part, seen) if seen else {}
        return part.measured(server, found, is_timed_out=is_timed_out, response=response)

    def _responses(self, part: MeasuredPart, seen: _ServiceObservation) -> dict[str, float | None]:
        metrics: Mapping[str, float | None] = dict.fromkeys(self.service.metrics)
        output = "" if seen.output is None else self._keep_output(seen.output)
        if seen.is_load_done:
            metrics, missing = read_metrics(self.service.metrics, output)
            self.keep(metrics=metrics, missing_metric=missing)
        seconds = part.interval.seconds if part.interval and seen.is_load_done else None
        return {
            "ready_seconds": None if seen.ready_at is None else seen.ready_at - seen.began_at,
            "wall_seconds": seconds,
            **metrics,
        }

    def _keep_output(self, output: LoadOutput) -> str:
        kept, path = output.read(), self.run.directory / _OUTPUT_FILE
        path.write_bytes(kept)
        dropped = output.total_bytes - len(kept)
        status, reason = "ok", None
        if dropped:
            status, reason = "partial", f"its first {dropped} bytes were dropped"
        self.run.collected["load"] = CollectorResult(status, reason, files=(path,))
        return kept.decode(errors="replace")

    def _end_server(
        self, caged: Caged, server: GatedProcess, seen: _ServiceObservation | None
    ) -> Json:
        """End the first process, then the others, as `KillMode=mixed` (systemd.kill(5))."""
        processes, stop_signal = caged.context.processes, "KILL"
        if seen:
            seen.kill_escaped()
            stop_signal = self.service.stop_signal
        if not server.exits_within(0):
            with suppress(OSError):
                os.kill(server.main_pid, signal.Signals[f"SIG{stop_signal}"])
        by_itself = seen is not None and seen.exited_at is not None
        status = server.finish()
        if remaining_members(processes, 0):
            processes.signal("TERM")
        if remaining_members(processes, _LEAVE_SECONDS):
            processes.signal("KILL")
        found = exit_to_json(server, processes, seen, status, ended_by_itself=by_itself)
        self.run.keep("exit", **found)
        return found

    def judge(self, measured: Measured) -> Ending:
        timeout_seconds = self.trial.timeout_seconds
        ending = _judge_service(measured, self._kept, self.service, timeout_seconds)
        return confirmed(self.trial.workload.program, measured, ending)
