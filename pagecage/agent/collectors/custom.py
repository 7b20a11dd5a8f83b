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
from typing import Any

from pagecage.agent.collectors.collector import (
    Collector,
    CollectorContext,
    CollectorResult,
    Figures,
    write_rows,
)
from pagecage.agent.collectors.custom_output import (
    ArrivedLine,
    CustomEvidence,
    CustomOutput,
    findings,
    status_and_reason,
)
from pagecage.agent.collectors.tracer import first_error
from pagecage.errors import PagecageError
from pagecage.linux.child_processes import session_cpu_seconds
from pagecage.model.collectors import (
    FieldValues,
    OwnCollector,
    field_values,
    fields_of,
    lost_events,
    responses_of,
    script_values,
)
from pagecage.process import PIPE, Process, find_tool, run

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

    def to_json(self) -> dict[str, Any]:
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
        """Write the script with the added probe; return the command that runs it.

        `$1` of the script is the id of the trial's cgroup, 0 without one; `$2` is the kernel's
        number of the measured disk, as tracepoints of the block layer have it.
        """
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

    def _parsed(self, data: Mapping[str, Any], arrived: float) -> FieldValues | None:
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
