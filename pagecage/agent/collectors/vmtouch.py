"""vmtouch, up to five times a second: the bar of the article, O for a bucket all resident, o for some, else blank."""

from __future__ import annotations

import json
import re
import threading
import time
from typing import Any

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult
from pagecage.errors import PagecageError
from pagecage.process import find_tool, run

_BAR = re.compile(r"^\[(?P<bar>[ oO]{60})\] (?P<resident>\d+)/(?P<total>\d+)$", re.MULTILINE)
_SHORTEST_PERIOD_SECONDS = 0.2
_CPU_SHARE = 0.05  # a look walks the whole file, so larger files are looked at less often


def parse_vmtouch(text: str) -> dict[str, Any] | None:
    """The last bar of each file in `vmtouch -v FILES`, as one; None where there is none (an empty file, an error).

    A file's bar is printed again and again while it is walked, then that of the next file follows.
    """
    last: dict[int, re.Match[str]] = {}
    file = 0
    for line in text.replace("\r", "\n").splitlines():
        if bar := _BAR.match(line):
            last[file] = bar
        elif line.strip():
            file += 1
    bars = list(last.values())
    if not bars:
        return None
    resident, total = (sum(int(bar[part]) for bar in bars) for part in ("resident", "total"))
    return {"resident_pages": resident, "total_pages": total, "bar": _squeezed("".join(bar["bar"] for bar in bars))}


def _squeezed(bars: str) -> str:
    """The bars of several files, one after the other, in the sixty characters of one."""
    step = len(bars) // 60
    pieces = (bars[n * step : (n + 1) * step] for n in range(60))
    return "".join(next((sign for sign in "O " if set(piece) == {sign}), "o") for piece in pieces)


class Vmtouch:
    """A thread that runs `vmtouch -v FILES` again and again, and once more at the end."""

    name = "vmtouch"

    def __init__(self, around: CollectorContext) -> None:
        self._path = around.directory / "vmtouch.jsonl"
        self._datasets = around.datasets
        self._rows: list[dict[str, Any]] = []
        self._error: str | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def start(self) -> None:
        """Begin, unless there is nothing to look at or nothing to look with."""
        if self._datasets and find_tool("vmtouch"):
            self._thread.start()

    def wait_until_recording(self) -> None:
        """Wait for the first bar: it shows the cache before the workload touched it."""
        deadline = time.monotonic() + 5.0
        while self._thread.is_alive() and not (self._rows or self._error) and time.monotonic() < deadline:
            time.sleep(0.01)

    def stop(self) -> CollectorResult:
        """End, and write the bars."""
        self._ending.set()
        if not self._thread.ident:
            return CollectorResult(
                "missing", "vmtouch is not installed" if self._datasets else "the trial has no dataset"
            )
        self._thread.join(10.0)
        self._path.write_text("".join(json.dumps(row) + "\n" for row in self._rows))
        if self._error:
            return CollectorResult("partial", self._error, files=(self._path,))
        return CollectorResult("ok", files=(self._path,))

    def _loop(self) -> None:
        following = time.monotonic()
        try:
            while not self._ending.is_set():
                began = time.monotonic()
                self._look()
                took = time.monotonic() - began
                following += max(_SHORTEST_PERIOD_SECONDS, took / _CPU_SHARE)
                self._ending.wait(max(0.0, following - time.monotonic()))
            self._look()
        except (PagecageError, OSError) as error:
            self._error = str(error)

    def _look(self) -> None:
        t, wall = time.monotonic(), time.time()
        done = run(["vmtouch", "-v", *map(str, self._datasets)], check=False, timeout_seconds=30)
        bar = parse_vmtouch(done.stdout)
        if bar is None:
            self._error = f"vmtouch printed no bar (exit status {done.status})"
        else:
            self._rows.append({"t": t, "wall": wall, **bar})
