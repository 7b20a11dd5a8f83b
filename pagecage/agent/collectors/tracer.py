"""A bpftrace process per machine state, which counts in kernel maps and prints them every 0.25 s.

Attaching takes seconds, so the trials of a machine state share one process. A printf per event
would cost 40 %, so the kernel counts. Maps are never cleared, because events between print and
clear would be lost: each tick prints running totals, and a trial takes the ticks around its
measured part. bpftrace counts as attached at the first tick, because it prints its banner before
that.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.agent.collectors.collector import CollectorResult
from pagecage.agent.system.child_processes import ToolProcesses
from pagecage.process import PIPE, STDOUT, Process, find_tool

TICK_SECONDS = 0.25
TICK = 'printf("TICK %llu\\n", nsecs);'
"""The last statement of a program's `interval:ms:250`, after the statements that print its maps."""
_ATTACH_SECONDS = 60.0
_LOST = re.compile(r"Lost (\d+) events")


@dataclass(frozen=True)
class Tick:
    """Running totals at one tick.

    `boot_ns` is the kernel's time of the tick (CLOCK_BOOTTIME); `t` (CLOCK_MONOTONIC) and `wall`,
    both in seconds, are the times at which the agent read it. bpftrace reads the maps after the
    tick has fired, so they include at least every event before `boot_ns`.
    """

    boot_ns: int
    t: float
    wall: float
    lost_events: int
    maps: dict[str, dict[str, Any]]


def parse_line(line: str) -> dict[str, Any] | None:
    """Parse one line of `bpftrace -f json`; return None for blank lines and plain text."""
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


class BpftraceProcess:
    """A bpftrace program that runs for the whole machine state.

    A trial takes the ticks around its measured part.
    """

    name: str

    def __init__(self, script: Path, program: str, children: ToolProcesses) -> None:
        self._script, self._program, self._children = script, program, children
        self._process: Process[bytes] | None = None
        self._maps: dict[str, dict[str, Any]] = {}
        self._ticks: list[Tick] = []
        self._ticked = threading.Condition()
        self._lost_events = 0
        self._text: list[str] = []
        self._output_ended = False
        self._stopped = False
        self.reason: str | None = None

    @property
    def has_begun(self) -> bool:
        """True if begin() was called, successfully or not."""
        return self._process is not None or self.reason is not None

    def start(self) -> None:
        """Attach, and return at the first tick. After a failure, `reason` is set."""
        self.begin()
        self.wait_until_attached()

    def begin(self) -> None:
        """Begin to attach. This takes seconds and does not block."""
        if not find_tool("bpftrace"):
            self.reason = "bpftrace is not installed"
            return
        self._script.write_text(self._program)
        argv = ["bpftrace", "-f", "json", str(self._script)]
        self._process = self._children.start(argv, stdout=PIPE, stderr=STDOUT)
        threading.Thread(target=self._read, daemon=True).start()

    def wait_until_attached(self) -> None:
        """Return after the first tick. Nothing may be measured before that."""
        if self._process is None or self.reason:
            return
        with self._ticked:
            # Not `_dead`: the reason may be in output that has not been read from the pipe yet.
            attached = self._ticked.wait_for(
                lambda: bool(self._ticks) or self._output_ended, _ATTACH_SECONDS
            )
        if not attached or not self._ticks:
            self.stop()
            self.reason = (
                f"bpftrace did not attach: {self._text[-1] if self._text else 'it printed nothing'}"
            )

    def stop(self) -> None:
        """Detach. Does nothing if the process is not attached."""
        if self._process and not self._stopped:
            self._stopped = True
            self._children.interrupt(self._process)

    def wait_for_tick(self, since_ns: int | None = None) -> None:
        """Return after a tick later than `since_ns` (CLOCK_BOOTTIME; None means now).

        Every event before that moment is then counted.
        """
        if self._process is None or self.reason:
            return
        since = time.clock_gettime_ns(time.CLOCK_BOOTTIME) if since_ns is None else since_ns
        with self._ticked:
            self._ticked.wait_for(
                lambda: self._dead() or self._ticks[-1].boot_ns > since, 8 * TICK_SECONDS
            )

    def ticks_since(self, start: float) -> list[Tick]:
        """Return the ticks from the last one before `start` (CLOCK_MONOTONIC).

        Forget older ones.
        """
        with self._ticked:
            before = [tick for tick in self._ticks if tick.t <= start][-1:]
            self._ticks = before + [tick for tick in self._ticks if tick.t > start]
            return list(self._ticks)

    def keep(
        self, ticks: list[Tick], rows: Iterable[Mapping[str, Any]], path: Path
    ) -> CollectorResult:
        """Write one row per tick as a trial's trace.

        Return the result, with the number of lost events.
        """
        if self._process is None or self.reason:
            return CollectorResult("missing", self.reason or "bpftrace was not started")
        lost = ticks[-1].lost_events - ticks[0].lost_events if ticks else 0
        lines = (
            {"t": tick.t, "wall": tick.wall, "lost_events": tick.lost_events, **row}
            for tick, row in zip(ticks, rows, strict=True)
        )
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        if self._dead():
            return CollectorResult("failed", "bpftrace died while trials ran", lost, (path,))
        if lost:
            return CollectorResult("partial", f"bpftrace lost {lost} events", lost, (path,))
        return CollectorResult("ok", None, 0, (path,))

    def _dead(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for raw in open(self._process.stdout.fileno(), "rb", closefd=False):  # noqa: SIM115 - buffered view of it
            self._take(raw.decode(errors="replace").strip())
        # before the notification, so that `_dead` is true for the waiting threads
        self._process.wait()
        with self._ticked:
            self._output_ended = True
            self._ticked.notify_all()

    def _take(self, line: str) -> None:
        data = parse_line(line)
        if data is None:
            lost = _LOST.search(line)
            self._lost_events += int(lost.group(1)) if lost else 0
            self._text += [line] if line else []
        elif data.get("type") in ("map", "hist"):
            self._maps |= {name: _flatten(rows) for name, rows in data["data"].items()}
        elif data.get("type") == "lost_events":
            self._lost_events += int(data["data"]["events"])
        elif data.get("type") == "printf" and str(data["data"]).startswith("TICK "):
            with self._ticked:
                boot_ns = int(data["data"].split()[1])
                self._ticks.append(
                    Tick(
                        boot_ns, time.monotonic(), time.time(), self._lost_events, dict(self._maps)
                    )
                )
                self._ticked.notify_all()


def _flatten(rows: Any) -> dict[str, Any]:
    """Return a map as counts, or as rows of a histogram, by key. An empty map is printed as {}."""
    return {str(key): value for key, value in rows.items()} if isinstance(rows, dict) else {}
