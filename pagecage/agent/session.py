"""A run's trials on this host, one after the other, and the agent that waits for a request."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from pagecage.agent.collectors.collector import CollectorResult
from pagecage.agent.data_files import SPARE_BYTES, leave_room
from pagecage.agent.facts import find_systemd, is_emulated, read_facts, read_packages
from pagecage.agent.host_session import HostSession, Tracers, alone, open_session, sweep
from pagecage.agent.phases import run_phases
from pagecage.agent.programs.registry import PROGRAMS
from pagecage.agent.protocol import AnswerQueue, FrameStream, RunRequest
from pagecage.agent.trial_run import Ending, NotPrepared, TrialRun
from pagecage.errors import NO_THREAD, PagecageError
from pagecage.linux.block_device import LoopDisk, detach_loop_disk
from pagecage.linux.child_processes import Interrupted, Interruption
from pagecage.model.json_codec import Json, JsonView, to_json
from pagecage.model.record import (
    MOST_RECORD_BYTES,
    RECORD_VERSION,
    Record,
    append_record,
    record_from_json,
    record_to_json,
)
from pagecage.model.requirements import RequirementMissed
from pagecage.model.run_files import MOST_TRACE_BYTES
from pagecage.model.trial import Trial, environment_names
from pagecage.units import kernel_page_bytes

SOCKET_NAME = "standby.sock"
_STREAMS = (0, 1, 2)
_HEADER_BYTES = 1000  # of a frame around a record


def serve(
    request: RunRequest,
    stream: FrameStream,
    interruption: Interruption,
    inbox: AnswerQueue,
    tracers: Tracers | None = None,
) -> None:
    """Run every trial of the request, in order.

    Each record is on this host's disk before it is streamed. `tracers` are those that a standby
    agent has attached; they are detached at the end like any others.
    """
    with alone(request.spool):
        tracers = tracers or Tracers.of(request.spool)
        for unit in sweep(find_systemd(request.user), request.spool, tracers.children):
            stream.event("swept", unit=unit)
        write_custom_programs(request)
        with on_own_disk(request, interruption) as placed:
            facts = read_facts(Path(placed.data_dir), placed.user, placed.disks)
            # With the versions of the packages that the trials need.
            wanted = dict.fromkeys(one for trial in placed.trials for one in trial.packages)
            facts |= {"packages": read_packages(tuple(wanted))} if wanted else {}
            stream.facts(facts)
            with open_session(placed, facts, stream, interruption, inbox, tracers) as session:
                for trial in placed.trials:
                    run_trial(session, trial, placed.attempts.get(trial.trial_id, 1))


@contextmanager
def on_own_disk(request: RunRequest, interruption: Interruption) -> Iterator[RunRequest]:
    """Yield the request, with its data directory on the disk that it asks for, if any.

    Data of other requests are removed from it if this one's do not fit beside them.
    """
    if request.own_disk is None:
        yield request
        return
    wanted = request.own_disk
    disk = LoopDisk(Path(wanted["file"]), wanted["size_bytes"])
    try:
        directory = disk.attach(request.spool)
        leave_room(directory, request.trials, wanted["data_bytes"] + SPARE_BYTES)
        yield replace(request, data_dir=str(directory))
    finally:
        with interruption.held():
            detach_loop_disk(request.spool)


def write_custom_programs(request: RunRequest) -> None:
    """Write the request's programs to their folder; those of an earlier request are removed.

    Every user may run them: a program that root starts may go on as another user.
    """
    folder = request.programs_folder
    shutil.rmtree(folder, ignore_errors=True)
    if request.own_programs:
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    for name, text in request.own_programs.items():
        path = folder / Path(name).name
        path.write_text(text)
        path.chmod(0o755)


def run_trial(session: HostSession, trial: Trial, attempt: int) -> None:
    """Run one trial. However it ends, it leaves a record and its traces, and nothing else."""
    session.stream.event("trial", trial_id=trial.trial_id, attempt=attempt)
    directory = session.request.spool / "trials" / f"{trial.trial_id}.{attempt}"
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.mkdir(exist_ok=True)
    run = TrialRun(session, trial, attempt, directory)
    try:
        run_phases(run)
    except Interrupted:
        run.ending = Ending("interrupted", "ended from outside")
        raise
    except RequirementMissed as error:
        run.ending = Ending("requirement_missed", str(error), tuple(error.missed))
    except NotPrepared as error:
        run.ending = Ending("not_prepared", str(error))
    except (PagecageError, OSError) as error:
        run.ending = Ending("failed", getattr(error, "message", None) or str(error))
    except Exception as error:  # noqa: BLE001 - a defect must still leave a record, and the next trial its turn
        defect = f"defect of pagecage: {type(error).__name__}: "
        run.ending = Ending("failed", f"{'' if str(error) == NO_THREAD else defect}{error}")
    finally:
        with session.interruption.held():
            run.clean_up()
            _hand_back(run)


def _build_record(run: TrialRun) -> Record:
    request, trial, machine = run.session.request, run.trial, run.session.request.machine
    ending = run.ending
    plain = {
        **run.sections,
        "record_version": RECORD_VERSION,
        "run_id": request.run_id,
        "plan_sha256": request.plan_sha256,
        "host": request.host,
        **trial.identity,
        "attempt": run.attempt,
        "outcome": ending.outcome,
        "phase": run.phase,
        "error": ending.error,
        "phases": run.timings,
        "boot_id": run.session.facts["boot_id"],
        "state_id": machine["state_id"],
        "restore_seq": machine["restore_seq"],
        "emulated": machine["emulated"] or is_emulated(run.session.facts),
        "page_bytes": kernel_page_bytes(),
        "measured": to_json(run.interval),
        "samples": run.samples,
        "disks": run.disks,
        "conditions": list(trial.conditions),
        "workload": _workload(trial, run.sections["workload"]),
        "missed_requirements": [missed.to_json() for missed in ending.missed],
        "collectors": {name: result.to_json() for name, result in run.collected.items()},
        "harness": {**request.harness, "python": sys.version.split()[0]},
    }
    return record_from_json(plain, "the record")


def _workload(trial: Trial, kept: JsonView) -> Json:
    argv, end, home = list(kept.get("argv", ())), dict(kept.get("end", {})), kept.get("home")
    command = trial.workload.command
    image = command.image if command else None
    program = shutil.which(argv[0]) if argv and not image else None  # the image's id tells it
    # Names alone: the values of an environment may be secrets.
    names = environment_names(image) if image else sorted(os.environ)
    inherits = PROGRAMS[trial.workload.kind].inherits_environment
    return {
        "program": trial.workload.program,
        "argv": argv,
        "sha256": _sha256(Path(program)) if program else None,
        "checksum": end.get("checksum"),
        "checksum_ok": end.get("checksum_ok"),
        "end": end,
        **({"home": home} if home else {}),
        **({"environment": names} if inherits else {}),
    }


def _sha256(program: Path) -> str | None:
    try:
        with program.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _bounded(record: Record) -> Record:
    """Return a record that the controller accepts; too many samples fail an answer."""
    length = len(json.dumps(record_to_json(record)))
    if length <= MOST_RECORD_BYTES - _HEADER_BYTES:
        return record
    error = f"the record has {length} bytes with the workload's {len(record.samples)} samples"
    if record.outcome != "ok":
        return replace(record, samples=(), error=f"{record.error}; {error}")
    return replace(record, samples=(), outcome="failed", error=error)


def _hand_back(run: TrialRun) -> None:
    stream = run.session.stream
    run.collected |= {
        name: CollectorResult("failed", f"its file is longer than {MOST_TRACE_BYTES >> 30} GiB")
        for name, result in run.collected.items()
        if any(one.exists() and one.stat().st_size > MOST_TRACE_BYTES for one in result.files)
    }
    record = _bounded(_build_record(run))
    path = Path(run.session.request.records_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    append_record(path, record)
    try:
        for result in run.collected.values():
            for file in result.files:
                if file.exists():
                    stream.trace(record.trial_id, record.attempt, file.name, file)
        stream.record(record)
    finally:
        shutil.rmtree(run.directory, ignore_errors=True)


class Standby:
    """An agent in standby, with its tracers and its socket. It serves one client."""

    def __init__(self, spool: Path, data_dir: Path, tracer_names: Collection[str]) -> None:
        """Attach the named tracers and read each tool's version, which takes seconds."""
        self.tracers = Tracers.of(spool)
        self._path = spool / SOCKET_NAME
        self._client: socket.socket | None = None
        for tracer in self.tracers.missing(tracer_names):
            tracer.begin()
        read_facts(data_dir, os.getuid() != 0)
        for tracer in self.tracers.all:
            tracer.wait_until_attached()

    @contextmanager
    def accept(self) -> Iterator[None]:
        """Wait for the client and use its standard input, output and error during the block.

        The socket exists while the agent waits. A client that finds no socket must start an agent.
        """
        unlisted = self._path.with_suffix(".part")
        for path in (unlisted, self._path):
            path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(unlisted))
            listener.listen(1)
            unlisted.rename(self._path)
            self._client, _ = listener.accept()
        self._path.unlink()
        with self._client:
            _, streams, _, _ = socket.recv_fds(self._client, 1, len(_STREAMS))
            for stream, received in zip(_STREAMS, streams, strict=True):
                os.dup2(received, stream)
                os.close(received)
            yield

    def finish(self, status: int) -> None:
        assert self._client is not None, "finish() must be called within the block of accept()"
        with suppress(OSError):
            self._client.sendall(bytes([status]))
