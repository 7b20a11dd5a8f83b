"""Progress on standard error: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from pagecage.model.json_codec import JsonView
from pagecage.model.record import Record
from pagecage.planning.time_left import TimeEstimate
from pagecage.terminal import is_quiet
from pagecage.units import format_rate, format_seconds

_MARK = {"ok": "[green]ok[/]", "oom_killed": "[green]killed[/] (out of memory, a valid result)"}


class _Bars:
    """Bars of trials on standard error. Use it as a context manager."""

    def __init__(self, first: TextColumn, *more: TextColumn, shows: bool = True) -> None:
        self._console = Console(stderr=True, highlight=False, emoji=False, quiet=is_quiet())
        is_shown = shows and self._console.is_terminal
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        left = TextColumn("{task.fields[left]}")
        self._bar = Progress(
            first, *columns, left, *more, console=self._console, disable=not is_shown
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def _show(self, event: JsonView, task: TaskID, estimate: TimeEstimate, host: str = "") -> None:
        """Show an event on the bar of its host, and as a line that begins with the host."""
        match event["event"]:
            case "notice":
                self._print(f"{host}{escape(event['text'])}")
            case "trial":
                estimate.begin()
                self._bar.update(task, description=event["trial_id"])
            case "record":
                record = event["record"]
                done = estimate.end(record)
                self._bar.update(task, completed=done, left=estimate.left)
                self._print(f"{host}{estimate.number} {record.trial_id:<32} {describe(record)}")
            case "swept":
                self._print(f"{host}removed a unit of an earlier run: {escape(event['unit'])}")


class RunProgress(_Bars):
    """A campaign's listener that shows its progress."""

    def __init__(self, time_left: TimeEstimate, *, bar: bool = True) -> None:
        super().__init__(TextColumn("{task.description}"), shows=bar)
        self._time, total, done = time_left, time_left.total, time_left.done
        self._task: TaskID = self._bar.add_task("", total=total, completed=done, left="")

    def __call__(self, event: JsonView) -> None:
        match event["event"]:
            case "step":
                self._bar.update(self._task, description=escape(event["text"]))
                if not self._console.is_terminal:
                    self._console.print(f"{escape(event['text'])} ...")
            case "agent_ended":
                self._console.print(
                    f"[yellow]the agent ended with status {event['status']}[/]"
                    f" {escape(event['stderr'])}"
                )
            case _:
                self._show(event, self._task, self._time)


def describe(record: Record) -> str:
    """Return one line about a record: outcome, time, rate and amplification, or the error."""
    response = record.response
    parts = [_MARK.get(record.outcome, f"[yellow]{record.outcome}[/]")]
    seconds, covered = response.get("read_seconds"), response.get("covered_fraction")
    seconds = response.get("wall_seconds" if record.load else "ready_seconds") or seconds
    if record.outcome in ("ok", "timed_out") and seconds is not None:
        partly = f" for {covered:.1%}" if covered is not None and covered < 1 else ""
        parts.append(f"{format_seconds(seconds)}{partly}")
        parts += [f"{name} {value:.6g}" for name, value in (record.load.metrics or {}).items()]
        if rate := response.get("device_read_bytes_per_second"):
            parts.append(f"disk {format_rate(rate)}")
        if more := response.get("amplification"):
            parts.append(f"x{more:.3g} read")
    if record.error:
        parts.append(f"[dim]{record.phase}: {escape(record.error)}[/]")
    return "  ".join(parts)


class FleetProgress(_Bars):
    """A fleet campaign's listener that shows its progress.

    `hosts` maps a host's name to the time left of its trials.
    """

    def __init__(self, hosts: Mapping[str, TimeEstimate]) -> None:
        super().__init__(TextColumn("{task.fields[host]}"), TextColumn("{task.description}"))
        self._width = max(map(len, hosts), default=0)
        self._rows: dict[str, tuple[TaskID, TimeEstimate]] = {}
        for host, one in hosts.items():
            name = f"{host:<{self._width}}"
            task = self._bar.add_task("", total=one.total, completed=one.done, host=name, left="")
            self._rows[host] = task, one

    def __call__(self, host: str, event: JsonView) -> None:
        kind = "notice" if event["event"] == "step" else event["event"]
        self._show({**event, "event": kind}, *self._rows[host], f"{host:<{self._width}} ")
        if kind == "record":
            self._bar.update(self._rows[host][0], description="")
