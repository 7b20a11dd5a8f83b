"""A run from its first trial to its last, through the agent's process."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from pagecage.agent.protocol import RunRequest, request_to_json
from pagecage.errors import HostDied, HostError
from pagecage.hosts.agent_package import AgentPackage
from pagecage.hosts.host import AgentHost, Host, MachineState, Progress
from pagecage.model.json_codec import JsonView
from pagecage.model.plan import Plan, blocks
from pagecage.model.trial import Trial
from pagecage.process import PIPE, Process, TimeoutExpired, run, spawn
from pagecage.runner.frame_receiver import BadFrame, FrameReader, FrameReceiver
from pagecage.runner.resource_needs import (
    check_memory_floor,
    resource_needs,
    upload_directories,
    uploads_of,
)
from pagecage.runner.run_folder import RunFolder
from pagecage.runner.uploads import upload
from pagecage.verdicts.repeats import FEWEST

AGENT_EXIT_SECONDS = 60.0
"""Longest silence of an agent after a request to end, and the time that it then has."""


def request_for(
    plan: Plan,
    folder: RunFolder,
    host: AgentHost,
    state: MachineState,
    trials: tuple[Trial, ...],
    agent_sha256: str,
) -> RunRequest:
    """Return an agent's request for these trials, each with the number of its next attempt."""
    harness = {key: plan.document["harness"][key] for key in ("version", "git_revision")}
    next_attempts = folder.next_attempts()
    return RunRequest(
        run_id=plan.run_id,
        plan_sha256=plan.sha256,
        host=host.name,
        data_dir=host.data_dir,
        spool_dir=host.spool_dir,
        records_path=f"{host.spool_dir}/{plan.run_id}.jsonl",
        programs_dir=f"{host.spool_dir}/bin",
        user=host.user,
        machine=vars(state),
        harness={**harness, "agent_sha256": agent_sha256},
        trials=trials,
        attempts={one.trial_id: next_attempts.get(one.trial_id, 1) for one in trials},
        disks=dict(host.disks),
        own_disk=host.own_disk,
        own_programs=plan.document.get("own_programs", {}),
    )


def send_request(process: Process[bytes], request: RunRequest) -> None:
    """Write the request. If the agent has ended already, its standard error has the reason."""
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(request_to_json(request)).encode() + b"\n")
    except BrokenPipeError:
        close_input(process)


def close_input(process: Process[bytes]) -> None:
    """Close the agent's standard input, which tells it to end."""
    with suppress(BrokenPipeError):
        if process.stdin is not None:
            process.stdin.close()


def wait_for_agent(process: Process[bytes]) -> int:
    """Wait for the agent, which is killed after a minute, and return its status."""
    close_input(process)
    try:
        return process.wait(AGENT_EXIT_SECONDS)
    except TimeoutExpired:
        process.kill()
        return process.wait()


Listener = Callable[[JsonView], None]
"""Called with every event, {"event": "step" | "trial" | "phase" | "record" | ..., ...}."""

ATTEMPTS = 3
"""Attempts per host start, or per trial, before giving up."""
_STDERR_CHARACTERS = 2000


@dataclass(frozen=True)
class RunSummary:
    """Numbers of trials of the plan with and without a result."""

    finished: int
    unfinished: int


def prepare(host: Host, plan: Plan, package: AgentPackage, progress: Progress) -> None:
    """Make what the host needs for the plan, before a run folder exists. Raises PagecageError."""
    check_memory_floor(plan)
    host.prepare(resource_needs(plan, package), progress)


