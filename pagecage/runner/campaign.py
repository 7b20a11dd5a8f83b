"""Runs what a plan still lacks: brings the host to its state, hands trials to the agent, keeps what comes back."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pagecage.agent.protocol.request import RunRequest, request_to_json
from pagecage.errors import HostDied, HostError, PagecageError
from pagecage.hosts.agent_package import AgentPackage
from pagecage.hosts.host import AgentHost, Host, MachineState, Progress, ResourceNeeds
from pagecage.model.trial import TRACERS, Trial
from pagecage.planning.plan import Plan, blocks
from pagecage.process import PIPE, Process, TimeoutExpired, run, spawn
from pagecage.runner.frame_receiver import FrameReader, FrameReceiver
from pagecage.runner.run_folder import RunFolder
from pagecage.runner.uploads import UploadedFile, carried_from_json, carry
from pagecage.units import GIB, MIB
from pagecage.verdicts.median_interval import FEWEST

Listener = Callable[[Mapping[str, Any]], None]
"""Called with every event: {"event": "step" | "trial" | "phase" | "record" | ..., ...}."""

_MIN_MEMORY_BYTES = 2 * GIB
_MEMORY_BESIDE_DATASET_BYTES = 3 * GIB // 2
_SPARE_DATA_BYTES = 512 * MIB
_FAREWELL_SECONDS = 60.0
TRIES = 3
"""So often is a host started, and a trial tried, before it is left."""
_SAID_CHARACTERS = 2000


@dataclass(frozen=True)
class RunSummary:
    """How many trials of the plan have their answer, and how many lack one."""

    answered: int
    lacking: int


def need_of(plan: Plan, kit: AgentPackage | None = None) -> ResourceNeeds:
    """Memory and disk that the plan asks of a host: room for every distinct file, and for a trial's own in memory.

    A null_blk device holds the files in memory once more, and what is written to it.
    """
    sizes = {d.file_name: d.size_bytes for t in plan.trials for d in t.datasets}
    carried = sum(one.size_bytes for one in _carried(plan))
    largest = carried + max(map(_memory_bytes, plan.trials), default=0)
    written = max((t.writes_bytes for t in plan.trials), default=0)
    memory = max(_MIN_MEMORY_BYTES, -(-(largest + _MEMORY_BESIDE_DATASET_BYTES) // (256 * MIB)) * 256 * MIB)
    tracers = tuple(name for name in TRACERS if any(name in trial.collectors for trial in plan.trials))
    return ResourceNeeds(memory, sum(sizes.values()) + carried + written + _SPARE_DATA_BYTES, kit, tracers)


def _memory_bytes(trial: Trial) -> int:
    """What of a trial's data memory holds: its files, and on a disk in memory all of that disk."""
    in_memory = trial.dataset_bytes + trial.writes_bytes if _lies_in_memory(trial) else 0
    return trial.dataset_bytes + in_memory


def _carried(plan: Plan) -> tuple[UploadedFile, ...]:
    """What the host gets of the controller's files; nothing in an experiment that stands in a file."""
    return carried_from_json((plan.document.get("replay") or {}).get("carried", ()))


def _lies_in_memory(trial: Trial) -> bool:
    """Whether its files lie on a disk made in memory: asked for, or for the sake of the cage's latency."""
    return trial.storage in ("null_blk", "dm_delay") or trial.cage.latency is not None


def prepare(host: Host, plan: Plan, kit: AgentPackage, progress: Progress) -> None:
    """Check that the host can serve the plan, and make what it needs to start.

    It comes before a run's folder and before what is said of a run, so that a refusal leaves neither. Raises
    PagecageError, and HostError where the host is at fault.
    """
    check_memory_floor(plan)
    host.prepare(need_of(plan, kit), progress)


