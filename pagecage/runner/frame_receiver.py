"""Frames of an agent: read within bounds, checked, and received for the run folder.

Everything that an agent sends may be wrong: programs in a guest run as root there and can replace
the agent. So a frame is a value of the types below, about a trial that was asked for, or the
session ends with BadFrame.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import select
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from pagecage.errors import HostDied, HostError, PagecageError
from pagecage.hosts.host import MachineState, ObservedHost
from pagecage.model import json_codec as codec
from pagecage.model import record as records
from pagecage.model.json_codec import Json, JsonView, is_identifier
from pagecage.model.plan import Plan
from pagecage.model.record import MOST_RECORD_BYTES, Record, TraceFile
from pagecage.model.run_files import MOST_TRACE_BYTES, trace_names
from pagecage.model.trial import Trial
from pagecage.runner.run_folder import RunFolder
from pagecage.whole_files import whole_file

MOST_EVENT_BYTES = 64 << 10
"""The longest event."""
MOST_PIECE_BYTES = 1 << 20
"""The longest piece of a program's output."""
_READ_BYTES = 1 << 16
_KINDS: Mapping[str, JsonView] = {
    "event": {},
    "facts": {"facts": JsonView},
    "trace": {"trial_id": codec.TRIAL_ID, "attempt": int, "name": codec.TRACE, "length": int},
    "output": {"stream": str, "length": int},
    "record": {"record": JsonView},
}
_EVENTS: Mapping[str, JsonView] = {
    "trial": {"trial_id": codec.TRIAL_ID, "attempt": int},
    "phase": {"trial_id": codec.TRIAL_ID, "phase": codec.WORD},
    "go": {"trial_id": codec.TRIAL_ID},
    "end": {"trial_id": codec.TRIAL_ID},
    "step": {"text": str},
    "notice": {"text": str},
    "swept": {"unit": str},
    "error": {"message": str, "hint": str},
    "input_wanted": {"question": str, "offset": int},
    "throttle_wanted": {"question": str, "limits": Mapping[str, int]},
    "volume_wanted": {"question": str, "command": JsonView, "disk": codec.DISK},
}
_LENGTHS = {"trace": MOST_TRACE_BYTES, "output": MOST_PIECE_BYTES}


class BadFrame(HostError):
    """The agent sent what no agent of this version sends, so it is not believed any further."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the host sent {what}",
            "make sure that its login shell prints nothing; if it does not, do not trust this host",
        )


@dataclass(frozen=True)
class Frame:
    """The header of a frame with a piece of its body, of which `left_bytes` follow."""

    header: JsonView
    piece: bytes = b""
    left_bytes: int = 0


class FrameReader:
    """Reads frames from a pipe or a file that grows, and goes on after an interruption."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._searched = 0
        self._header: Json | None = None
        self._left_bytes = 0
        self._patience_seconds: float | None = None

    def expect_end(self, patience_seconds: float) -> None:
        """From now on, take so long a silence for the end of the stream: the host hangs."""
        self._patience_seconds = patience_seconds

    def next(self) -> Frame | None:
        """Return the next frame or piece; None at the end. Raises BadFrame for anything else."""
        if self._header is None:
            line = self._line()
            if line is None:
                return None
            header = parsed_header(line)
            self._header, self._left_bytes = header, header.get("length", 0)
        wanted = min(self._left_bytes, MOST_PIECE_BYTES)
        while len(self._buffer) < wanted:
            if not self._read_on():
                return None
        header, piece = self._header, bytes(self._buffer[:wanted])
        del self._buffer[:wanted]
        self._left_bytes -= wanted
        self._header = header if self._left_bytes else None
        return Frame(header, piece, self._left_bytes)

    def _line(self) -> bytes | None:
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            if self._searched > MOST_RECORD_BYTES:
                raise BadFrame(f"a line of more than {MOST_RECORD_BYTES >> 20} MiB")
            if not self._read_on():
                return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line

    def _read_on(self) -> bool:
        if not select.select([self._descriptor], [], [], self._patience_seconds)[0]:
            return False
        piece = os.read(self._descriptor, _READ_BYTES)
        self._buffer += piece
        return bool(piece)


def parsed_header(line: bytes) -> Json:
    """Return the header in a line. Raises BadFrame for anything else."""
    text = line[:80].decode(errors="replace")
    try:
        header: Json = codec.from_line(line)
        kind = header["frame"]
        keys = {"frame": str, **_KINDS[kind]}
        if kind == "event":
            keys |= {"event": str, **_EVENTS[header["event"]]}
    except (ValueError, TypeError, KeyError):
        raise BadFrame(f"{text!r} instead of a frame") from None
    if kind != "record" and len(line) > (
        MOST_RECORD_BYTES if kind == "facts" else MOST_EVENT_BYTES
    ):
        raise BadFrame(f"a frame `{kind}` of {len(line)} bytes")
    if header.keys() != keys.keys() or not all(_fits(header[key], keys[key]) for key in keys):
        raise BadFrame(f"{text!r}, which is not a frame `{kind}`")
    if not 0 <= header.get("length", 0) <= _LENGTHS.get(kind, 0):
        raise BadFrame(f"a frame `{kind}` of {header['length']} bytes")
    boot_id = header.get("facts", {}).get("boot_id")
    if boot_id is not None and not is_identifier(boot_id, codec.BOOT_ID):
        raise BadFrame(f"facts with the boot_id {str(boot_id)[:80]!r}, which is not a UUID")
    return header


