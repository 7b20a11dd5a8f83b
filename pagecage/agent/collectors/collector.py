"""The interface of collectors, which record data while a trial runs.

A collector is one module of this package, named after it, with `-` as `_`, where it is found.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pagecage.linux.block_device import Disk
from pagecage.linux.child_processes import ToolProcesses
from pagecage.linux.trial_processes import TrialProcesses
from pagecage.model.json_codec import Json, JsonView
from pagecage.process import Process, wait_until

Figures = Mapping[str, "float | None"]
"""Responses of the measured part by name."""
_START_SECONDS = 5.0


@dataclass(frozen=True)
class CollectorContext:
    """Inputs of a collector: the measured disk, the trial's processes, files, folder and tools.

    `datasets` are the files whose residency is sampled, `files` all of the trial's, and `disks` the
    cage's other disks by name.
    """

    directory: Path
    disk: Disk
    processes: TrialProcesses
    datasets: tuple[Path, ...]
    children: ToolProcesses
    disks: Mapping[str, Disk] = field(default_factory=dict)
    files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class CollectorResult:
    """Result of a collector.

    `reason` explains any status but `ok`; `lost_events` is None if unknown. `status` is `ok`,
    `partial` (events were lost or a file is cut off), `failed` (the tool died) or `missing` (the
    tool was not started). `own` are further keys of a collector of the definition.
    """

    status: str
    reason: str | None = None
    lost_events: int | None = None
    files: tuple[Path, ...] = ()
    own: JsonView = field(default_factory=dict)

    def to_json(self) -> Json:
        common = {"status": self.status, "reason": self.reason, "lost_events": self.lost_events}
        return {**common, **self.own}


class Collector(ABC):
    """A tool that records from before `go` until after `end`. Only stop() reports its failures."""

    name: str

    @abstractmethod
    def start(self) -> None:
        """Start without waiting for the first data."""

    def wait_until_recording(self) -> None:  # noqa: B027 - some have nothing to wait for
        """Return when data arrives, or when the tool has failed."""

    @abstractmethod
    def stop(self) -> CollectorResult: ...

    def report(self, _begin: float, _end: float, /) -> tuple[CollectorResult, Figures] | None:
        """Return the result and the figures of the measured part (CLOCK_MONOTONIC).

        It is called after stop(), whose result stands if this is None.
        """
        return None

    def end(
        self, launched: float | None, measured: tuple[float, float] | None
    ) -> tuple[CollectorResult | None, Figures]:
        """Stop; return the result, None for no entry in the record, and the figures.

        `launched` is the time of the program's launch, None if it never was; `measured` are begin
        and end of the measured part, all by CLOCK_MONOTONIC.
        """
        result = self.stop()
        is_measured = launched is not None and measured is not None
        return (self.report(*measured) if is_measured and measured else None) or (result, {})


def write_rows(path: Path, rows: Iterable[JsonView], *, is_compact: bool = False) -> None:
    separators = (",", ":") if is_compact else None
    path.write_text("".join(json.dumps(row, separators=separators) + "\n" for row in rows))


class ThreadCollector(Collector):
    """A thread that adds rows, which are written to NAME.jsonl at the end."""

    def __init__(self, context: CollectorContext) -> None:
        self._path = context.directory / f"{self.name}.jsonl"
        self._rows: list[Json] = []
        self._error: str | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    @abstractmethod
    def _loop(self) -> None: ...

    def start(self) -> None:
        self._thread.start()

    def _write(self, join_seconds: float, *, is_compact: bool = False) -> None:
        self._ending.set()
        if self._thread.ident:
            self._thread.join(join_seconds)
        write_rows(self._path, self._rows, is_compact=is_compact)


class ToolCollector(Collector):
    """A process that is ended by SIGINT and records once `_file` has its first bytes."""

    tool: str

    def __init__(self, context: CollectorContext, file: str) -> None:
        self._children, self._file = context.children, context.directory / file
        self._process: Process[bytes] | None = None
        self._obstacle: str | None = None

    def wait_until_recording(self) -> None:
        def records_or_ended() -> bool:
            if self._process is None or self._process.poll() is not None:
                return True
            return self._file.exists() and self._file.stat().st_size > 0

        wait_until(records_or_ended, _START_SECONDS)

    def stop(self) -> CollectorResult:
        if self._process is None:
            return CollectorResult("missing", self._obstacle or f"{self.tool} is not installed")
        if self._children.interrupt(self._process) is None:
            return self._dead(f"{self.tool} died while the trial ran")
        return self._completed()

    def _dead(self, reason: str) -> CollectorResult:
        return CollectorResult("failed", reason)

    @abstractmethod
    def _completed(self) -> CollectorResult: ...
