"""Collectors that a definition brings along: a program, or a script of bpftrace."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult
from pagecage.agent.collectors.custom_output import (
    ArrivedLine,
    OwnEvidence,
    OwnOutput,
    findings,
    status_and_reason,
    write_trace,
)
from pagecage.agent.collectors.tracer import first_error
from pagecage.errors import PagecageError
from pagecage.linux.child_processes import ToolProcesses, session_cpu_seconds
from pagecage.model.collectors import (
    FieldValues,
    OwnCollector,
    field_values,
    fields_of,
    lost_events,
    responses_of,
    script_values,
)
from pagecage.process import PIPE, Completed, Process, find_tool, run

_LOG_TAIL_BYTES = 10_000


class OwnProcess:
    """A collector's process, with its output and the last line of its standard error.

    `obstacle` is the reason why it was not started, or None.
    """

    def __init__(self, children: ToolProcesses, log: Path) -> None:
        self._children, self._log = children, log
        self._process: Process[bytes] | None = None
        self._cpu: tuple[int, ...] = ()
        self.output: OwnOutput | None = None
        self.obstacle: str | None = None
        self.started_at = 0.0
        self.stopped_at: float | None = None
        self.status: int | None = None
        self.cpu_seconds: float | None = None

    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPU that it was started on; empty if the host has only one."""
        return self._cpu

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], directory: Path | None = None
    ) -> None:
        """Start the program on the last CPU, in a session of its own."""
        self.started_at = time.monotonic()
        try:
            with self._log.open("wb") as log, _on_last_cpu() as self._cpu:
                self._process = self._children.start(
                    argv, stdout=PIPE, stderr=log, env=env, cwd=directory
                )
        except (PagecageError, OSError) as error:
            self.obstacle = getattr(error, "message", None) or str(error)
            return
        self.output = OwnOutput(_stdout(self._process), self._end_flood)

    def stop(self, signal_number: int, seconds: float) -> None:
        """End it by a signal, with all that it started, and kill it if that takes too long.

        Its status is that of before the signal, or None.
        """
        if self._process is None or self.output is None or self.stopped_at is not None:
            return
        self.cpu_seconds = session_cpu_seconds(self._process.pid)
        self.stopped_at = time.monotonic()
        self.status = self._children.end_session(self._process, signal_number, seconds)
        self.output.join(5.0)

    @property
    def was_running(self) -> bool:
        """True if it ran until it was stopped."""
        return self._process is not None and self.status is None

    @property
    def was_killed(self) -> bool:
        """True if it ran until it was stopped, and did not end by itself then."""
        process = self._process
        return self.was_running and process is not None and process.poll() == -signal.SIGKILL

    def last_error_line(self) -> str | None:
        """Return the last line of its standard error; None without one."""
        with suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
            return lines[-1].strip() if lines else None
        return None

    def _end_flood(self) -> None:
        """Kill it from the thread that reads its output."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _stdout(process: Process[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout


@contextmanager
def _on_last_cpu() -> Iterator[tuple[int, ...]]:
    """Yield the last CPU, on which this thread starts processes meanwhile; () if there is one."""
    allowed = os.sched_getaffinity(0)
    last = tuple(sorted(allowed)[-1:]) if len(allowed) > 1 else ()
    if last:
        os.sched_setaffinity(0, last)
    try:
        yield last
    finally:
        if last:
            os.sched_setaffinity(0, allowed)


TICK = b"PAGECAGE_TICK"
"""The text of the added probe's line."""
_ADDED = f'\ninterval:ms:250 {{ printf("{TICK.decode()}\\n"); }}\n'
_IN_CGROUP = re.compile(r"\bcgroup\s*==\s*\$1(?!\d)")
# bpftrace 0.17 resolves the last structure of so long a chain only if it is named by a cast.
_NODE = "((struct task_struct *)curtask)->cgroups->dfl_cgrp->self.parent->cgroup->kn"
_PARENT = f"((struct kernfs_node *){_NODE})->id"
_IN_TRIAL = f"(cgroup == $1 || {_PARENT} == $1)"
"""Programs run in a scope below the trial's slice, which does not exist before they start."""
_CHECK_SECONDS = 120.0
_MINOR_BITS = 20


def script_command(script: str, context: CollectorContext) -> tuple[list[str], str | None]:
    """Return the command that runs a script, and the reason why it cannot be run, or None.

    `$1` of the script is the id of the trial's cgroup, 0 without one; `$2` is the kernel's number
    of the measured disk, as tracepoints of the block layer have it.
    """
    if not find_tool("bpftrace"):
        return [], "bpftrace is not installed"
    path = context.directory / Path(script).name
    path.write_text(with_trial_filter(Path(script).read_text()) + _ADDED)
    cgroup = context.processes.cgroup
    cgroup_id = cgroup.identity() if cgroup else None
    numbers = [str(cgroup_id or 0), str(_device_number(context.disk.maj_min))]
    return ["bpftrace", "-f", "json", str(path), *numbers], None


def with_trial_filter(text: str) -> str:
    """Return a script whose `cgroup == $1` also holds one level below the trial's cgroup."""
    return _IN_CGROUP.sub(lambda _: _IN_TRIAL, text)


def is_tick(line: ArrivedLine) -> bool:
    """Return whether a line is the added probe's."""
    data = line.data or {}
    return data.get("type") == "printf" and str(data.get("data")).strip() == TICK.decode()


