"""Receiver of an agent's stream: events for the listener, traces and records for the run folder."""

from __future__ import annotations

import base64
import json
import os
import select
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from pagecage.errors import HostDied, HostError, PagecageError
from pagecage.hosts.host import MachineState, ObservedHost
from pagecage.model.record import Record, record_from_json, with_outer_host
from pagecage.planning.plan import Plan
from pagecage.runner.run_folder import RunFolder

Frame = tuple[dict[str, Any], bytes]
_PIECE_BYTES = 1 << 16


class FrameReader:
    """Reads whole frames from a pipe.

    Its buffer survives an interruption, so reading can continue.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._searched = 0
        self._patience_seconds: float | None = None

    def expect_end(self, patience_seconds: float) -> None:
        """From now on, take so long a silence for the end of the stream: the host hangs."""
        self._patience_seconds = patience_seconds

    def next(self) -> Frame | None:
        """Return the next frame, or None at the end of the stream.

        An incomplete last frame is dropped.
        """
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            if not self._read_piece():
                return None
        header = _parse_header(bytes(self._buffer[:end]))
        frame_end = end + 1 + int(header.get("length", 0))
        while len(self._buffer) < frame_end:
            if not self._read_piece():
                return None
        body = bytes(self._buffer[end + 1 : frame_end])
        del self._buffer[:frame_end]
        self._searched = 0
        return header, body

    def _read_piece(self) -> bool:
        if not select.select([self._descriptor], [], [], self._patience_seconds)[0]:
            return False
        piece = os.read(self._descriptor, _PIECE_BYTES)
        self._buffer += piece
        return bool(piece)


def _parse_header(line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line)
        if header["frame"]:
            return dict(header)
    except (ValueError, TypeError, KeyError):
        pass
    text = line[:80].decode(errors="replace")
    raise HostError(
        f"the host sent {text!r} instead of a frame",
        "make sure that its login shell prints nothing",
    )


class FrameReceiver:
    """Receives one agent's stream. `attempted` counts the trials begun.

    `answers` is the agent's standard input, None if the agent cannot be answered. A stream can be
    read again: records that the folder has already are not added twice.
    """

    def __init__(
        self,
        frames: FrameReader,
        answers: IO[bytes] | None,
        folder: RunFolder,
        host: ObservedHost,
        state: MachineState,
        listener: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._frames, self._answers = frames, answers
        self._known = {(one.trial_id, one.number) for one in folder.attempts()}
        self._folder, self._host, self._state, self._listener = folder, host, state, listener
        self._traces: dict[str, str] = {}
        self._outer: dict[str, Any] = {}
        self._attempt = 1
        self._phase = "requirements"
        self._has_volume_ended = False
        self.attempted: Counter[str] = Counter()
        self.open_trial: str | None = None

    def receive_all(self) -> None:
        """Receive frames until the stream ends.

        Raises HostError if the agent reports that it cannot work.
        """
        while (frame := self._frames.next()) is not None:
            self._receive(*frame)

    def record_interrupted(self, plan: Plan, reason: str) -> None:
        """Record the trial during which the agent ended, if there is one, as interrupted."""
        if self.open_trial is None:
            return
        trial = next(trial for trial in plan.trials if trial.trial_id == self.open_trial)
        self._append(
            Record(
                run_id=plan.run_id,
                plan_sha256=plan.sha256,
                host=self._host.name,
                experiment=trial.experiment,
                trial_id=trial.trial_id,
                treatment=trial.treatment,
                repeat=trial.repeat,
                block=trial.block,
                position=trial.position,
                attempt=self._attempt,
                outcome="interrupted",
                phase=self._phase,
                error=reason,
                state_id=self._state.state_id,
                restore_seq=self._state.restore_seq,
                emulated=self._state.emulated,
            )
        )

    def _receive(self, frame: dict[str, Any], body: bytes) -> None:
        match frame["frame"]:
            case "event":
                self._receive_event(frame)
            case "facts":
                self._folder.add_facts(
                    {**frame["facts"], "machine": vars(self._state)}, self._state.restore_seq
                )
            case "trace":
                path = self._folder.trace_path(frame["trial_id"], frame["attempt"], frame["name"])
                path.write_bytes(body)
                self._traces[Path(frame["name"]).stem] = path.relative_to(
                    self._folder.path
                ).as_posix()
            case "output":
                self._listener({"event": "output", "stream": frame["stream"], "piece": body})
            case "record":
                self._append(record_from_json(frame["record"], "the agent's record"))
                self._end_without_volume()

    def _receive_event(self, frame: dict[str, Any]) -> None:
        match frame["event"]:
            case "error":
                raise HostError(frame["message"], frame["hint"])
            case "go" | "end":
                self._sample_outer("before" if frame["event"] == "go" else "after")
            case "trial":
                self.open_trial, self._attempt = frame["trial_id"], frame["attempt"]
                self.attempted[frame["trial_id"]] += 1
            case "phase":
                self._phase = frame["phase"]
            case "input_wanted":
                frame["answer"] = partial(self._answer, frame["question"])
            case "throttle_wanted":
                self._answer(
                    frame["question"], json.dumps(self._throttle(frame["limits"])).encode()
                )
            case "volume_wanted":
                answer = self._command_volume(frame["command"], frame["disk"])
                self._answer(frame["question"], json.dumps(answer).encode())
        self._listener(frame)

    def _throttle(self, limits: Mapping[str, int]) -> dict[str, Any]:
        """Throttle the disk from outside the host; return the limits in force, or the error."""
        try:
            return {"read_back": self._host.throttle(limits)}
        except PagecageError as error:
            return {"error": error.message, "hint": error.hint}

    def _command_volume(self, command: Mapping[str, Any], disk: str) -> dict[str, Any]:
        """Send a command to the volume around the host; return its answer, or the error."""
        try:
            return {"answer": self._host.command_volume(command, disk)}
        except PagecageError as error:
            self._has_volume_ended |= isinstance(error, HostDied)
            return {"error": error.message, "hint": error.hint}

    def _end_without_volume(self) -> None:
        """Tell the agent to end if its disk has gone with the volume's server."""
        if self._has_volume_ended and self._answers is not None:
            with suppress(OSError):
                self._answers.close()

    def _answer(self, question: str, piece: bytes) -> None:
        """Send an answer to the agent, from any thread.

        Errors are ignored: the agent may have ended.
        """
        line = (
            json.dumps({"answers": question, "piece": base64.b64encode(piece).decode()}).encode()
            + b"\n"
        )
        with suppress(OSError, ValueError):
            if self._answers is not None:
                self._answers.write(line)

    def _sample_outer(self, when: str) -> None:
        try:
            self._outer[when] = self._host.outer_sample()
        except PagecageError:
            self._outer[when] = None  # the host has just died, so the stream is about to end

    def _append(self, record: Record) -> None:
        outer_host = self._outer if self._outer.get("before") and self._outer.get("after") else None
        complete = with_outer_host(replace(record, traces=self._traces), outer_host)
        self._traces, self._outer, self.open_trial = {}, {}, None
        if (record.trial_id, record.attempt) in self._known:
            return
        self._folder.append(complete)
        self._listener({"event": "record", "record": complete})
