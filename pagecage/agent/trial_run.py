"""One trial in progress: what its phases hand to each other, and the record that comes of it."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagecage.agent.collectors.collector import Collector, CollectorResult
from pagecage.agent.collectors.sampler import Sampler
from pagecage.agent.drivers.driver import Driver
from pagecage.agent.drivers.systemd_run import SystemdScope
from pagecage.agent.host_session import HostSession
from pagecage.agent.limits.io_max_controller import IoMaxController
from pagecage.agent.programs.gated_process import GatedProcess
from pagecage.agent.programs.handshake import HandshakeProcess
from pagecage.agent.system.block_device import Disk
from pagecage.agent.system.trial_storage import TrialStorage
from pagecage.model.record import Record
from pagecage.model.requirements import MissedRequirement
from pagecage.model.trial import Trial


class RequirementMissed(Exception):
    """The host lacks what the trial needs; carries the list of Missed."""

    def __init__(self, missed: list[MissedRequirement]) -> None:
        super().__init__("; ".join(m.reason for m in missed))
        self.missed = missed


class NotPrepared(Exception):
    """The cache state or the dataset was not reached, so there is nothing to measure."""


@dataclass
class TrialRun:
    """The mutable middle of one trial. Phases fill it in; `to_record` reads it out."""

    bench: HostSession
    trial: Trial
    number: int
    directory: Path
    cleanup: ExitStack
    phase: str = "requirements"
    failed_in: str | None = None
    phases: list[dict[str, Any]] = field(default_factory=list)
    datasets: tuple[Path, ...] = ()
    made_storage: TrialStorage | None = None
    storage: str = "data"
    storage_latency_us: int | None = None
    no_floor_because: str = ""
    cgroup: Path | None = None
    unit: str = ""
    sampler: Sampler | None = None
    credits: IoMaxController | None = None
    collectors: list[Collector] = field(default_factory=list)
    collected: dict[str, CollectorResult] = field(default_factory=dict)
    launched_boot_ns: int = 0
    traced_since: float | None = None
    conversation: HandshakeProcess | GatedProcess | None = None
    driver: Driver = field(default_factory=SystemdScope)
    start_seconds: float | None = None
    data_disk: Disk | None = None
    argv: list[str] = field(default_factory=list)
    measured: dict[str, float] | None = None
    timed_out: bool = False
    outcome: str = "failed"
    error: str | None = None
    missed: list[MissedRequirement] = field(default_factory=list)
    cage: dict[str, Any] = field(default_factory=dict)
    cache: dict[str, Any] = field(default_factory=dict)
    files_at_start: tuple[tuple[int, int], ...] = ()
    device: dict[str, Any] = field(default_factory=dict)
    machine_memory: dict[str, Any] = field(default_factory=dict)
    dirty_limits: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, Any] = field(default_factory=dict)
    exit: dict[str, Any] = field(default_factory=dict)
    response: dict[str, float | None] = field(default_factory=dict)

    def await_tracers(self) -> None:
        """Wait until every tracer has ticked since the launch, which takes about as long as a tick.

        What happened before the launch is then in a tick of its own.
        """
        for tracer in (self.bench.tracer, self.bench.block_tracer):
            if tracer.name in self.trial.collectors:
                tracer.wait_for_tick(self.launched_boot_ns)

    def fill_buckets(self) -> None:
        """Have burst credits begin now, with the measured part."""
        if self.credits is not None:
            self.credits.begin()

    @property
    def dataset(self) -> Path | None:
        """The first file that is read."""
        return self.datasets[0] if self.datasets else None

    @property
    def disk(self) -> Disk:
        """The disk that is measured: made for this trial, behind a command's files, or behind the data directory."""
        return self.made_storage.disk if self.made_storage else self.data_disk or self.bench.disk

    @property
    def data_dir(self) -> Path:
        """Where the files lie."""
        return self.made_storage.mount_point if self.made_storage else Path(self.bench.request.data_dir)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Enter a phase: its name is where a failure happened, its times go into the record."""
        self.phase = phase
        wall, begin = time.time(), time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - begin
            self.phases.append(
                {"name": phase, "start_wall_seconds": wall, "start_monotonic_seconds": begin, "seconds": seconds}
            )

    @property
    def has_answer(self) -> bool:
        """Whether the trial went all the way, whatever the answer is."""
        return self.outcome in ("ok", "oom_killed", "timed_out", "wrong_answer")

    def to_record(self) -> Record:
        """Everything this attempt produced."""
        request, trial = self.bench.request, self.trial
        machine, conversation = request.machine, self.conversation
        return Record(
            run_id=request.run_id, plan_sha256=request.plan_sha256, host=request.host, experiment=trial.experiment,
            trial_id=trial.trial_id, treatment=trial.treatment, repeat=trial.repeat, block=trial.block,
            position=trial.position, attempt=self.number, outcome=self.outcome, phase=self.phase, error=self.error,
            phases=tuple(self.phases), boot_id=self.bench.facts["boot_id"], state_id=machine["state_id"],
            restore_seq=machine["restore_seq"], emulated=machine["emulated"], response=self.response,
            measured=self.measured, samples=tuple(conversation.samples) if conversation else (),
            counters=self.counters, cage=self._cage(), cache=self.cache, device=self.device,
            machine_memory=self.machine_memory, dirty_limits=self.dirty_limits,
            workload=self._workload(), exit=self.exit,
            collectors={name: outcome.to_json() for name, outcome in self.collected.items()},
            missed_requirements=tuple(missed.to_json() for missed in self.missed),
            harness={**request.harness, "python": sys.version.split()[0]},
        )  # fmt: skip

    def _cage(self) -> dict[str, Any]:
        return {**self.cage, **({"credits": self.credits.to_json()} if self.credits else {})}

    def _workload(self) -> dict[str, Any]:
        end = self.conversation.end if self.conversation else {}
        program = shutil.which(self.argv[0]) if self.argv else None
        # Names alone: the values of an environment may be secrets.
        inherited = {"environment": sorted(os.environ)} if self.trial.workload.kind == "command" else {}
        return {
            "program": self.trial.workload.program, "argv": self.argv,
            "sha256": _sha256(Path(program)) if program else None, "checksum": end.get("checksum"),
            "checksum_ok": end.get("checksum_ok"), "end": end, **inherited,
        }  # fmt: skip


def _sha256(program: Path) -> str | None:
    try:
        with program.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