def check_script(script: Path) -> str | None:
    """Return bpftrace's first error about a script, with its place; None if it can be attached.

    All probes are attached and detached again. Raises nothing: a check that takes too long fails.
    """
    try:
        done = _dry_run("--dry-run", script)
        if "unrecognized option" in done.stderr:  # before 0.19, -d did not attach
            done = _dry_run("-d", script)
    except PagecageError as error:
        return error.message
    return None if done.ok else first_error(done.stderr or done.stdout)


def _dry_run(option: str, script: Path) -> Completed:
    with TemporaryDirectory(prefix="pagecage-script-") as folder:
        path = Path(folder, script.name)
        path.write_text(with_trial_filter(script.read_text()))
        argv = ["bpftrace", option, str(path), "0", "0"]
        return run(argv, check=False, timeout_seconds=_CHECK_SECONDS)


def _device_number(maj_min: str) -> int:
    major, _, minor = maj_min.partition(":")
    return int(major) << _MINOR_BITS | int(minor)


STOP_SECONDS = 5.0
SCRIPT_STOP_SECONDS = 30.0
"""bpftrace detaches its probes before it prints its maps, which takes an emulated CPU seconds."""


@dataclass(frozen=True)
class OwnFigures:
    """The keys of the record that only a collector of the definition has (docs/FORMAT.md)."""

    required: bool
    start_monotonic_seconds: float
    seconds: float | None
    cpu_seconds: float | None
    cpus: tuple[int, ...] = ()
    lines: int = 0
    gaps: int = 0
    fields: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the keys as JSON data."""
        return {**vars(self), "cpus": list(self.cpus), "fields": list(self.fields)}


class OwnCollectorProcess:
    """One collector of the definition in one trial.

    It runs outside of the cage, on the last CPU of a host with several. `argv` is its command with
    the places filled in; of a script, its path.
    """

    def __init__(
        self,
        spec: OwnCollector,
        argv: Sequence[str],
        context: CollectorContext,
        environment: Mapping[str, str],
    ) -> None:
        self.name, self._spec = spec.name, spec
        self._argv, self._context, self._environment = argv, context, environment
        self._lines: list[ArrivedLine] = []
        self._trace = context.directory / f"{spec.name}.jsonl"
        self._process = OwnProcess(context.children, context.directory / f"{spec.name}.stderr")

    def start(self) -> None:
        """Start the program, or bpftrace with the script."""
        argv = list(self._argv)
        if self._spec.is_script:
            argv, obstacle = script_command(self._argv[0], self._context)
            if obstacle:
                self._process.obstacle = obstacle
                return
        directory = Path(self._spec.directory) if self._spec.directory else None
        self._process.start(argv, self._environment, directory)

    def wait_until_recording(self) -> None:
        """Wait for the first line; of a script, until all of its probes are attached."""
        if self._process.output is None:
            return
        mark = TICK if self._spec.is_script else b""
        self._process.output.wait_for(mark, self._spec.start_timeout_seconds)

    def stop(self) -> CollectorResult:
        """End the program. Its data are judged by report(), when the measured part is known."""
        if self._spec.is_script:
            self._process.stop(signal.SIGINT, SCRIPT_STOP_SECONDS)
        else:
            self._process.stop(signal.SIGTERM, STOP_SECONDS)
        if self._process.output is None:
            return self._result("missing", self._process.obstacle or "it was not started")
        self._lines = [line for line in self._process.output.lines() if not is_tick(line)]
        write_trace(self._lines, self._trace)
        return self._result("partial", "the trial has no measured part", self._trace)

    def report(self, begin: float, end: float) -> tuple[CollectorResult, dict[str, float | None]]:
        """Return the result and the responses of the measured part (CLOCK_MONOTONIC)."""
        process = self._process
        if process.output is None:
            return self._result("missing", process.obstacle), {}
        lines, values = self._lines, self._values(self._lines)
        evidence = OwnEvidence(
            self._spec,
            lines,
            values,
            begin,
            self._end_of_data(end),
            None if process.was_running else process.status,
            process.output.ended_at,
            process.last_error_line(),
            process.output.is_flood,
            process.was_killed and self._spec.is_script,
            sum(lost_events(line.data) for line in lines if line.data)
            if self._spec.is_script
            else 0,
        )
        status, reason = status_and_reason(findings(evidence))
        lost = evidence.lost_events if self._spec.is_script else None
        counts = {"lines": len(lines), "gaps": len(evidence.gaps()), "fields": fields_of(values)}
        result = self._result(status, reason, self._trace, lost, **counts)
        return result, responses_of(self.name, values, begin, self._end_of_data(end))

    def _end_of_data(self, end: float) -> float:
        """Return the end of the measured part, or the exit of a script, which prints its maps."""
        return (
            self._process.output.ended_at or end
            if self._spec.is_script and self._process.output
            else end
        )

    def _values(self, lines: Sequence[ArrivedLine]) -> list[FieldValues]:
        found = (self._parsed(line) for line in lines)
        return [one for one in found if one is not None and one.values]

    def _parsed(self, line: ArrivedLine) -> FieldValues | None:
        if line.data is None:
            return None
        if self._spec.is_script:
            return script_values(line.data, line.arrived)
        return field_values(line.data, line.arrived, self._process.started_at)

    def _result(
        self,
        status: str,
        reason: str | None,
        file: Path | None = None,
        lost: int | None = None,
        **figures: Any,
    ) -> CollectorResult:
        process = self._process
        seconds = None if process.stopped_at is None else process.stopped_at - process.started_at
        own = OwnFigures(
            self._spec.required,
            process.started_at,
            seconds,
            process.cpu_seconds,
            process.cpus,
            **figures,
        )
        return CollectorResult(status, reason, lost, (file,) if file else (), own.to_json())
