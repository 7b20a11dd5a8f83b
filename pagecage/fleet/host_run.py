"""One host's part of a fleet run: what it still lacks, what it is asked for, and what comes of it, frame by frame."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.agent.protocol.request import request_to_json
from pagecage.errors import HostError
from pagecage.fleet.playbook import RoundRequest
from pagecage.hosts.host import MachineState
from pagecage.model.trial import Trial
from pagecage.planning.plan import Plan
from pagecage.runner.campaign import TRIES, request_for
from pagecage.runner.frame_receiver import FrameReader, FrameReceiver
from pagecage.runner.run_folder import RunFolder

Listener = Callable[[str, Mapping[str, Any]], None]
"""Called with a host's name and an event, as campaigns tell them."""


@dataclass(frozen=True)
class RemoteHost:
    """A host as one run sees it: its name, where it measures and works, whether its instructions are translated."""

    name: str
    data_dir: str
    spool_dir: str
    emulated: bool

    @property
    def user(self) -> bool:
        """An agent of a fleet makes its units by the system's own systemd."""
        return False

    def outer_sample(self) -> None:
        """What is around a host of a fleet is not known."""

    def throttle(self, _limits: Mapping[str, int]) -> dict[str, int]:
        """Nor can it be told to do anything. Raises HostError."""
        raise HostError(f"what is around {self.name} is not known, nor told what to do", "use HOST=vm")


class HostRun:
    """A host with its plan and its run folder. `refusal` is what its agent said when it could not work at all."""

    def __init__(self, place: RemoteHost, plan: Plan, folder: RunFolder, streams: Path, listener: Listener) -> None:
        self.place, self.plan, self.folder = place, plan, folder
        self.refusal: HostError | None = None
        self._streams, self._listener = streams, listener
        self._tried: Counter[str] = Counter()
        self._intake: FrameReceiver | None = None
        self._descriptor = -1

    @property
    def name(self) -> str:
        """The host's name."""
        return self.place.name

    def lacking(self) -> tuple[Trial, ...]:
        """Trials without an answer."""
        return self.folder.remaining(self.plan)

    def worth_trying(self) -> tuple[Trial, ...]:
        """Those of them that were not tried too often."""
        return () if self.refusal else tuple(t for t in self.lacking() if self._tried[t.trial_id] < TRIES)

    def unfinished_round(self) -> int | None:
        """The round whose frames an earlier pagecage did not fetch to their end."""
        found = [int(path.suffix[1:]) for path in self._streams.glob(f"{self.name}.*") if path.stem == self.name]
        return max(found, default=None)

    def begin(self, number: int, request: Path | None) -> RoundRequest:
        """Open a round's stream; what was fetched of it before is taken in anew, and adds nothing twice."""
        stream = self._streams / f"{self.name}.{number}"
        self._descriptor = os.open(stream, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        state = MachineState(None, None, self.place.emulated, {})
        frames = FrameReader(self._descriptor)
        self._intake = FrameReceiver(frames, None, self.folder, self.place, state, self._tell)
        return RoundRequest(self.plan.run_id, number, str(request) if request else "", str(stream))

    def write_request(self, path: Path, agent_sha256: str) -> None:
        """What the agent is asked for: every trial that is worth trying."""
        state = MachineState(None, None, self.place.emulated, {})
        request = request_for(self.plan, self.folder, self.place, state, self.worth_trying(), agent_sha256)
        path.write_text(json.dumps(request_to_json(request)))

    def take(self) -> None:
        """Take in what has come since."""
        if self._intake is not None and self.refusal is None:
            try:
                self._intake.take_all()
            except HostError as error:
                self.refusal = error

    def end(self, number: int, why: str | None) -> None:
        """Close the round. `why` tells that the agent is no more, so that a trial it left open gets its record.

        None tells that the host is out of reach: the agent may still work, so its stream stays, to be gone on with.
        """
        self.take()
        intake, self._intake = self._intake, None
        os.close(self._descriptor)
        assert intake is not None
        self._tried.update(intake.tried)
        if why is None:
            return
        intake.abandon(self.plan, why)
        (self._streams / f"{self.name}.{number}").unlink()

    def _tell(self, event: Mapping[str, Any]) -> None:
        self._listener(self.name, event)
