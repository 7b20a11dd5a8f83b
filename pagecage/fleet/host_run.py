"""One host's part of a fleet run: its remaining trials, its requests, and its results."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagecage.agent.protocol.request import request_to_json
from pagecage.errors import HostError
from pagecage.fleet.playbook import RoundRequest
from pagecage.hosts.host import MachineState
from pagecage.model.cage import DATA_DISK
from pagecage.model.trial import Trial
from pagecage.planning.plan import Plan
from pagecage.runner.agent_process import request_for
from pagecage.runner.campaign import ATTEMPTS
from pagecage.runner.frame_receiver import FrameReceiver
from pagecage.runner.frames import BadFrame, FrameReader
from pagecage.runner.run_folder import RunFolder, needs_records, planned_trials

Listener = Callable[[str, Mapping[str, Any]], None]
"""Called with a host's name and an event of its campaign."""


@dataclass(frozen=True)
class RemoteHost:
    """A host of a group during a run. `emulated` tells that its instructions are translated.

    `disks` has a directory on each disk beside the data directory's, by name.
    """

    name: str
    data_dir: str
    spool_dir: str
    emulated: bool
    disks: Mapping[str, str] = field(default_factory=dict)

    @property
    def own_disk(self) -> None:
        """None: the inventory names the disk."""

    @property
    def user(self) -> bool:
        """Always False: the agent creates units with the system's systemd."""
        return False

    def outer_sample(self) -> None:
        """Return None: the machine around a remote host is unknown."""

    def throttle(self, _limits: Mapping[str, int]) -> dict[str, int]:
        """Raise HostError: the machine around a remote host is unknown."""
        raise HostError(f"the disk of {self.name} cannot be throttled from outside", "use HOST=vm")

    def command_volume(self, _command: Mapping[str, Any], _disk: str = DATA_DISK) -> dict[str, Any]:
        """Raise HostError: the machine around a remote host is unknown."""
        raise HostError(f"{self.name} is not a guest started here", "use HOST=vm")


class HostRun:
    """A host with its plan and its run folder.

    `refusal` is the agent's error if it could not work.
    """

    def __init__(
        self, remote: RemoteHost, plan: Plan, folder: RunFolder, streams: Path, listener: Listener
    ) -> None:
        self.remote, self.plan, self.folder = remote, plan, folder
        self.refusal: HostError | None = None
        self._streams, self._listener = streams, listener
        self._attempts: Counter[str] = Counter()
        self._receiver: FrameReceiver | None = None
        self._descriptor, self._stream = -1, streams

    @property
    def name(self) -> str:
        """The host's name."""
        return self.remote.name

    def remaining(self) -> tuple[Trial, ...]:
        """Return the trials without a result."""
        return self.folder.remaining(self.plan)

    def runnable_trials(self) -> tuple[Trial, ...]:
        """Return the trials without a result that have attempts left."""
        return (
            ()
            if self.refusal
            else tuple(t for t in self.remaining() if self._attempts[t.trial_id] < ATTEMPTS)
        )

    def unfinished_round(self) -> int | None:
        """Return the number of a round whose stream was not fetched completely, or None."""
        found = [
            int(path.suffix[1:])
            for path in self._streams.glob(f"{self.name}.*")
            if path.stem == self.name
        ]
        return max(found, default=None)

    def begin(self, number: int, request: Path | None) -> RoundRequest:
        """Open a round's stream and return its request.

        A stream that was fetched in part is read again from its beginning, which adds no record
        twice.
        """
        self._stream = self._streams / f"{self.name}.{number}"
        flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._stream, flags, 0o600)
        state = MachineState(None, None, self.remote.emulated, {})
        frames, asked = FrameReader(self._descriptor), replace(self.plan, trials=self._planned())
        self._receiver = FrameReceiver(
            frames, None, self.folder, self.remote, state, asked, self._forward
        )
        return RoundRequest(
            self.plan.run_id, number, str(request) if request else "", str(self._stream)
        )

    def write_request(self, path: Path, agent_sha256: str) -> None:
        """Write the agent's request for all runnable trials."""
        state = MachineState(None, None, self.remote.emulated, {})
        request = request_for(
            self.plan, self.folder, self.remote, state, self.runnable_trials(), agent_sha256
        )
        path.write_text(json.dumps(request_to_json(request)))

    def receive(self) -> None:
        """Receive the frames that have arrived."""
        if self._receiver is not None and self.refusal is None:
            try:
                self._receiver.receive_all()
            except HostError as error:
                self.refusal = error
                if isinstance(error, BadFrame):  # campaign_follow.py then ends
                    self._stream.unlink(missing_ok=True)

    def end(self, reason: str | None) -> None:
        """Close a round.

        `reason` says how the agent ended; a trial that it left unfinished is recorded with it. With
        None the host is unreachable and its agent may still be running, so the stream is kept to be
        resumed.
        """
        self.receive()
        receiver, self._receiver = self._receiver, None
        os.close(self._descriptor)
        assert receiver is not None
        receiver.close()
        self._attempts.update(receiver.attempted)
        if reason is None:
            return
        receiver.record_interrupted(reason)
        self._stream.unlink(missing_ok=True)

    def _planned(self) -> tuple[Trial, ...]:
        """Return all trials of the plan: a stream that is read again has those with a result."""
        records = self.folder.last_records() if needs_records(self.plan.document) else {}
        return planned_trials(self.plan, records, self.folder.judge(records))

    def _forward(self, event: Mapping[str, Any]) -> None:
        self._listener(self.name, event)
