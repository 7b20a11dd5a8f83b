"""Receiver of an agent's stream: events for the listener, traces and records for the run folder."""

from __future__ import annotations

import base64
import json
import select
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import IO

from pagecage.errors import HostDied, HostError, PagecageError
from pagecage.hosts.host import MachineState, ObservedHost
from pagecage.model.json_codec import Json, JsonView, is_attempt
from pagecage.model.record import Record, record_from_json, with_outer_host
from pagecage.model.run_files import trace_names
from pagecage.model.trial import Trial
from pagecage.planning.plan import Plan
from pagecage.runner.frames import BadFrame, Frame, FrameReader
from pagecage.runner.run_folder import RunFolder, TrialTraces

MOST_EVENTS = 100_000
"""Events between two trials, or within one, apart from questions for standard input."""
MOST_QUESTIONS = 10_000_000
"""Questions for standard input within one trial: each is answered with at most 64 KiB."""
MOST_OUTPUT_BYTES = 1 << 40
"""The most output of one trial's program that the agent may pass on."""
MOST_TRIAL_BYTES = 4 << 30
"""All traces of one trial."""
_ANSWER_SECONDS = 30.0
"""The time in which an agent that asked reads its answer."""
_CONTROLS = dict.fromkeys((*range(32), 127, *range(128, 160)), " ")


