"""Rounds of trials over a fleet, and the part of one host."""

from __future__ import annotations

import json
import math
import os
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from pagecage.agent.protocol import request_to_json
from pagecage.ansible import HostResult, TaskEvent
from pagecage.errors import HostError, PagecageError
from pagecage.fleet.folder import FleetFolder, round_result
from pagecage.fleet.provisioning import FleetPlaybook, RoundRequest
from pagecage.hosts.agent_package import AgentPackage
from pagecage.hosts.host import MachineState
from pagecage.model.cage import DATA_DISK
from pagecage.model.plan import Plan
from pagecage.model.record_sections import Row
from pagecage.model.trial import Trial, trial_to_json
from pagecage.runner.campaign import ATTEMPTS, request_for
from pagecage.runner.frame_receiver import BadFrame, FrameReader, FrameReceiver
from pagecage.runner.run_folder import RunFolder, needs_records, planned_trials


def host_plans(plan: Plan, hosts: Sequence[str], mode: str) -> dict[str, Plan]:
    """Return each host's plan by name, in the hosts' order.

    `replicate` gives each host the whole plan. `spread` deals out the blocks, each of which holds
    every treatment once. Raises PagecageError if there are fewer blocks than hosts.
    """
    if mode == "replicate":
        return {host: _host_plan(plan, host, plan.trials) for host in hosts}
    blocks = list(dict.fromkeys(trial.block for trial in plan.trials))
    if len(blocks) < len(hosts):
        reason = f"{len(blocks)} repeats are too few to spread over {len(hosts)} hosts"
        raise PagecageError(reason, f"--repeats {len(hosts)}, or --fleet replicate")
    owner = {block: hosts[number % len(hosts)] for number, block in enumerate(blocks)}
    return {
        host: _host_plan(plan, host, (t for t in plan.trials if owner[t.block] == host))
        for host in hosts
    }


def _host_plan(plan: Plan, host: str, trials: Iterable[Trial]) -> Plan:
    chosen = tuple(trials)
    stamp = plan.run_id.partition("-")[0]
    run_id = f"{stamp}-{plan.document['experiment']}-{host}"
    changes = {"run_id": run_id, "host": host, "trials": [trial_to_json(trial) for trial in chosen]}
    return replace(plan, run_id=run_id, trials=chosen, document={**plan.document, **changes})


Listener = Callable[[str, Row], None]
"""Called with a host's name and an event of its campaign."""


@dataclass(frozen=True)
class RemoteHost:
    """A host of a group during a run; `disks` has a directory on each further disk by name."""

    name: str
    data_dir: str
    spool_dir: str
    emulated: bool
    disks: Mapping[str, str] = field(default_factory=dict)

    own_disk = None  # the inventory names the disk
    user = False

    def outer_sample(self) -> None:
        """Return None: the machine around a remote host is unknown."""

    def throttle(self, _limits: Mapping[str, int]) -> dict[str, int]:
        raise HostError(f"the disk of {self.name} cannot be throttled from outside", "use HOST=vm")

    def command_volume(self, _command: Row, _disk: str = DATA_DISK) -> Row:
        raise HostError(f"{self.name} is not a guest started here", "use HOST=vm")


class HostRun:
    """A host's plan and run folder. `refusal` is the agent's error if it could not work."""

    def __init__(
        self, remote: RemoteHost, plan: Plan, folder: RunFolder, streams: Path, listener: Listener
    ) -> None:
        self.remote, self.plan, self.folder = remote, plan, folder
        self.refusal: HostError | None = None
        self._streams, self._listener = streams, listener
        self._state = MachineState(None, None, remote.emulated, {})
        self._attempts: Counter[str] = Counter()
        self._receiver: FrameReceiver | None = None
        self._descriptor, self._stream = -1, streams

    @property
    def name(self) -> str:
        return self.remote.name

    def remaining(self) -> tuple[Trial, ...]:
        return self.folder.remaining(self.plan)

    def runnable_trials(self) -> tuple[Trial, ...]:
        """Return the trials without a result that have attempts left."""
        remaining = () if self.refusal else self.remaining()
        return tuple(trial for trial in remaining if self._attempts[trial.trial_id] < ATTEMPTS)

    def unfinished_round(self) -> int | None:
        """Return the number of a round whose stream was not fetched completely, or None."""
        streams = self._streams.glob(f"{self.name}.*")
        return max((int(s.suffix[1:]) for s in streams if s.stem == self.name), default=None)

    def begin(self, number: int, request: Path | None) -> RoundRequest:
        """Open a round's stream, which may be read again, and return its request."""
        self._stream = self._streams / f"{self.name}.{number}"
        flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._stream, flags, 0o600)
        records = self.folder.last_records() if needs_records(self.plan.document) else {}
        trials = planned_trials(self.plan, records, self.folder.judge(records))
        frames, asked = FrameReader(self._descriptor), replace(self.plan, trials=trials)
        self._receiver = FrameReceiver(
            *(frames, None, self.folder, self.remote, self._state, asked),
            lambda event: self._listener(self.name, event),
        )
        return RoundRequest(self.plan.run_id, number, str(request or ""), str(self._stream))

    def write_request(self, path: Path, agent_sha256: str) -> None:
        request = request_for(
            *(self.plan, self.folder, self.remote, self._state, self.runnable_trials()),
            agent_sha256,
        )
        path.write_text(json.dumps(request_to_json(request)))

    def receive(self) -> None:
        if self._receiver is not None and self.refusal is None:
            try:
                self._receiver.receive_all()
            except HostError as error:
                self.refusal = error
                if isinstance(error, BadFrame):  # campaign_follow.py then ends
                    self._stream.unlink(missing_ok=True)

    def end(self, reason: str | None) -> None:
        """Close a round; `reason` says how the agent ended, and is recorded with an open trial.

        With None the agent may still be running, so that the stream is kept to be resumed.
        """
        self.receive()
        receiver, self._receiver = self._receiver, None
        os.close(self._descriptor)
        assert receiver is not None
        receiver.close()
        self._attempts.update(receiver.attempted)
        if reason is not None:
            receiver.record_interrupted(reason)
            self._stream.unlink(missing_ok=True)


