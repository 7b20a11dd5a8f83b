"""The agent's work for one connection: sweep what was left, trace, run the trials asked for, hand everything back."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

from pagecage.agent.collectors.tracers import Tracers
from pagecage.agent.host_session import HostSession, _bench, alone, sweep
from pagecage.agent.phases import PHASES
from pagecage.agent.protocol.request import RunRequest
from pagecage.agent.protocol.rpc import AnswerQueue
from pagecage.agent.protocol.stream import FrameStream
from pagecage.agent.system.facts import find_systemd, read_facts
from pagecage.agent.system.interruption import Interrupted, Interruption
from pagecage.agent.trial_run import NotPrepared, RequirementMissed, TrialRun
from pagecage.errors import PagecageError
from pagecage.model.record import append_record
from pagecage.model.trial import Trial


def serve(
    request: RunRequest,
    stream: FrameStream,
    interruption: Interruption,
    inbox: AnswerQueue,
    tracers: Tracers | None = None,
) -> None:
    """Run every trial of the request, in order. Each record is on this host's disk before it is streamed.

    `tracers` are those that a standby agent has attached; they are detached at the end like any others.
    """
    with alone(request.spool):
        tracers = tracers or Tracers.of(request.spool)
        for unit in sweep(find_systemd(request.user), request.spool, tracers.children):
            stream.event("swept", unit=unit)
        facts = read_facts(Path(request.data_dir), request.user)
        stream.facts(facts)
        with _bench(request, facts, stream, interruption, inbox, tracers) as bench:
            for trial in request.trials:
                run_trial(bench, trial, request.attempts.get(trial.trial_id, 1))


def run_trial(bench: HostSession, trial: Trial, number: int) -> None:
    """One trial, whatever happens: a record, its traces, and nothing left behind."""
    bench.stream.event("trial", trial_id=trial.trial_id, attempt=number)
    directory = bench.request.spool / "trials" / f"{trial.trial_id}.{number}"
    directory.mkdir(parents=True, exist_ok=True)
    attempt = TrialRun(bench, trial, number, directory, ExitStack())
    try:
        _go_through_phases(attempt)
    except Interrupted:
        attempt.outcome, attempt.error = "interrupted", "ended from outside"
        raise
    finally:
        with bench.interruption.held():
            _clean_up(attempt)
            _hand_back(attempt)


def _go_through_phases(attempt: TrialRun) -> None:
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
    except Exception as error:  # noqa: BLE001 - a defect must still leave a record, and the next trial its turn
        attempt.outcome, attempt.error = "failed", f"defect of pagecage: {type(error).__name__}: {error}"


def _clean_up(attempt: TrialRun) -> None:
    """Everything the phases left to the stack, last first; a cleanup that fails is told, and the others still run."""
    failed_in = attempt.failed_in or attempt.phase
    with attempt.timed("cleanup"):
        try:
            attempt.cleanup.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, the record comes first
            attempt.error = f"{attempt.error or ''} cleanup: {error}".strip()
    attempt.phase = "record" if attempt.has_answer else failed_in


def _hand_back(attempt: TrialRun) -> None:
    """Record to this host's disk first, then traces, then the record, then forget the traces."""
    stream, record = attempt.bench.stream, attempt.to_record()
    path = Path(attempt.bench.request.records_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    append_record(path, record)
    try:
        for outcome in attempt.collected.values():
            for file in outcome.files:
                if file.exists():
                    stream.trace(record.trial_id, record.attempt, file.name, file)
        stream.record(record)
    finally:
        shutil.rmtree(attempt.directory, ignore_errors=True)
