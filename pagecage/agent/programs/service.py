"""A service and its load: their start, the measured window, and their outcome."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pagecage.agent.caging import Caged, ProgramFiles
from pagecage.agent.collectors.collector import CollectorResult
from pagecage.agent.drivers.process import ProcessDriver
from pagecage.agent.programs.command import CommandProgram, command_spec, launch, require_program
from pagecage.agent.programs.gated_process import GatedProcess, gated
from pagecage.agent.programs.measured_part import (
    STDERR_LINES,
    MeasuredPart,
    ProgramObservation,
    confirmed,
    describe_escaped,
    describe_status,
    exit_to_json,
    remaining_members,
)
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import Ending, Measured, TrialRun
from pagecage.linux.processes import SupervisedProcesses, kill_marked, read_report, tree
from pagecage.model.services import ServiceSpec, read_metrics
from pagecage.model.trial import CommandSpec
from pagecage.units import MIB

_WHILE = {
    "start": "before it served",
    "warm_up": "while it was warmed up",
    "settle": "while it settled",
    "load": "while under load",
}


def judge_service(
    measured: Measured, load: Mapping[str, Any], service: ServiceSpec, timeout_seconds: float
) -> Ending:
    """Return the outcome from the evidence, strongest first. `load` is the record's section."""
    found, last_line = measured.exit, measured.last_line
    if found["oom_kill"]:
        return Ending("oom_killed")
    if not measured.response:
        reason = last_line or f"status {found['status']}"
        return Ending("failed", f"its scope was not started: {reason}")
    if found["escaped"]:
        return Ending("failed", describe_escaped(found["escaped"][0]))
    if found["ended_by_itself"]:
        how = describe_status(found["status"])
        reason = f"the server ended {how} {_WHILE[load['during']]}"
        return Ending("failed", f"{reason}{_colon(last_line)}")
    if load["during"] == "start":
        patience = service.ready_timeout_seconds or timeout_seconds
        return Ending("timed_out", f"the server did not serve within {patience:g} s")
    return _judge_load(measured, load, timeout_seconds)


def _judge_load(measured: Measured, load: Mapping[str, Any], timeout_seconds: float) -> Ending:
    if load.get("ended_by_itself") and load["status"] != 0:
        where = " in the warm-up" if load["during"] == "warm_up" else ""
        lines = load["stderr_tail"]
        how = f"the load ended {describe_status(load['status'])}{where}"
        return Ending("failed", f"{how}{_colon(lines[-1] if lines else None)}")
    if measured.is_timed_out:
        return Ending("timed_out", f"the load did not finish within {timeout_seconds:g} s")
    if load.get("missing_metric"):
        return Ending("failed", f"the load's output has {load['missing_metric']}")
    return Ending("ok")


def _colon(last_line: str | None) -> str:
    return f": {last_line}" if last_line else ""


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


OUTPUT_FILE = "load.txt"


class ServiceProgram(CommandProgram):
    """A user's own server, which waits at a gate in its cage as a command does, and its load."""

    def find_files(
        self, run: TrialRun, storage: Storage, datasets: tuple[Path, ...]
    ) -> ProgramFiles:
        """Check server and load, the port and the files. Raises RequirementMissed."""
        require_program(run, service_spec(run).load[0], command_spec(run))
        return super().find_files(run, storage, datasets)

    def load_argv(self, run: TrialRun, caged: Caged) -> list[str]:
        """Return the command of the load, as it was given or with its places filled in."""
        return self.filled(run, caged, service_spec(run).load)

    def measure(self, run: TrialRun, caged: Caged) -> Measured:
        """Start the server, let it serve, drive it by the load, and end both."""
        part, argv, spec = MeasuredPart(run, caged), self.argv(run, caged), command_spec(run)
        load_argv, cpus = self.load_argv(run, caged), split_cpus(os.sched_getaffinity(0))
        run.keep("workload", argv=argv)
        run.keep("load", argv=load_argv)
        part.before_launch()
        server = launch(run, caged, spec, argv)
        seen: ServiceObservation | None = None
        try:
            if server.wait_at_gate(part.deadline):
                server.follow(caged.driver.main_pid(caged.context, server.process.pid))
                part.confirm_at_gate(lambda: server.process.poll() is not None)
                _pin_server(run, caged, server, cpus)
                service = Service(server, spec, load_argv, service_spec(run), cpus)
                service_run = ServiceRun(run, caged, part, service)
                seen = service_run.seen
                service_run.drive()
        finally:
            _end(run, caged, server, seen)
        return Measured(
            interval=run.interval,
            counters=run.sections["counters"],
            end={},
            exit=run.sections["exit"],
            last_line=server.last_line(),
            start_seconds=part.start_seconds,
            is_timed_out=seen is not None and seen.is_timed_out,
            response=_responses(run, seen) if seen else {},
        )

    def judge(self, run: TrialRun, measured: Measured) -> Ending:
        """Return the outcome from the evidence, strongest first."""
        ending = judge_service(
            measured, run.sections["load"], service_spec(run), run.trial.timeout_seconds
        )
        return confirmed(run, measured, ending)


def service_spec(run: TrialRun) -> ServiceSpec:
    """Return the settings of the trial's service."""
    service = run.trial.workload.service
    assert service is not None
    return service


def _pin_server(run: TrialRun, caged: Caged, server: GatedProcess, cpus: CpuSplit) -> None:
    """Keep the server off the load's CPU, and keep in the record what is in force."""
    note = None if cpus.is_apart else "the host has one CPU, which server and load share"
    if cpus.is_apart:
        note = pin([member.pid for member in caged.context.processes.members()], cpus.server)
    run.keep("load", server_cpus=list(cpus_of(server.main_pid)), cpu_note=note)


def _responses(run: TrialRun, seen: ServiceObservation) -> dict[str, float | None]:
    """Return the figures of a service; those of a load that did not finish are None."""
    metrics: Mapping[str, float | None] = dict.fromkeys(service_spec(run).metrics)
    output = "" if seen.output is None else _keep_output(run, seen.output)
    if seen.is_load_done:
        found, missing = read_metrics(service_spec(run).metrics, output)
        run.keep("load", metrics=found, missing_metric=missing)
        metrics = found
    return {
        "ready_seconds": None if seen.ready_at is None else seen.ready_at - seen.began_at,
        "wall_seconds": run.interval.seconds if run.interval and seen.is_load_done else None,
        **metrics,
    }


def _keep_output(run: TrialRun, output: LoadOutput) -> str:
    """Keep the load's output as a trace, so that its metrics can be read again; return it."""
    kept, path = output.read(), run.directory / OUTPUT_FILE
    path.write_bytes(kept)
    dropped = output.total_bytes - len(kept)
    reason = f"its first {dropped} bytes were dropped" if dropped else None
    run.collected["load"] = CollectorResult("partial" if dropped else "ok", reason, files=(path,))
    return kept.decode(errors="replace")


def _end(
    run: TrialRun, caged: Caged, server: GatedProcess, seen: ServiceObservation | None
) -> None:
    """End the server and keep the record's `exit`."""
    if seen:
        seen.kill_escaped()
    by_itself = seen is not None and seen.exited_at is not None
    status = stop_server(caged, server, service_spec(run).stop_signal if seen else "KILL")
    processes = caged.context.processes
    run.keep("exit", **exit_to_json(server, processes, seen, status, ended_by_itself=by_itself))
