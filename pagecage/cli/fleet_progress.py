"""Progress of a fleet run on standard error: a bar a host where there is a terminal, a line a trial elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from pagecage.cli.progress import Pace, describe
from pagecage.record import Record


class FleetProgress:
    """Listens to a fleet campaign and shows it; a context manager, so that the terminal is always left clean.

    `hosts` gives by name how many trials a host has and how many have their answer; `trial_seconds` is a first guess.
    """

    def __init__(self, hosts: Mapping[str, tuple[int, int]], trial_seconds: float) -> None:
        self._console = Console(stderr=True, highlight=False, emoji=False)
        self._width = max(map(len, hosts), default=0)
        self._bar = Progress(
            TextColumn("{task.fields[host]}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"), TextColumn("{task.description}"), console=self._console,
            disable=not self._console.is_terminal,
        )  # fmt: skip
        self._tasks: dict[str, TaskID] = {
            host: self._bar.add_task("", total=total, completed=done, host=f"{host:<{self._width}}", left="")
            for host, (total, done) in hosts.items()
        }
        self._paces = {host: Pace(total, done, trial_seconds) for host, (total, done) in hosts.items()}

    def __enter__(self) -> FleetProgress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    def __call__(self, host: str, event: Mapping[str, Any]) -> None:
        """Take one event of one host."""
        match event["event"]:
            case "step":
                self._console.print(f"{host:<{self._width}} {escape(event['text'])}", soft_wrap=True)
            case "trial":
                self._paces[host].begin()
                self._bar.update(self._tasks[host], description=event["trial_id"])
            case "record":
                self._record(host, event["record"])
            case "swept":
                self._console.print(f"{host:<{self._width}} removed what an earlier run left: {escape(event['unit'])}")

    def _record(self, host: str, record: Record) -> None:
        pace = self._paces[host]
        done = pace.end(is_final=record.is_final)
        self._bar.update(self._tasks[host], completed=done, left=pace.left, description="")
        line = f"{host:<{self._width}} {pace.number} {record.trial_id:<32} {describe(record)}"
        self._console.print(line, soft_wrap=True)
