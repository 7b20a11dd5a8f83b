"""A collector that runs vmtouch up to five times a second.

Its bar has 60 buckets: O is fully resident, o partly resident, a blank not resident.
"""

from __future__ import annotations

import re
import time

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult, ThreadCollector
from pagecage.errors import PagecageError
from pagecage.model.json_codec import Json
from pagecage.process import find_tool, run, wait_until

_BAR = re.compile(r"^\[(?P<bar>[ oO]{60})\] (?P<resident>\d+)/(?P<total>\d+)$", re.MULTILINE)
_SHORTEST_PERIOD_SECONDS = 0.2
_CPU_SHARE = 0.05  # vmtouch walks through the whole file, so larger files are sampled less often


def parse_vmtouch(text: str) -> Json | None:
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
    if not last:
        return None
    resident, total = (sum(int(bar[key]) for bar in last.values()) for key in ("resident", "total"))
    drawn, step = "".join(bar["bar"] for bar in last.values()), len(last)
    pieces = (set(drawn[n * step : (n + 1) * step]) for n in range(60))
    merged = "".join(next((sign for sign in "O " if piece == {sign}), "o") for piece in pieces)
    return {"resident_pages": resident, "total_pages": total, "bar": merged}


class Vmtouch(ThreadCollector):
    """A thread that runs `vmtouch -v FILES` repeatedly, and once more at the end."""

    name = "vmtouch"

    def __init__(self, context: CollectorContext) -> None:
        super().__init__(context)
        self._datasets = context.datasets

    def start(self) -> None:
        if self._datasets and find_tool("vmtouch"):
            self._thread.start()

    def wait_until_recording(self) -> None:
        """Wait up to 5 s for the first bar, which shows the cache before the workload uses it."""
        wait_until(lambda: self._rows or self._error or not self._thread.is_alive(), 5.0)

    def stop(self) -> CollectorResult:
        if not self._thread.ident:
            why = "vmtouch is not installed" if self._datasets else "the trial has no dataset"
            return CollectorResult("missing", why)
        self._write(10.0)
        return CollectorResult("partial" if self._error else "ok", self._error, files=(self._path,))

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