def _fits(value: Any, kind: Any) -> bool:
    if hasattr(kind, "fullmatch"):
        return is_identifier(value, kind)
    try:
        codec.from_json(kind, value)
    except PagecageError:
        return False
    return True


class TrialTraces:
    """The traces of the running trial, renamed when whole, so that a record names no other."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._paths: dict[str, str] = {}
        self._files: dict[str, TraceFile] = {}
        self._names: set[str] = set()
        self._open: _OpenTrace | None = None

    def add(self, trial_id: str, attempt: int, frame: Frame, *, is_kept: bool) -> None:
        """Add a piece of a trace, dropped unless `is_kept`. Raises BadFrame, HostError."""
        name, length = frame.header["name"], frame.header["length"]
        if self._open is None and len(frame.piece) + frame.left_bytes == length:
            if name in self._names:
                raise BadFrame(f"the trace {name!r} twice")
            self._names.add(name)
            self._folder.require_room_for_trace(length)
            if is_kept:
                self._open = _OpenTrace(self._folder.trace_path(trial_id, attempt, name))
        if self._open is None:
            return
        self._open.write(frame.piece)
        if not frame.left_bytes:
            path = self._open.path.relative_to(self._folder.path).as_posix()
            self._files[path] = self._open.finish()
            self._paths[Path(name).stem] = path
            self._open = None

    def take(self) -> tuple[Mapping[str, str], Mapping[str, TraceFile]]:
        self.drop_open()
        taken = self._paths, self._files
        self._paths, self._files, self._names = {}, {}, set()
        return taken

    def drop_open(self) -> None:
        if self._open is not None:
            self._open.drop()
            self._open = None


class _OpenTrace:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest, self._bytes = hashlib.sha256(), 0
        self._stack = ExitStack()
        self._file: IO[bytes] = self._stack.enter_context(whole_file(path))

    def write(self, piece: bytes) -> None:
        self._file.write(piece)
        self._digest.update(piece)
        self._bytes += len(piece)

    def finish(self) -> TraceFile:
        self._stack.close()
        return TraceFile(self._bytes, self._digest.hexdigest())

    def drop(self) -> None:
        with suppress(EOFError), self._stack:
            raise EOFError


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
                    if command is None or not command.streams_output:
                        raise BadFrame(f"output of the trial {trial.trial_id}, which has none")
                    most = f"more than {MOST_OUTPUT_BYTES >> 40} TiB of output"
                    self._count("output", len(frame.piece), MOST_OUTPUT_BYTES, most)
                    stream = frame.header["stream"]
                    self._listener({"event": "output", "stream": stream, "piece": frame.piece})
                case "record":
                    self._append(self._checked_record(header["record"]))
                    if self._has_volume_ended and self._answers is not None:
                        with suppress(OSError):
                            self._answers.close()

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
        most = f"traces of more than {MOST_TRIAL_BYTES >> 30} GiB for one trial"
        self._count("trace", len(frame.piece), MOST_TRIAL_BYTES, most)
        self._traces.add(trial.trial_id, self._attempt, frame, is_kept=not is_known)

    def _count(self, kind: str, number: int, most: int, excess: str) -> None:
        self._counts[kind] += number
        if self._counts[kind] > most:
            raise BadFrame(excess)

    def _require_open(self, trial_id: str | None) -> Trial:
        if trial_id is None or trial_id != self.open_trial:
            raise BadFrame(f"a frame about the trial {trial_id!r}, which is not running")
        return self._trials[trial_id]

    def _checked_record(self, data: JsonView) -> Record:
        try:
            record = records.record_from_json(data, "the agent's record")
        except PagecageError as error:
            raise BadFrame(error.message.replace("the agent's", "a", 1)) from None
        trial = self._require_open(record.trial_id)
        expected = self._expected(trial)
        wrong = [key for key in expected if getattr(record, key) != expected[key]]
        wrong += [key for key in _OF_CONTROLLER if getattr(record, key)]
        if wrong:
            raise BadFrame(f"a record of {trial.trial_id} whose {wrong[0]} is not the plan's")
        return record

    def _receive_event(self, event: Json) -> None:
        is_question = event["event"] == "input_wanted"
        counted, most = ("question", MOST_QUESTIONS) if is_question else ("event", MOST_EVENTS)
        self._count(counted, 1, most, f"more than {most} events within one trial")
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
                when = "before" if event["event"] == "go" else "after"
                self._outer[when] = None
                with suppress(PagecageError):  # a host that has just died ends the stream
                    self._outer[when] = self._host.outer_sample()
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
        if not codec.is_attempt(attempt) or not is_next:
            raise BadFrame(f"attempt {attempt} of {trial_id}, which was not asked for")
        self.open_trial, self._attempt = trial_id, attempt
        self.attempted[trial_id] += 1
        self._counts.clear()

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

    def _append(self, record: Record) -> None:
        outer_host = self._outer if self._outer.get("before") and self._outer.get("after") else None
        paths, files = self._traces.take()
        complete = records.with_outer_host(
            replace(record, traces=paths, trace_files=files), outer_host
        )
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
