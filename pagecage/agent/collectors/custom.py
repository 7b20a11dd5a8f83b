"""Collectors that a definition brings along: a program, or a script of bpftrace; their data."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pagecage.agent.collectors.collector import (
    Collector,
    CollectorContext,
    CollectorResult,
    Figures,
    write_rows,
)
from pagecage.agent.collectors.tracer import first_error
from pagecage.errors import PagecageError
from pagecage.linux.child_processes import session_cpu_seconds
from pagecage.model.collectors import (
    MOST_FIELDS,
    FieldValues,
    LineError,
    OwnCollector,
    field_values,
    fields_of,
    gaps,
    lost_events,
    parse_line,
    responses_of,
    script_values,
)
from pagecage.model.json_codec import Json, JsonView
from pagecage.process import PIPE, Process, find_tool, run
from pagecage.units import MIB, format_bytes, format_seconds

MOST_BYTES = 16 * MIB
"""Output after which a collector is ended, since reading more would disturb the trial."""
MOST_LINES = 100_000
"""Lines after which it is ended likewise. They are parsed when the trial is over."""
MOST_LINE_BYTES = 64 * 1024
"""A longer line is cut into pieces, none of which is a JSON object."""


@dataclass(frozen=True)
class ArrivedLine:
    """A line and its arrival (CLOCK_MONOTONIC); `data` is None if it is not a JSON object."""

    arrived: float
    text: str
    data: Json | None
    reason: str | None = None

    def to_json(self) -> Json:
        kept = {"text": self.text} if self.data is None else {"line": self.data}
        return {"arrived": self.arrived, **kept}


class CustomOutput:
    """A thread that reads a process's output to its end or to the bound.

    `on_flood` is called once, by the thread, when the bound is exceeded. What follows is dropped.
    """

    def __init__(self, process: Process[bytes], on_flood: Callable[[], None]) -> None:
        self._process, self._on_flood = process, on_flood
        self._lines: list[tuple[float, bytes]] = []
        self._changed = threading.Condition()
        self.is_flood = False
        self.ended_at: float | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def lines(self) -> Iterator[ArrivedLine]:
        with self._changed:
            raw = list(self._lines)
        for arrived, line in raw:
            if text := line.decode(errors="replace").strip():
                try:
                    yield ArrivedLine(arrived, text, parse_line(text))
                except LineError as error:
                    yield ArrivedLine(arrived, text, None, str(error))

    def wait_for(self, mark: bytes, seconds: float) -> None:
        """Wait for a line that contains `mark`, or for the end of the output or of the time."""
        seen = 0

        def is_seen() -> bool:
            nonlocal seen
            new, seen = self._lines[seen:], len(self._lines)
            return self.ended_at is not None or any(mark in line for _, line in new)

        with self._changed:
            self._changed.wait_for(is_seen, seconds)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _read(self) -> None:
        left, number = MOST_BYTES, 0
        assert self._process.stdout is not None
        with open(self._process.stdout.fileno(), "rb", closefd=False) as buffered:
            while raw := buffered.readline(MOST_LINE_BYTES):
                left, number = left - len(raw), number + 1
                if left < 0 or number > MOST_LINES:
                    self.is_flood = True
                    self._on_flood()
                    break
                with self._changed:
                    self._lines.append((time.monotonic(), raw))
                    self._changed.notify_all()
        with self._changed:
            self.ended_at = time.monotonic()
            self._changed.notify_all()


_WORST_FIRST = ("missing", "failed", "partial", "ok")
Finding = tuple[str, str]
"""A status and a clause about the collector, `it` in the sentence."""


@dataclass(frozen=True)
class CustomEvidence:
    """Everything that is known about the data of one collector in one trial.

    `lines` are as they arrived, `values` those that have numbers. `begin` and `end` are those of
    the measured part in CLOCK_MONOTONIC. `status` is that with which it ended by itself, at
    `ended_at`; None if it ran until it was stopped. A script `lacks_totals` if it had to be killed
    before it printed its maps.
    """

    spec: OwnCollector
    lines: Sequence[ArrivedLine]
    values: Sequence[FieldValues]
    begin: float
    end: float
    status: int | None = None
    ended_at: float | None = None
    last_error_line: str | None = None
    is_flood: bool = False
    lacks_totals: bool = False
    lost_events: int = 0

    def gaps(self) -> list[float]:
        """Return the silences of the measured part that are too long, in seconds.

        The end of a collector is a finding of its own, and so is a late first line.
        """
        times = [one.t for one in self.values]
        last = self.end if self.ended_at is None else min(self.end, self.ended_at)
        first = max(self.begin, min(times, default=self.begin))
        return gaps(times, first, max(first, last), self.spec.period_seconds)


def findings(evidence: CustomEvidence) -> list[Finding]:
    found = [*_end(evidence)]
    return found + (_no_lines(evidence) or [*_lines(evidence), *_times(evidence)])


def status_and_reason(found: Sequence[Finding]) -> tuple[str, str | None]:
    if not found:
        return "ok", None
    status = min((status for status, _ in found), key=_WORST_FIRST.index)
    return status, "; ".join(clause for _, clause in found)


def _end(evidence: CustomEvidence) -> Iterator[Finding]:
    if evidence.is_flood:
        most = f"{format_bytes(MOST_BYTES)} or {MOST_LINES} lines of output"
        yield "partial", f"it was ended after {most}"
    elif evidence.lacks_totals:
        yield "partial", "bpftrace did not end by itself, so that it did not print its maps"
    elif evidence.status is not None and _is_early(evidence):
        told = f": {evidence.last_error_line}" if evidence.last_error_line else ""
        before = f"{format_seconds(evidence.end - (evidence.ended_at or evidence.end))} before"
        status = evidence.status
        if status == 0:
            yield "partial", f"it ended {before} the measured part did{told}"
        else:
            by_signal, by_itself = f"was killed by signal {-status}", f"failed with status {status}"
            death = by_signal if status < 0 else by_itself
            yield "failed", f"it {death}, {before} the measured part ended{told}"


def _is_early(evidence: CustomEvidence) -> bool:
    return evidence.ended_at is not None and evidence.ended_at < evidence.end


def _no_lines(evidence: CustomEvidence) -> list[Finding]:
    if evidence.values:
        return []
    if not evidence.lines:
        told = evidence.last_error_line if not _is_early(evidence) else None
        return [("failed", f"it printed no line{f': {told}' if told else ''}")]
    if evidence.spec.is_script:
        return [("failed", "it printed neither a map nor an object with numbers")]
    first, count = evidence.lines[0], len(evidence.lines)
    none = f"none of its {count} lines is a JSON object with a number"
    return [("failed", f"{none}, the first is {first.reason or first.text[:60]!r}")]


def _lines(evidence: CustomEvidence) -> Iterator[Finding]:
    bad = [line for line in evidence.lines if line.data is None]
    if bad and not evidence.spec.is_script:
        which = f"{len(bad)} of its {len(evidence.lines)} lines"
        yield "partial", f"{which} are not JSON objects, the first is {bad[0].reason}"
    if evidence.lost_events:
        yield "partial", f"bpftrace lost {evidence.lost_events} events"
    if (count := len(fields_of(evidence.values))) > MOST_FIELDS:
        fields = f"{count} fields, of which only the first {MOST_FIELDS} become responses"
        yield "partial", f"it has {fields}"


def _times(evidence: CustomEvidence) -> Iterator[Finding]:
    wrong = sum(one.has_wrong_time for one in evidence.values)
    if wrong:
        why = "is not a time of CLOCK_MONOTONIC, so that the time of arrival counts"
        yield "partial", f"`t` of {wrong} lines {why}"
    first = min(one.t for one in evidence.values)
    within = [one for one in evidence.values if evidence.begin <= one.t <= evidence.end]
    if not within:
        seconds = format_seconds(evidence.end - evidence.begin)
        yield "failed", f"none of its lines is in the measured part of {seconds}"
    elif evidence.spec.period_seconds and first > evidence.begin + evidence.spec.period_seconds:
        late = format_seconds(first - evidence.begin)
        yield "partial", f"its first line came {late} after the measured part had begun"
    if silences := evidence.gaps():
        count = "a silence" if len(silences) == 1 else f"{len(silences)} silences"
        least = f"{evidence.spec.period_seconds + 1:g} s"
        yield "partial", f"it has {count} of over {least}, up to {max(silences):.1f} s"


_LOG_TAIL_BYTES = 10_000
TICK = b"PAGECAGE_TICK"
"""The text of the line of a probe that is added to each script."""
_ADDED = f'\ninterval:ms:250 {{ printf("{TICK.decode()}\\n"); }}\n'
_IN_CGROUP = re.compile(r"\bcgroup\s*==\s*\$1(?!\d)")
# bpftrace 0.17 resolves the last structure of so long a chain only if it is named by a cast.
_NODE = "((struct task_struct *)curtask)->cgroups->dfl_cgrp->self.parent->cgroup->kn"
_PARENT = f"((struct kernfs_node *){_NODE})->id"
_IN_TRIAL = f"(cgroup == $1 || {_PARENT} == $1)"
"""Programs run in a scope below the trial's slice, which does not exist before they start."""
_CHECK_SECONDS = 120.0
_MINOR_BITS = 20
STOP_SECONDS = 5.0
SCRIPT_STOP_SECONDS = 30.0
"""bpftrace detaches its probes before it prints its maps, which takes an emulated CPU seconds."""


