"""Runs what a plan still lacks: brings the host to its state, hands trials to the agent, keeps what comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from pagecage.agent.request import Request, request_to_json
from pagecage.errors import HostError, PagecageError
from pagecage.hosts.host import Host, HostNeed, MachineState
from pagecage.hosts.kit import Kit
from pagecage.plan import Plan, blocks
from pagecage.process import PIPE, Process, TimeoutExpired, spawn
from pagecage.record import record_from_json
from pagecage.runs import RunFolder
from pagecage.trial import Trial
from pagecage.units import GIB, MIB

Listener = Callable[[Mapping[str, Any]], None]
"""Called with every event: {"event": "step" | "trial" | "phase" | "record" | ..., ...}."""

_MIN_MEMORY_BYTES = 2 * GIB
_MEMORY_BESIDE_DATASET_BYTES = 3 * GIB // 2
_SPARE_DATA_BYTES = 512 * MIB
_FAREWELL_SECONDS = 60.0
_TRIES = 3


@dataclass(frozen=True)
class Summary:
    """How many trials of the plan have their answer, and how many lack one."""

    answered: int
    lacking: int


def need_of(plan: Plan) -> HostNeed:
    """Memory and disk that the plan asks of a host: room for every distinct dataset, and for one of them in memory."""
    sizes = {t.dataset.file_name: t.dataset.size_bytes for t in plan.trials if t.dataset}
    largest = max(sizes.values(), default=0)
    memory = max(_MIN_MEMORY_BYTES, -(-(largest + _MEMORY_BESIDE_DATASET_BYTES) // (256 * MIB)) * 256 * MIB)
    return HostNeed(memory, sum(sizes.values()) + _SPARE_DATA_BYTES)


class Campaign:
    """One run of a plan on one host. `run` may be called for a plan that is already partly done."""

    def __init__(self, host: Host, plan: Plan, folder: RunFolder, kit: Kit, listener: Listener) -> None:
        self._host, self._plan, self._folder, self._kit, self._listener = host, plan, folder, kit, listener
        self._state: MachineState | None = None
        self._broke = False

    def run(self) -> Summary:
        """Run all trials without an answer; a host that dies is started again, a trial is tried three times at most."""
        try:
            self._host.prepare(need_of(self._plan), lambda text: self._listener({"event": "step", "text": text}))
            for _ in range(_TRIES):
                for group in blocks(self._folder.remaining(self._plan), self._plan.document["fresh"]):
                    self._serve(group, self._machine_state())
        finally:
            self._host.stop()
        lacking = len(self._folder.remaining(self._plan))
        return Summary(len(self._plan.trials) - lacking, lacking)

    def _machine_state(self) -> MachineState:
        """The state for the next group: the first start, the same again, or a fresh one where the plan asks for it."""
        if self._state is not None and self._plan.document["fresh"] not in ("block", "trial") and not self._broke:
            return self._state
        self._listener({"event": "step", "text": "starting the host" if self._state is None else "starting it afresh"})
        self._state = self._host.start() if self._state is None else self._host.restart()
        self._broke = False
        self._host.push([self._kit.agent], self._host.spool_dir)
        self._host.push(self._kit.programs, f"{self._host.spool_dir}/bin")
        return self._state

    def _serve(self, group: tuple[Trial, ...], state: MachineState) -> None:
        argv = self._host.command(["python3", f"{self._host.spool_dir}/agent.pyz", "run"])
        process = spawn(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, new_session=True)
        try:
            self._send(process, self._request(group, state))
            self._receive(process, state)
        except KeyboardInterrupt:
            self._listener({"event": "step", "text": "ending the trial at hand"})
            _close(process.stdin)
            self._receive(process, state)
            raise
        finally:
            _close(process.stdin)
            self._wait(process)

    def _request(self, group: tuple[Trial, ...], state: MachineState) -> Request:
        harness = {k: self._plan.document["harness"][k] for k in ("version", "git_revision")}
        return Request(
            run_id=self._plan.run_id, plan_sha256=self._plan.sha256, host=self._host.name,
            data_dir=self._host.data_dir, spool_dir=self._host.spool_dir,
            records_path=f"{self._host.spool_dir}/{self._plan.run_id}.jsonl",
            programs_dir=f"{self._host.spool_dir}/bin", user=self._host.user, machine=vars(state),
            harness={**harness, "agent_sha256": self._kit.agent_sha256}, trials=group,
            attempts=self._folder.next_attempts(),
        )  # fmt: skip

    def _send(self, process: Process[bytes], request: Request) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it died at once; what it printed tells why
            process.stdin.write(json.dumps(request_to_json(request)).encode() + b"\n")

    def _receive(self, process: Process[bytes], state: MachineState) -> None:
        assert process.stdout is not None
        traces: dict[str, str] = {}
        outer: dict[str, Any] = {}
        for frame, body in frames(process.stdout):
            match frame["frame"]:
                case "event":
                    self._take_event(frame, outer)
                case "facts":
                    self._folder.add_facts(frame["facts"], state.restore_seq)
                case "trace":
                    path = self._folder.trace_path(frame["trial_id"], frame["attempt"], frame["name"])
                    path.write_bytes(body)
                    traces[Path(frame["name"]).stem] = path.relative_to(self._folder.path).as_posix()
                case "record":
                    self._take_record(frame["record"], traces, outer)
                    traces, outer = {}, {}

    def _take_event(self, frame: dict[str, Any], outer: dict[str, Any]) -> None:
        if frame["event"] in ("go", "end"):
            outer["before" if frame["event"] == "go" else "after"] = self._host.outer_sample()
        if frame["event"] == "error":
            raise HostError(frame["message"], frame["hint"])
        self._listener(frame)

    def _take_record(self, data: dict[str, Any], traces: dict[str, str], outer: dict[str, Any]) -> None:
        around = outer if outer.get("before") else None
        record = replace(record_from_json(data), traces=traces, outer_host=around)
        self._folder.append(record)
        self._listener({"event": "record", "record": record})

    def _wait(self, process: Process[bytes]) -> None:
        try:
            status = process.wait(_FAREWELL_SECONDS)
        except TimeoutExpired:
            process.kill()
            status = process.wait()
        if status != 0:
            self._broke = True
            said = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
            self._listener({"event": "agent_ended", "status": status, "said": said})


def frames(pipe: IO[bytes]) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Whole frames until the stream ends; a frame cut off by the sender's death is dropped."""
    buffered = open(pipe.fileno(), "rb", closefd=False)  # noqa: SIM115 - the pipe is the caller's to close
    while line := buffered.readline():
        try:
            frame = json.loads(line)
        except ValueError:
            return
        length = frame.get("length", 0)
        body = buffered.read(length)
        if len(body) < length:
            return
        yield frame, body


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with suppress(BrokenPipeError):
            pipe.close()


def check_memory_floor(plan: Plan) -> None:
    """Refuse, before anything starts, a cage smaller than what its workload needs."""
    for trial in plan.trials:
        limit = trial.cage.properties.get("MemoryMax")
        if limit is not None and limit < trial.workload.min_memory_bytes:
            raise PagecageError(
                f"cgroups/{trial.cage.name}.toml: MemoryMax is {limit} bytes at this size, and "
                f"{trial.workload.program} needs {trial.workload.min_memory_bytes}",
                "choose a larger SIZE or another CAGE",
            )