_ROUNDS = 3
_POLL_SECONDS = 0.2
STOP_SECONDS = 300.0
"""Seconds that a round has to end after Ctrl-C. systemd kills an agent after 180 s."""
_FOLLOW_TASK = "campaign : Follow the agent"
_LAST_TASK = "campaign : Remove the round's directory"
Results = Mapping[str, HostResult]


class FleetCampaign:
    """One execution of a fleet run. Trials that have a result already are not run again."""

    def __init__(
        self,
        playbook: FleetPlaybook,
        folder: FleetFolder,
        hosts: Sequence[HostRun],
        package: AgentPackage,
        listener: Listener,
    ) -> None:
        self._playbook, self._folder, self._hosts, self._package = playbook, folder, hosts, package
        self._listener = listener
        self._events: queue.SimpleQueue[TaskEvent] = queue.SimpleQueue()
        self._agent_output: dict[str, str] = {}
        self._failed: set[str] = set()
        self._ended: set[str] = set()

    def run(self) -> None:
        """Fetch the results of an earlier run, then run the remaining trials.

        On KeyboardInterrupt the agents are stopped and their results fetched first.
        """
        with ExitStack() as locks:
            for host in self._hosts:
                locks.enter_context(host.folder.locked())
            unfinished = {
                host: number
                for host in self._hosts
                if (number := host.unfinished_round()) is not None
            }
            if unfinished:
                self._run_round({host: host.begin(n, None) for host, n in unfinished.items()})
            for _ in range(_ROUNDS):
                hosts = [host for host in self._hosts if host.name not in self._failed]
                requests = {host: self._request(host) for host in hosts if host.runnable_trials()}
                if not requests:
                    return
                self._run_round(requests)

    def _request(self, host: HostRun) -> RoundRequest:
        last = self._folder.last_results().get(host.name)
        number = last.round + 1 if last else 1
        request = self._playbook.scratch / f"request-{host.name}.json"
        host.write_request(request, self._package.agent_sha256)
        return host.begin(number, request)

    def _run_round(self, asked: Mapping[HostRun, RoundRequest]) -> None:
        """Run one round. Ansible is followed in a thread, so that frames are received meanwhile."""
        requests, began = {host.name: request for host, request in asked.items()}, time.monotonic()
        self._ended.clear()
        interrupted, results = False, Future[Results]()
        with ThreadPoolExecutor(2) as pool:
            running = self._playbook.begin("run", requests)
            try:
                results = pool.submit(running.follow, self._events.put)
                try:
                    self._receive_until_done(results, asked)
                except KeyboardInterrupt:
                    interrupted = True
                    self._stop(asked, results, pool)
            finally:
                running.end()
                is_whole = results.done() and not results.exception()
                known = results.result() if is_whole else {}
                for host, request in asked.items():
                    outcome, reason = self._end(host, known.get(host.name), interrupted)
                    name, number = host.name, request.round
                    self._folder.add(round_result(name, number, outcome, reason, began))
                    if outcome not in ("done", "incomplete"):
                        self._failed.add(name)
        if interrupted:
            raise KeyboardInterrupt
        results.result()

    def _receive_until_done(
        self, results: Future[Results], hosts: Iterable[HostRun], until: float = math.inf
    ) -> None:
        while not results.done() and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
            self._handle_events()
            for host in hosts:
                host.receive()
        self._handle_events()

    def _handle_events(self) -> None:
        while not self._events.empty():
            event = self._events.get()
            if event.task == _FOLLOW_TASK:
                self._agent_output[event.host] = event.stdout
            if event.outcome != "ok":
                self._listener(event.host, {"event": "step", "text": event.message})
            elif event.task == _LAST_TASK:
                self._ended.add(event.host)

    def _stop(
        self,
        asked: Mapping[HostRun, RoundRequest],
        results: Future[Results],
        pool: ThreadPoolExecutor,
    ) -> None:
        until = time.monotonic() + STOP_SECONDS
        requests = {host.name: one for host, one in asked.items() if host.name not in self._ended}
        if not requests:  # a request to stop would leave a directory on the host
            self._receive_until_done(results, asked, until)
            return
        for name in requests:
            self._listener(name, {"event": "step", "text": "stopping the current trial"})
        stopping = self._playbook.begin("stop", requests)
        try:
            pool.submit(stopping.follow)
            self._receive_until_done(results, asked, until)
        finally:
            stopping.end()

    def _end(self, host: HostRun, result: HostResult | None, interrupted: bool) -> tuple[str, str]:
        """End a host's round; return its outcome and the reason."""
        host.receive()
        outcome, reason = "done", ""
        if host.refusal is not None:
            outcome, reason = "refused", host.refusal.message
        elif result is None:
            outcome, reason = "lost", "pagecage ended before all frames were fetched"
        elif event := result.stopped_by:
            never_began = event.outcome == "failed" and event.task != _FOLLOW_TASK
            outcome, reason = "refused" if never_began else "lost", event.message
        agent_end = reason or self._agent_output.get(host.name) or "its agent ended"
        host.end(None if outcome == "lost" else agent_end)
        if outcome == "done" and host.remaining():
            return (
                ("interrupted", "stopped by the user") if interrupted else ("incomplete", agent_end)
            )
        return outcome, reason