def with_trial_filter(text: str) -> str:
    """Return a script whose `cgroup == $1` also holds one level below the trial's cgroup."""
    return _IN_CGROUP.sub(lambda _: _IN_TRIAL, text)


def check_script(script: Path) -> str | None:
    """Return bpftrace's first error about a script, with its place; None if it can be attached.

    All probes are attached and detached again. Raises nothing: a check that takes too long fails.
    """
    with TemporaryDirectory(prefix="pagecage-script-") as folder:
        path = Path(folder, script.name)
        path.write_text(with_trial_filter(script.read_text()))
        try:
            for option in ("--dry-run", "-d"):  # before 0.19, -d did not attach
                argv = ["bpftrace", option, str(path), "0", "0"]
                done = run(argv, check=False, timeout_seconds=_CHECK_SECONDS)
                if "unrecognized option" not in done.stderr:
                    break
        except PagecageError as error:
            return error.message
    return None if done.ok else first_error(done.stderr or done.stdout)


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


@dataclass(frozen=True)
class CustomFigures:
    """The keys of the record that only a collector of the definition has (docs/FORMAT.md)."""

    required: bool
    start_monotonic_seconds: float
    seconds: float | None
    cpu_seconds: float | None
    cpus: tuple[int, ...] = ()
    lines: int = 0
    gaps: int = 0
    fields: tuple[str, ...] = ()

    def to_json(self) -> Json:
        return {**vars(self), "cpus": list(self.cpus), "fields": list(self.fields)}


