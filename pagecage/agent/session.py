"""The agent's work for one connection: sweep what was left, trace, run the trials asked for, hand everything back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pagecage.agent.attempt import Attempt, Bench, Interrupted, NotPrepared, RequirementMissed
from pagecage.agent.calibrate import Calibrator, remove_scratch
from pagecage.agent.collectors.bpftrace import Bpftrace
from pagecage.agent.device import resolve_disk
from pagecage.agent.facts import find_systemd, read_facts
from pagecage.agent.knobs import KnobJournal
from pagecage.agent.phases import PHASES
from pagecage.agent.request import Request
from pagecage.agent.stream import Stream
from pagecage.agent.systemd import Systemd, left_over_units, stop_slice
from pagecage.errors import PagecageError
from pagecage.record import append_record
from pagecage.trial import Trial


def sweep(systemd: Systemd, spool: Path) -> list[str]:
    """Undo what a killed harness left: slices with everything in them, drop-ins, queue settings, traces."""
    units = left_over_units(systemd)
    for unit in units:
        stop_slice(systemd, unit)
    KnobJournal(spool).restore()
    shutil.rmtree(spool / "trials", ignore_errors=True)
    return units


def serve(request: Request, stream: Stream) -> None:
    """Run every trial of the request, in order. Each record is on this host's disk before it is streamed."""
    data_dir = Path(request.data_dir)
    request.spool.mkdir(parents=True, exist_ok=True)
    for unit in sweep(find_systemd(request.user), request.spool):
        stream.event("swept", unit=unit)
    facts = read_facts(data_dir, request.user)
    stream.facts(facts)
    with _bench(request, facts, stream) as bench:
        for trial in request.trials:
            run_trial(bench, trial, request.attempts.get(trial.trial_id, 1))


@contextmanager
def _bench(request: Request, facts: dict[str, object], stream: Stream) -> Iterator[Bench]:
    data_dir = Path(request.data_dir)
    data_dir.mkdir(parents=True, exist_ok=True)
    disk, systemd = resolve_disk(data_dir), find_systemd(request.user)
    tracer = Bpftrace(request.spool)
    try:
        if any("bpftrace" in trial.collectors for trial in request.trials):
            stream.event("step", text="attaching bpftrace")
            tracer.start()
        calibrator = Calibrator(systemd, disk, data_dir)
        yield Bench(request, facts, disk, systemd, calibrator, tracer, KnobJournal(request.spool), stream)
    finally:
        tracer.stop()
        remove_scratch(data_dir)


def run_trial(bench: Bench, trial: Trial, number: int) -> None:
    """One trial, whatever happens: a record, its traces, and nothing left behind."""
    bench.stream.event("trial", trial_id=trial.trial_id, attempt=number)
    directory = bench.request.spool / "trials" / f"{trial.trial_id}.{number}"
    directory.mkdir(parents=True, exist_ok=True)
    interrupted = False
    with ExitStack() as cleanup:
        attempt = Attempt(bench, trial, number, directory, cleanup)
        try:
            _go_through_phases(attempt)
        except Interrupted:
            attempt.outcome, attempt.error, interrupted = "interrupted", "ended from outside", True
        with attempt.timed("cleanup"):
            cleanup.close()
    _hand_back(attempt)
    if interrupted:
        raise Interrupted


def _go_through_phases(attempt: Attempt) -> None:
    try:
        for name, phase in PHASES:
            with attempt.timed(name):
                attempt.bench.stream.event("phase", trial_id=attempt.trial.trial_id, phase=name)
                phase(attempt)
    except RequirementMissed as error:
        attempt.outcome, attempt.error, attempt.missed = "requirement_missed", str(error), error.missed
    except NotPrepared as error:
        attempt.outcome, attempt.error = "not_prepared", str(error)
    except (PagecageError, OSError) as error:
        attempt.outcome, attempt.error = "failed", getattr(error, "message", None) or str(error)


def _hand_back(attempt: Attempt) -> None:
    """Record to this host's disk first, then traces, then the record, then forget the traces."""
    stream, failed_phase = (
        attempt.bench.stream,
        attempt.phases[-2]["name"] if len(attempt.phases) > 1 else attempt.phase,
    )
    attempt.phase = "record" if attempt.outcome in ("ok", "oom_killed", "timed_out", "wrong_answer") else failed_phase
    record = attempt.to_record()
    path = Path(attempt.bench.request.records_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    append_record(path, record)
    for outcome in attempt.collected.values():
        for file in outcome.files:
            if file.exists():
                stream.trace(record.trial_id, record.attempt, file.name, file)
    stream.record(record)
    shutil.rmtree(attempt.directory, ignore_errors=True)
