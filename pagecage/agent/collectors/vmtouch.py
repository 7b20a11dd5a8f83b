"""A collector that runs vmtouch up to five times a second.

Its bar has 60 buckets: O is fully resident, o partly resident, a blank not resident.
"""

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
_CPU_SHARE = 0.05  # vmtouch walks through the whole file, so larger files are sampled less often


def parse_vmtouch(text: str) -> dict[str, Any] | None:
    """Merge the final bars of all files in the output of `vmtouch -v FILES`.

    None if there are none. An empty file has no bar, nor has an error. vmtouch reprints a file's
    bar while it walks through the file.
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
    return {
        "resident_pages": resident,
        "total_pages": total,
        "bar": _merge_bars("".join(bar["bar"] for bar in bars)),
    }


def _merge_bars(bars: str) -> str:
    """Shorten the concatenated bars of several files to sixty characters."""
    step = len(bars) // 60
    pieces = (bars[n * step : (n + 1) * step] for n in range(60))
    return "".join(next((sign for sign in "O " if set(piece) == {sign}), "o") for piece in pieces)


class Vmtouch:
    """A thread that runs `vmtouch -v FILES` repeatedly, and once more at the end."""

    name = "vmtouch"

    def __init__(self, context: CollectorContext) -> None:
        self._path = context.directory / "vmtouch.jsonl"
        self._datasets = context.datasets
        self._rows: list[dict[str, Any]] = []
        self._error: str | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def start(self) -> None:
        if self._datasets and find_tool("vmtouch"):
            self._thread.start()

    def wait_until_recording(self) -> None:
        """Wait up to 5 s for the first bar, which shows the cache before the workload uses it."""
        deadline = time.monotonic() + 5.0
        while (
            self._thread.is_alive()
            and not (self._rows or self._error)
            and time.monotonic() < deadline
        ):
            time.sleep(0.01)

    def stop(self) -> CollectorResult:
        self._ending.set()
        if not self._thread.ident:
            return CollectorResult(
                "missing",
                "vmtouch is not installed" if self._datasets else "the trial has no dataset",
            )
        self._thread.join(10.0)
        self._path.write_text("".join(json.dumps(row) + "\n" for row in self._rows))
        if self._error:
            return CollectorResult("partial", self._error, files=(self._path,))
        return CollectorResult("ok", files=(self._path,))

    def _loop(self) -> None:
        next_at = time.monotonic()
        try:
            while not self._ending.is_set():
                began = time.monotonic()
                self._sample()
                took = time.monotonic() - began
                next_at += max(_SHORTEST_PERIOD_SECONDS, took / _CPU_SHARE)
                self._ending.wait(max(0.0, next_at - time.monotonic()))
            self._sample()
        except (PagecageError, OSError) as error:
            self._error = str(error)

    def _sample(self) -> None:
        t, wall = time.monotonic(), time.time()
        done = run(["vmtouch", "-v", *map(str, self._datasets)], check=False, timeout_seconds=30)
        bar = parse_vmtouch(done.stdout)
        if bar is None:
            self._error = f"vmtouch printed no bar (exit status {done.status})"
        else:
            self._rows.append({"t": t, "wall": wall, **bar})
