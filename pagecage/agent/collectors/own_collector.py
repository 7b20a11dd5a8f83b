"""A collector of the definition: any program that prints JSON lines, or a bpftrace script."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult
from pagecage.agent.collectors.own_findings import OwnEvidence, findings, status_and_reason
from pagecage.agent.collectors.own_output import ArrivedLine, write_trace
from pagecage.agent.collectors.own_process import OwnProcess
from pagecage.agent.collectors.own_scripts import TICK, is_tick, script_command
from pagecage.model.collectors.lines import (
    FieldValues,
    field_values,
    fields_of,
    lost_events,
    responses_of,
    script_values,
)
from pagecage.model.collectors.spec import OwnCollector

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