class CustomCollector(Collector):
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
        self._log = context.directory / f"{spec.name}.stderr"
        self._process: Process[bytes] | None = None
        self._output: CustomOutput | None = None
        self._obstacle: str | None = None
        self._cpus: tuple[int, ...] = ()
        self._started_at = 0.0
        self._stopped_at: float | None = None
        self._status: int | None = None
        self._cpu_seconds: float | None = None

    def start(self) -> None:
        if self._spec.is_script and not find_tool("bpftrace"):
            self._obstacle = "bpftrace is not installed"
            return
        argv = self._script_command() if self._spec.is_script else list(self._argv)
        directory = Path(self._spec.directory) if self._spec.directory else None
        self._started_at = time.monotonic()
        try:
            with self._log.open("wb") as log, _on_last_cpu() as self._cpus:
                self._process = self._context.children.start(
                    argv, stdout=PIPE, stderr=log, env=self._environment, cwd=directory
                )
        except (PagecageError, OSError) as error:
            self._obstacle = getattr(error, "message", None) or str(error)
            return
        self._output = CustomOutput(self._process, self._end_flood)

    def _script_command(self) -> list[str]:
        """Write the script with its tick; `$1` is the cgroup's id or 0, `$2` the disk's number."""
        script, context = Path(self._argv[0]), self._context
        path = context.directory / script.name
        path.write_text(with_trial_filter(script.read_text()) + _ADDED)
        cgroup = context.processes.cgroup
        cgroup_id = cgroup.identity() if cgroup else None
        major, minor = map(int, context.disk.maj_min.split(":"))
        numbers = [str(cgroup_id or 0), str(major << _MINOR_BITS | minor)]
        return ["bpftrace", "-f", "json", str(path), *numbers]

    def wait_until_recording(self) -> None:
        """Wait for the first line; of a script, until all of its probes are attached."""
        if self._output is not None:
            mark = TICK if self._spec.is_script else b""
            self._output.wait_for(mark, self._spec.start_timeout_seconds)

    def stop(self) -> CollectorResult:
        """End the program. Its data are judged by report(), when the measured part is known."""
        if self._process is None or self._output is None:
            return self._result("missing", self._obstacle or "it was not started")
        if self._stopped_at is None:
            is_script = self._spec.is_script
            number = signal.SIGINT if is_script else signal.SIGTERM
            seconds = SCRIPT_STOP_SECONDS if is_script else STOP_SECONDS
            self._cpu_seconds = session_cpu_seconds(self._process.pid)
            self._stopped_at = time.monotonic()
            self._status = self._context.children.end_session(self._process, number, seconds)
            self._output.join(5.0)
        self._lines = [line for line in self._output.lines() if not _is_tick(line)]
        write_rows(self._trace, (line.to_json() for line in self._lines), is_compact=True)
        return self._result("partial", "the trial has no measured part", self._trace)

    def report(self, begin: float, end: float, /) -> tuple[CollectorResult, Figures]:
        process, output, spec, lines = self._process, self._output, self._spec, self._lines
        if process is None or output is None:
            return self._result("missing", self._obstacle), {}
        found = [self._parsed(line.data, line.arrived) for line in lines if line.data is not None]
        values = [one for one in found if one is not None and one.values]
        # A script's data end with its exit, because it prints its maps then.
        end = output.ended_at or end if spec.is_script else end
        lost = sum(lost_events(line.data) for line in lines if line.data) if spec.is_script else 0
        evidence = CustomEvidence(
            spec,
            lines,
            values,
            begin,
            end,
            self._status,
            output.ended_at,
            self._last_error_line(),
            output.is_flood,
            self._status is None and process.poll() == -signal.SIGKILL and spec.is_script,
            lost,
        )
        status, reason = status_and_reason(findings(evidence))
        counts = {"lines": len(lines), "gaps": len(evidence.gaps()), "fields": fields_of(values)}
        counted = lost if spec.is_script else None
        result = self._result(status, reason, self._trace, counted, **counts)
        return result, responses_of(self.name, values, begin, end)

    def _parsed(self, data: JsonView, arrived: float) -> FieldValues | None:
        if self._spec.is_script:
            return script_values(data, arrived)
        return field_values(data, arrived, self._started_at)

    def _last_error_line(self) -> str | None:
        with suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
            return lines[-1].strip() if lines else None
        return None

    def _end_flood(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _result(
        self,
        status: str,
        reason: str | None,
        file: Path | None = None,
        lost: int | None = None,
        **figures: Any,
    ) -> CollectorResult:
        own = CustomFigures(
            self._spec.required,
            self._started_at,
            None if self._stopped_at is None else self._stopped_at - self._started_at,
            self._cpu_seconds,
            self._cpus,
            **figures,
        )
        return CollectorResult(status, reason, lost, (file,) if file else (), own.to_json())


def _is_tick(line: ArrivedLine) -> bool:
    data = line.data or {}
    return data.get("type") == "printf" and str(data.get("data")).strip() == TICK.decode()