class Campaign:
    """One run of a plan on one host. `run` may be called for a plan that is already partly done."""

    def __init__(self, host: Host, plan: Plan, folder: RunFolder, kit: AgentPackage, listener: Listener) -> None:
        self._host, self._plan, self._folder, self._kit, self._listener = host, plan, folder, kit, listener
        self._state: MachineState | None = None
        self._started = False
        self._has_carried = False
        self._idle_starts = 0
        self._tries: Counter[str] = Counter()

    def run(self, *, is_prepared: bool = False) -> RunSummary:
        """Run all trials without an answer. A host that dies is started again; a trial is tried three times at most.

        `is_prepared`: prepare() was called for this host and plan.
        """
        try:
            if not is_prepared:
                prepare(self._host, self._plan, self._kit, self._step)
            while groups := blocks(self._next(), self._plan.document["fresh"]):
                tried_before = self._tries.total()
                self._run_group(groups[0])
                self._idle_starts = 0 if self._tries.total() > tried_before else self._idle_starts + 1
                if self._idle_starts == TRIES:
                    raise HostError(f"the host was started {TRIES} times and ran nothing", "pagecage doctor")
            self._put_away()
        finally:
            self._host.stop()
        answered = sum(record.is_final for record in self._folder.last_records().values())
        return RunSummary(answered, len(self._folder.remaining(self._plan)))

    def _worth_trying(self) -> tuple[Trial, ...]:
        remaining = self._folder.remaining(self._plan)
        return tuple(t for t in remaining if self._tries[t.trial_id] < (1 if self._has_spoken(t) else TRIES))

    def _has_spoken(self, trial: Trial) -> bool:
        """Whether its program has run in front of the user, who would see its output again and has no more input.

        It has no answer because another process read or dropped its files.
        """
        if trial.workload.command is None or not trial.workload.command.streams_output:
            return False
        last = self._folder.last_records().get(trial.trial_id)
        return last is not None and last.outcome == "not_prepared" and last.measured is not None

    def _next(self) -> tuple[Trial, ...]:
        """What to run before looking again: all of it, or under a stopping rule six blocks and then one at a time."""
        trials = self._worth_trying()
        if not trials or not self._plan.document.get("until_ci"):
            return trials
        last = max(FEWEST, trials[0].block)
        return tuple(trial for trial in trials if trial.block <= last)

    def _run_group(self, group: tuple[Trial, ...]) -> None:
        """Hand a group to the agent, in one machine state; when the host dies the next group finds it started anew."""
        try:
            state = self._machine_state()
        except HostDied as error:
            self._state = None
            self._step(f"the host died while it started: {error.message}")
            return
        self._serve(group, state)
        if self._plan.document["fresh"] in ("block", "trial"):
            self._state = None

    def _machine_state(self) -> MachineState:
        if self._state is None:
            self._step("starting it afresh" if self._started else "starting the host")
            self._state = self._host.restart() if self._started else self._host.start()
            self._started = True
            self._host.install(self._kit)
            self._carry()
        return self._state

    def _carry(self) -> None:
        """Once a run: the data disk outlives the machine states."""
        carried = _carried(self._plan)
        if carried and not self._has_carried:
            carry(self._host, carried, self._plan.document["replay"]["directory"], self._step)
            self._has_carried = True

    def _put_away(self) -> None:
        """Remove what was carried, when no trial needs it any more."""
        if self._has_carried and self._state is not None and not self._folder.remaining(self._plan):
            run(self._host.command(["rm", "-rf", self._plan.document["replay"]["directory"]]), check=False)

    def _step(self, text: str) -> None:
        self._listener({"event": "step", "text": text})

    def _serve(self, group: tuple[Trial, ...], state: MachineState) -> None:
        argv = self._host.agent_command()
        with tempfile.TemporaryFile() as said:
            process = spawn(argv, stdin=PIPE, stdout=PIPE, stderr=said, new_session=True)
            assert process.stdout is not None
            frames = FrameReader(process.stdout.fileno())
            intake = FrameReceiver(frames, process.stdin, self._folder, self._host, state, self._listener)
            try:
                _send(process, request_for(self._plan, self._folder, self._host, state, group, self._kit.agent_sha256))
                intake.take_all()
            except KeyboardInterrupt:
                self._step("ending the trial at hand")
                _close_input(process)
                intake.take_all()
                raise
            finally:
                status = _wait(process)
                self._tries.update(intake.tried)
            said.seek(0)
            self._settle(intake, status, said.read().decode(errors="replace")[-_SAID_CHARACTERS:].strip())

    def _settle(self, intake: FrameReceiver, status: int, said: str) -> None:
        """After the agent has gone: a trial that it left open gets a record, and a broken host a new start."""
        if status == 0 and intake.open_trial is None:
            return
        self._state = None
        self._listener({"event": "agent_ended", "status": status, "said": said})
        why = f"the agent or its host ended (status {status}){': ' + said.splitlines()[-1] if said else ''}"
        intake.abandon(self._plan, why)


def request_for(
    plan: Plan, folder: RunFolder, where: AgentHost, state: MachineState, trials: tuple[Trial, ...], agent_sha256: str
) -> RunRequest:
    """What an agent is asked for: these trials of a plan, each with the number of its next attempt."""
    harness = {key: plan.document["harness"][key] for key in ("version", "git_revision")}
    return RunRequest(
        run_id=plan.run_id, plan_sha256=plan.sha256, host=where.name, data_dir=where.data_dir,
        spool_dir=where.spool_dir, records_path=f"{where.spool_dir}/{plan.run_id}.jsonl",
        programs_dir=f"{where.spool_dir}/bin", user=where.user, machine=vars(state),
        harness={**harness, "agent_sha256": agent_sha256}, trials=trials, attempts=folder.next_attempts(),
    )  # fmt: skip


def _send(process: Process[bytes], request: RunRequest) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it died at once; what it printed tells why
        process.stdin.write(json.dumps(request_to_json(request)).encode() + b"\n")


def _close_input(process: Process[bytes]) -> None:
    with suppress(BrokenPipeError):
        if process.stdin is not None:
            process.stdin.close()


def _wait(process: Process[bytes]) -> int:
    """Let the agent end by itself; one that does not is killed, and the host's next start sweeps after it."""
    _close_input(process)
    try:
        return process.wait(_FAREWELL_SECONDS)
    except TimeoutExpired:
        process.kill()
        return process.wait()


def check_memory_floor(plan: Plan) -> None:
    """Refuse, before anything starts, a cage smaller than what its workload needs."""
    for trial in plan.trials:
        limit = trial.cage.properties.get("MemoryMax")
        if limit is not None and limit < trial.workload.min_memory_bytes:
            raise PagecageError(
                f"cgroups/{trial.cage.name}.toml: MemoryMax is {limit} bytes at this size, and "
                f"{trial.workload.program} needs {trial.workload.min_memory_bytes}",
                "choose a larger SIZE or another CAGE",
            )
