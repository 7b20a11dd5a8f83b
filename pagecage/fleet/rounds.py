"""Runs what a fleet still lacks, in rounds: Ansible starts an agent on every host and fetches what comes of it.

A round ends on each host by itself. A host that is lost keeps its part, and its agent may go on without us: when the
fleet is run again, what it did is fetched before it is asked for more.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from pagecage.ansible import HostResult, TaskEvent
from pagecage.fleet.folder import FleetFolder, round_end
from pagecage.fleet.host_run import HostRun, Listener
from pagecage.fleet.playbook import FleetPlaybook, RoundRequest
from pagecage.hosts.agent_package import AgentPackage

_ROUNDS = 3
_LOOK_SECONDS = 0.2
_FOLLOWED = "campaign : Follow the agent"
Ends = Mapping[str, HostResult]


@dataclass(frozen=True)
class _Round:
    """A round under way: who takes part, by name, with which order, since when (time.monotonic)."""

    lanes: Mapping[str, HostRun]
    orders: Mapping[str, RoundRequest]
    began: float


class FleetCampaign:
    """One run of a fleet. `run` may be called for one that is already partly done."""

    def __init__(
        self, stage: FleetPlaybook, folder: FleetFolder, lanes: Sequence[HostRun], kit: AgentPackage, listener: Listener
    ) -> None:
        self._stage, self._folder, self._lanes, self._kit = stage, folder, lanes, kit
        self._listener = listener
        self._events: queue.SimpleQueue[TaskEvent] = queue.SimpleQueue()
        self._said: dict[str, str] = {}
        self._gone: set[str] = set()

    def run(self) -> None:
        """Fetch what an earlier run left, then run what is lacking; a trial is tried three times at most.

        KeyboardInterrupt ends the agents in good order and fetches what they have done before it is raised again.
        """
        unfinished = {lane.name: number for lane in self._lanes if (number := lane.unfinished_round()) is not None}
        if unfinished:
            lanes = {lane.name: lane for lane in self._lanes if lane.name in unfinished}
            self._play(lanes, {name: lane.begin(unfinished[name], None) for name, lane in lanes.items()})
        for _ in range(_ROUNDS):
            lanes = {lane.name: lane for lane in self._lanes if lane.name not in self._gone and lane.worth_trying()}
            if not lanes:
                return
            self._play(lanes, {name: self._order(lane) for name, lane in lanes.items()})

    def _order(self, lane: HostRun) -> RoundRequest:
        last = self._folder.last_ends().get(lane.name)
        number = last.round + 1 if last else 1
        request = self._stage.scratch / f"request-{lane.name}.json"
        lane.write_request(request, self._kit.agent_sha256)
        return lane.begin(number, request)

    def _play(self, lanes: Mapping[str, HostRun], orders: Mapping[str, RoundRequest]) -> None:
        """One round. Ansible plays in a thread, because frames are taken in while it waits."""
        this = _Round(lanes, orders, time.monotonic())
        interrupted = False
        with ThreadPoolExecutor(1) as pool:
            playing = self._stage.begin("run", orders)
            try:
                ends = pool.submit(playing.follow, self._events.put)
                try:
                    self._watch(ends, lanes)
                except KeyboardInterrupt:
                    interrupted = True
                    self._stop(this)
                    self._watch(ends, lanes)
            finally:
                playing.end()
                self._settle(this, ends.result() if ends.done() and not ends.exception() else {}, interrupted)
        if interrupted:
            raise KeyboardInterrupt
        ends.result()

    def _watch(self, ends: Future[Ends], lanes: Mapping[str, HostRun]) -> None:
        while not ends.done():
            time.sleep(_LOOK_SECONDS)
            self._hear()
            for lane in lanes.values():
                lane.take()
        self._hear()

    def _hear(self) -> None:
        while not self._events.empty():
            event = self._events.get()
            if event.task == _FOLLOWED:
                self._said[event.host] = event.stdout
            if event.outcome != "ok":
                self._listener(event.host, {"event": "step", "text": event.message})

    def _stop(self, this: _Round) -> None:
        for name in this.lanes:
            self._listener(name, {"event": "step", "text": "ending the trial at hand"})
        self._stage.begin("stop", this.orders).follow()

    def _settle(self, this: _Round, ends: Ends, interrupted: bool) -> None:
        """Note how the round ended on each host; one that did not end in order is not asked again in this run."""
        for name, lane in this.lanes.items():
            lane.take()
            outcome, because = _outcome(lane, ends.get(name))
            said = because or self._said.get(name) or "its agent ended"
            lane.end(this.orders[name].round, None if outcome == "lost" else said)
            if outcome == "done" and lane.lacking():
                outcome, because = ("interrupted", "ended from outside") if interrupted else ("incomplete", said)
            self._folder.add(round_end(name, this.orders[name].round, outcome, because, this.began))
            if outcome not in ("done", "incomplete"):
                self._gone.add(name)


def _outcome(lane: HostRun, end: HostResult | None) -> tuple[str, str]:
    """How a round ended on one host, and why where it did not end in order."""
    if lane.refusal is not None:
        return "refused", lane.refusal.message
    if end is None:
        return "lost", "pagecage was ended before its frames were fetched"
    if end.stopped_by is None:
        return "done", ""
    never_began = end.stopped_by.outcome == "failed" and end.stopped_by.task != _FOLLOWED
    return "refused" if never_began else "lost", end.stopped_by.message