class Campaign:
    """One execution of a plan on one host. Trials that have a result already are not run again."""

    def __init__(
        self, host: Host, plan: Plan, folder: RunFolder, package: AgentPackage, listener: Listener
    ) -> None:
        self._host, self._plan, self._folder = host, plan, folder
        self._package, self._listener = package, listener
        self._state: MachineState | None = None
        self._started = False
        self._has_uploaded = False
        self._attempts: Counter[str] = Counter()

    def run(self, *, is_prepared: bool = False) -> RunSummary:
        """Run all trials without a result; `is_prepared` if prepare() was called already."""
        plan, folder = self._plan, self._folder
        try:
            with folder.locked():
                if not is_prepared:
                    prepare(self._host, plan, self._package, self._step)
                idle_starts = 0
                while groups := blocks(self._next_trials(), plan.document["fresh"]):
                    attempts_before = self._attempts.total()
                    self._run_group(groups[0])
                    has_tried = self._attempts.total() > attempts_before
                    idle_starts = 0 if has_tried else idle_starts + 1
                    if idle_starts == ATTEMPTS:
                        reason = f"the host was started {ATTEMPTS} times and ran no trial"
                        raise HostError(reason, "pagecage doctor")
                if self._has_uploaded and self._state is not None and not folder.remaining(plan):
                    argv = self._host.command(["rm", "-rf", upload_directories(plan)[1]])
                    run(argv, check=False)
        finally:
            self._host.stop()
        finished = sum(last.is_final for last in folder.last_attempts().values())
        return RunSummary(finished, len(folder.remaining(plan)))

    def _next_trials(self) -> tuple[Trial, ...]:
        last_attempts = self._folder.last_attempts()

        def most_attempts(trial: Trial) -> int:
            """A replay that lost its files after it used the terminal is not repeated."""
            command, last = trial.workload.command, last_attempts.get(trial.trial_id)
            if command is None or not command.streams_output or last is None:
                return ATTEMPTS
            return 1 if last.outcome == "not_prepared" and last.is_measured else ATTEMPTS

        remaining = self._folder.remaining(self._plan)
        trials = tuple(t for t in remaining if self._attempts[t.trial_id] < most_attempts(t))
        if not trials or not self._plan.document.get("until_ci"):
            return trials
        last = max(FEWEST, trials[0].block)
        return tuple(trial for trial in trials if trial.block <= last)

    def _run_group(self, group: tuple[Trial, ...]) -> None:
        try:
            if self._state is None:
                self._step("restarting the host" if self._started else "starting the host")
                self._state = self._host.restart() if self._started else self._host.start()
                self._started = True
                self._host.install(self._package)
                # The data disk outlives machine states, but not what a dead host had not written
                # to it.
                uploads = uploads_of(self._plan)
                if uploads and not self._has_uploaded:
                    directory, removed = upload_directories(self._plan)
                    upload(self._host, uploads, directory, self._step, removed)
                    self._has_uploaded = True
            state = self._state
        except HostDied as error:
            self._state = None
            self._step(f"the host died during its start: {error.message}")
            return
        self._serve(group, state)
        if self._plan.document["fresh"] in ("block", "trial"):
            self._state = None

    def _step(self, text: str) -> None:
        self._listener({"event": "step", "text": text})

    def _serve(self, group: tuple[Trial, ...], state: MachineState) -> None:
        argv = self._host.agent_command()
        request = request_for(
            self._plan, self._folder, self._host, state, group, self._package.agent_sha256
        )
        with tempfile.TemporaryFile() as stderr:
            process = spawn(argv, stdin=PIPE, stdout=PIPE, stderr=stderr, new_session=True)
            assert process.stdout is not None
            frames, asked = FrameReader(process.stdout.fileno()), replace(self._plan, trials=group)
            receiver = FrameReceiver(
                frames, process.stdin, self._folder, self._host, state, asked, self._listener
            )
            try:
                send_request(process, request)
                receiver.receive_all()
            except KeyboardInterrupt:
                self._step("stopping the current trial")
                close_input(process)
                frames.expect_end(AGENT_EXIT_SECONDS)
                receiver.receive_all()
                raise
            except BadFrame:
                process.stdout.close()  # an agent that goes on writing ends by SIGPIPE
                raise
            finally:
                receiver.close()
                status = wait_for_agent(process)
                self._attempts.update(receiver.attempted)
            stderr.seek(0)
            text = stderr.read().decode(errors="replace")[-_STDERR_CHARACTERS:].strip()
        if status != 0 or receiver.open_trial is not None:
            self._state, self._has_uploaded = None, False
            self._listener({"event": "agent_ended", "status": status, "stderr": text})
            last = f": {text.splitlines()[-1]}" if text else ""
            receiver.record_interrupted(f"the agent or its host ended (status {status}){last}")
