"""Execution of a fleet run in rounds: Ansible starts an agent on every host and fetches its frames.

A round ends on each host independently. When the connection to a host is lost, its agent may
continue. The next run fetches its results before it sends a new request.
"""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from pagecage.ansible import HostResult, TaskEvent
from pagecage.fleet.folder import FleetFolder, round_result
from pagecage.fleet.host_run import HostRun, Listener
from pagecage.fleet.playbook import FleetPlaybook, RoundRequest
from pagecage.hosts.agent_package import AgentPackage

_ROUNDS = 3
_POLL_SECONDS = 0.2
STOP_SECONDS = 300.0
"""Seconds that a round has to end after Ctrl-C. systemd kills an agent after 180 s."""
_FOLLOW_TASK = "campaign : Follow the agent"
_LAST_TASK = "campaign : Remove the round's directory"
Results = Mapping[str, HostResult]


@dataclass(frozen=True)
class _Round:
    """A running round: its hosts and their requests by name, and its start (time.monotonic)."""

    hosts: Mapping[str, HostRun]
    requests: Mapping[str, RoundRequest]
    began: float


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
        """Fetch the results that an earlier run left behind, then run the remaining trials.

        A trial is attempted at most three times. On KeyboardInterrupt the agents are stopped and
        their results fetched before the exception is raised again.
        """
        with ExitStack() as locks:
            for host in self._hosts:
                locks.enter_context(host.folder.locked())
            self._run_rounds()

    def _run_rounds(self) -> None:
        unfinished = {
            host.name: number
            for host in self._hosts
            if (number := host.unfinished_round()) is not None
        }
        if unfinished:
            hosts = {host.name: host for host in self._hosts if host.name in unfinished}
            self._run_round(
                hosts, {name: host.begin(unfinished[name], None) for name, host in hosts.items()}
            )
        for _ in range(_ROUNDS):
            hosts = {
                host.name: host
                for host in self._hosts
                if host.name not in self._failed and host.runnable_trials()
            }
            if not hosts:
                return
            self._run_round(hosts, {name: self._request(host) for name, host in hosts.items()})

    def _request(self, host: HostRun) -> RoundRequest:
        last = self._folder.last_results().get(host.name)
        number = last.round + 1 if last else 1
        request = self._playbook.scratch / f"request-{host.name}.json"
        host.write_request(request, self._package.agent_sha256)
        return host.begin(number, request)

    def _run_round(
        self, hosts: Mapping[str, HostRun], requests: Mapping[str, RoundRequest]
    ) -> None:
        """Run one round. Ansible is followed in a thread, so that frames are received meanwhile."""
        this = _Round(hosts, requests, time.monotonic())
        self._ended.clear()
        interrupted, results = False, Future[Results]()
        with ThreadPoolExecutor(2) as pool:
            running = self._playbook.begin("run", requests)
            try:
                results = pool.submit(running.follow, self._events.put)
                try:
                    self._receive_until_done(results, hosts)
                except KeyboardInterrupt:
                    interrupted = True
                    self._stop(this, results, pool)
            finally:
                running.end()
                self._record(
                    this,
                    results.result() if results.done() and not results.exception() else {},
                    interrupted,
                )
        if interrupted:
            raise KeyboardInterrupt
        results.result()

    def _receive_until_done(
        self,
        results: Future[Results],
        hosts: Mapping[str, HostRun],
        until: float = math.inf,
    ) -> None:
        """Receive frames until the round ends, or until that time (time.monotonic)."""
        while not results.done() and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
            self._handle_events()
            for host in hosts.values():
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

    def _stop(self, this: _Round, results: Future[Results], pool: ThreadPoolExecutor) -> None:
        """Stop the agents and receive their last frames.

        A host or an Ansible that does not answer is given up after STOP_SECONDS; the next run
        fetches what it has.
        """
        until = time.monotonic() + STOP_SECONDS
        requests = {name: this.requests[name] for name in this.hosts if name not in self._ended}
        if not requests:  # a request to stop would leave a directory on the host
            self._receive_until_done(results, this.hosts, until)
            return
        for name in requests:
            self._listener(name, {"event": "step", "text": "stopping the current trial"})
        stopping = self._playbook.begin("stop", requests)
        try:
            pool.submit(stopping.follow)
            self._receive_until_done(results, this.hosts, until)
        finally:
            stopping.end()

    def _record(self, this: _Round, results: Results, interrupted: bool) -> None:
        """Record each host's result. A host whose round failed gets no further request."""
        for name, host in this.hosts.items():
            host.receive()
            outcome, reason = _outcome(host, results.get(name))
            agent_end = reason or self._agent_output.get(name) or "its agent ended"
            host.end(None if outcome == "lost" else agent_end)
            if outcome == "done" and host.remaining():
                outcome, reason = (
                    ("interrupted", "stopped by the user")
                    if interrupted
                    else ("incomplete", agent_end)
                )
            self._folder.add(
                round_result(name, this.requests[name].round, outcome, reason, this.began)
            )
            if outcome not in ("done", "incomplete"):
                self._failed.add(name)


def _outcome(host: HostRun, result: HostResult | None) -> tuple[str, str]:
    """Return the outcome of a round on one host, and the reason unless it is `done`."""
    if host.refusal is not None:
        return "refused", host.refusal.message
    if result is None:
        return "lost", "pagecage ended before all frames were fetched"
    if result.stopped_by is None:
        return "done", ""
    never_began = result.stopped_by.outcome == "failed" and result.stopped_by.task != _FOLLOW_TASK
    return "refused" if never_began else "lost", result.stopped_by.message
