"""Services: a server in the cage, measured while a load outside of it drives the server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pagecage.agent.cache_checks import confirmed
from pagecage.agent.caged import Caged, ProgramFiles
from pagecage.agent.collectors.collector import CollectorResult
from pagecage.agent.programs.command import CommandProgram, command_spec, launch
from pagecage.agent.programs.command_files import require_program
from pagecage.agent.programs.gated_process import GatedProcess
from pagecage.agent.programs.measured_part import MeasuredPart
from pagecage.agent.programs.observation import exit_to_json
from pagecage.agent.programs.service_load import CpuSplit, LoadOutput, cpus_of, pin, split_cpus
from pagecage.agent.programs.service_outcome import judge_service
from pagecage.agent.programs.service_run import (
    Service,
    ServiceObservation,
    ServiceRun,
    stop_server,
)
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import Ending, Measured, TrialRun
from pagecage.model.services.metrics import read_metrics
from pagecage.model.services.spec import ServiceSpec

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
