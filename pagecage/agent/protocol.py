"""Messages between controller and agent: the request, the stream of frames, and calls."""

from __future__ import annotations

import base64
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from pagecage.errors import HostError
from pagecage.model.cage import Cage
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.record import Record, record_to_json
from pagecage.model.trial import Trial, trial_from_json, trial_to_json

_WITHIN_A_TRIAL = ("phase", "go", "end")
_POLL_SECONDS, _ANSWER_SECONDS = 0.2, 30.0


@dataclass(frozen=True)
class RunRequest:
    """One or more trials of a plan, for one machine state.

    `attempts` is each trial's attempt number. `machine` describes the machine state (`state_id
    restore_seq emulated details`). With `user` the trials run under the user's own systemd. `disks`
    has a directory on each disk beside the data directory's, by name. `own_programs` are the texts
    of the definition's own programs by name. With `own_disk` the data directory is on a disk that
    the agent makes of a file (`file size_bytes`), with room for `data_bytes`.
    """

    run_id: str
    plan_sha256: str
    host: str
    data_dir: str
    spool_dir: str
    records_path: str
    programs_dir: str
    user: bool
    machine: JsonView
    harness: JsonView
    trials: tuple[Trial, ...]
    attempts: Mapping[str, int] = field(default_factory=dict)
    disks: Mapping[str, str] = field(default_factory=dict)
    own_programs: Mapping[str, str] = field(default_factory=dict)
    own_disk: JsonView | None = None

    @property
    def spool(self) -> Path:
        """The memory-backed directory for traces."""
        return Path(self.spool_dir)

    @property
    def programs_folder(self) -> Path:
        """The folder that {programs} stands for."""
        return self.spool / "programs"


def request_to_json(request: RunRequest) -> Json:
    return {**asdict(request), "trials": [trial_to_json(trial) for trial in request.trials]}


def request_from_json(data: JsonView) -> RunRequest:
    return RunRequest(**{**data, "trials": tuple(map(trial_from_json, data["trials"]))})


@dataclass(frozen=True)
class ShellRequest:
    """A request for a shell in a cage. The shell starts in `directory`, whose disk is limited."""

    cage: Cage
    directory: str
    spool_dir: str
    user: bool


class FrameStream:
    """A thread-safe writer of whole frames."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._lock = threading.Lock()

    def _write(self, header: Json, body: bytes = b"") -> None:
        line = json.dumps(header, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            self._out.write(line + body)
            self._hand_over(header)

    def _hand_over(self, _header: Json) -> None:
        self._out.flush()

    def event(self, event: str, **details: Any) -> None:
        """Send a progress event, for display and for the sampling of the outer host."""
        self._write({"frame": "event", "event": event, **details})

    def facts(self, facts: Json) -> None:
        self._write({"frame": "facts", "facts": facts})

    def trace(self, trial_id: str, attempt: int, name: str, path: Path) -> None:
        body = path.read_bytes()
        header = {"frame": "trace", "trial_id": trial_id, "attempt": attempt, "name": name}
        self._write({**header, "length": len(body)}, body)

    def output(self, stream: str, piece: bytes) -> None:
        """Send a piece of a program's output; `stream` is stdout or stderr."""
        self._write({"frame": "output", "stream": stream, "length": len(piece)}, piece)

    def record(self, record: Record) -> None:
        self._write({"frame": "record", "record": record_to_json(record)})


class FileStream(FrameStream):
    """A writer of frames to a file that the controller fetches while it grows.

    The file grows only between trials and is then synced. So neither fetching nor write-back
    disturbs a measured part, and finished trials survive a crash of the host.
    """

    def _hand_over(self, header: Json) -> None:
        if header["frame"] != "trace" and header.get("event") not in _WITHIN_A_TRIAL:
            self._out.flush()
            os.fsync(self._out.fileno())


class AnswerQueue:
    """Answers of the controller, each with its question, so that late answers are recognised.

    Without a controller (`has_controller` is False) no question has an answer.
    """

    def __init__(self, *, has_controller: bool = True) -> None:
        self._has_controller = has_controller
        self._pieces: queue.Queue[tuple[str, bytes]] = queue.Queue()

    def put_line(self, line: bytes) -> None:
        """Add an answer, `{"answers": question, "piece": base64}`; ignore other lines."""
        try:
            answer = json.loads(line)
            piece = str(answer["answers"]), base64.b64decode(answer["piece"], validate=True)
        except (ValueError, LookupError, TypeError):
            return
        self._pieces.put(piece)

    def take(self, question: str, is_over: Callable[[], bool]) -> bytes | None:
        """Wait for the answer to a question; None without a controller or if `is_over`."""
        while self._has_controller and not is_over():
            try:
                answers, piece = self._pieces.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if answers == question:
                return piece
        return None


def ask(stream: FrameStream, inbox: AnswerQueue, event: str, details: JsonView) -> Json:
    """Send a question as an event; return the answer. Raises HostError if refused or silent."""
    question = f"{event}@{time.monotonic_ns()}"
    deadline = time.monotonic() + _ANSWER_SECONDS
    stream.event(event, question=question, **details)
    piece = inbox.take(question, lambda: time.monotonic() > deadline)
    if piece is None:
        reason = "no controller answers that can reach the machine around this guest"
        raise HostError(reason, "use HOST=vm outside a fleet")
    answer: Json = json.loads(piece)
    if "error" in answer:
        raise HostError(answer["error"], answer.get("hint", ""))
    return answer