class FrameReceiver:
    """Receives one agent's stream about the trials of a plan. `attempted` counts those begun.

    `answers` is the agent's standard input, or None. A stream can be read again: records that the
    folder has already are not added twice, and their traces stay.
    """

    def __init__(
        self,
        frames: FrameReader,
        answers: IO[bytes] | None,
        folder: RunFolder,
        host: ObservedHost,
        state: MachineState,
        plan: Plan,
        listener: Callable[[JsonView], None],
    ) -> None:
        self._frames, self._answers, self._plan = frames, answers, plan
        self._trials = {trial.trial_id: trial for trial in plan.trials}
        self._known = {(one.trial_id, one.number) for one in folder.attempts()}
        self._next = folder.next_attempts()
        self._folder, self._host, self._state, self._listener = folder, host, state, listener
        self._traces = TrialTraces(folder)
        self._outer: Json = {}
        self._counts: Counter[str] = Counter()
        self._attempt = 1
        self._phase = "requirements"
        self._has_facts = self._has_volume_ended = False
        self.attempted: Counter[str] = Counter()
        self.open_trial: str | None = None

    def receive_all(self) -> None:
        """Receive frames until the stream ends. Raises HostError, and BadFrame for a wrong one."""
        while (frame := self._frames.next()) is not None:
            header = frame.header
            match header["frame"]:
                case "event":
                    self._receive_event(dict(header))
                case "facts":
                    if self._has_facts:
                        raise BadFrame("its facts twice")
                    self._has_facts = True
                    self._folder.add_facts(
                        {**header["facts"], "machine": vars(self._state)}, self._state.restore_seq
                    )
                case "trace":
                    self._receive_trace(frame)
                case "output":
                    trial = self._require_open(self.open_trial)
                    command = trial.workload.command
                    self._counts["output"] += len(frame.piece)
                    if command is None or not command.streams_output:
                        raise BadFrame(f"output of the trial {trial.trial_id}, which has none")
                    if self._counts["output"] > MOST_OUTPUT_BYTES:
                        raise BadFrame(f"more than {MOST_OUTPUT_BYTES >> 40} TiB of output")
                    stream = frame.header["stream"]
                    self._listener({"event": "output", "stream": stream, "piece": frame.piece})
                case "record":
                    self._append(self._checked_record(header["record"]))
                    self._end_without_volume()

    def close(self) -> None:
        self._traces.drop_open()

    def record_interrupted(self, reason: str) -> None:
        """Record the trial during which the agent ended, if there is one, as interrupted."""
        if self.open_trial is not None:
            state, expected = self._state, self._expected(self._trials[self.open_trial])
            expected |= {"state_id": state.state_id, "restore_seq": state.restore_seq}
            expected |= {"emulated": state.emulated, "phase": self._phase, "error": reason}
            self._append(Record(**expected, outcome="interrupted"))

    def _expected(self, trial: Trial) -> Json:
        return {
            "run_id": self._plan.run_id,
            "plan_sha256": self._plan.sha256,
            "host": self._host.name,
            **trial.identity,
            "attempt": self._attempt,
        }

    def _receive_trace(self, frame: Frame) -> None:
        name = frame.header["name"]
        trial = self._require_open(frame.header["trial_id"])
        if frame.header["attempt"] != self._attempt or name not in trace_names(trial):
            raise BadFrame(f"a trace {name!r} that the trial {trial.trial_id} does not have")
        is_known = (trial.trial_id, self._attempt) in self._known
        self._counts["trace"] += len(frame.piece)
        if self._counts["trace"] > MOST_TRIAL_BYTES:
            raise BadFrame(f"traces of more than {MOST_TRIAL_BYTES >> 30} GiB for one trial")
        self._traces.add(trial.trial_id, self._attempt, frame, is_kept=not is_known)

    def _require_open(self, trial_id: str | None) -> Trial:
        if trial_id is None or trial_id != self.open_trial:
            raise BadFrame(f"a frame about the trial {trial_id!r}, which is not running")
        return self._trials[trial_id]

    def _checked_record(self, data: JsonView) -> Record:
        try:
            record = record_from_json(data, "the agent's record")
        except PagecageError as error:
            raise BadFrame(error.message.replace("the agent's", "a", 1)) from None
        trial = self._require_open(record.trial_id)
        wrong = [
            key for key, value in self._expected(trial).items() if getattr(record, key) != value
        ]
        wrong += [key for key in _OF_CONTROLLER if getattr(record, key)]
        if wrong:
            raise BadFrame(f"a record of {trial.trial_id} whose {wrong[0]} is not the plan's")
        return record

    def _receive_event(self, event: Json) -> None:
        self._count_event(event["event"])
        match event["event"]:
            case "error":
                raise HostError(_shown(event["message"]), _shown(event["hint"]))
            case "step" | "notice":
                event["text"] = _shown(event["text"])
            case "swept":
                event["unit"] = _shown(event["unit"])
            case "trial":
                self._begin_trial(event["trial_id"], event["attempt"])
            case "phase":
                self._require_open(event["trial_id"])
                self._phase = event["phase"]
            case "go" | "end":
                self._require_open(event["trial_id"])
                self._sample_outer("before" if event["event"] == "go" else "after")
            case "input_wanted":
                event["answer"] = partial(self._answer, event["question"])
            case "throttle_wanted":
                throttled = partial(self._host.throttle, event["limits"])
                self._answer_from_host(event["question"], "read_back", throttled)
            case "volume_wanted":
                commanded = partial(self._host.command_volume, event["command"], event["disk"])
                self._answer_from_host(event["question"], "answer", commanded)
        self._listener(event)

    def _begin_trial(self, trial_id: str, attempt: int) -> None:
        is_next = attempt == self._next.get(trial_id, 1) or (trial_id, attempt) in self._known
        if self.open_trial or trial_id not in self._trials or self.attempted[trial_id]:
            raise BadFrame(f"the trial {trial_id!r}, which was not asked for")
        if not is_attempt(attempt) or not is_next:
            raise BadFrame(f"attempt {attempt} of {trial_id}, which was not asked for")
        self.open_trial, self._attempt = trial_id, attempt
        self.attempted[trial_id] += 1
        self._counts.clear()

    def _count_event(self, kind: str) -> None:
        is_question = kind == "input_wanted"
        counted, most = (kind, MOST_QUESTIONS) if is_question else ("event", MOST_EVENTS)
        self._counts[counted] += 1
        if self._counts[counted] > most:
            raise BadFrame(f"more than {most} events within one trial")

    def _end_without_volume(self) -> None:
        if self._has_volume_ended and self._answers is not None:
            with suppress(OSError):
                self._answers.close()

    def _answer_from_host(self, question: str, key: str, ask: Callable[[], object]) -> None:
        answer: Json
        try:
            answer = {key: ask()}
        except PagecageError as error:
            self._has_volume_ended |= key == "answer" and isinstance(error, HostDied)
            answer = {"error": error.message, "hint": error.hint}
        self._answer(question, json.dumps(answer).encode())

    def _answer(self, question: str, piece: bytes) -> None:
        """Send an answer to the agent, which may have ended, from any thread."""
        answer = {"answers": question, "piece": base64.b64encode(piece).decode()}
        agent = self._answers
        with suppress(OSError, ValueError):
            if agent is not None and select.select([], [agent], [], _ANSWER_SECONDS)[1]:
                agent.write(json.dumps(answer).encode() + b"\n")

    def _sample_outer(self, when: str) -> None:
        try:
            self._outer[when] = self._host.outer_sample()
        except PagecageError:
            self._outer[when] = None  # the host has just died, so the stream is about to end

    def _append(self, record: Record) -> None:
        outer_host = self._outer if self._outer.get("before") and self._outer.get("after") else None
        paths, files = self._traces.take()
        traced = replace(record, traces=paths, trace_files=files)
        complete = with_outer_host(traced, outer_host)
        self._outer, self.open_trial = {}, None
        self._counts.clear()
        if (record.trial_id, record.attempt) in self._known:
            return
        self._folder.append(complete)
        self._listener({"event": "record", "record": complete})


_OF_CONTROLLER = ("traces", "trace_files", "outer_host", "record_sha256")
"""Parts of a record that the controller adds."""


def _shown(text: str) -> str:
    """Return text of the agent without characters that a terminal obeys."""
    return text.translate(_CONTROLS)
