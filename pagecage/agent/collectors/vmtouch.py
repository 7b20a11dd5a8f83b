"""vmtouch, up to five times a second: the bar of the article, O for a bucket all resident, o for some, else blank."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from pathlib import Path
from typing import Any

from pagecage.agent.collectors.collector import Outcome, Surroundings
from pagecage.errors import PagecageError
from pagecage.process import run

_BAR = re.compile(r"^\[(?P<bar>[ oO]{60})\] (?P<resident>\d+)/(?P<total>\d+)$", re.MULTILINE)
_SHORTEST_PERIOD_SECONDS = 0.2
_CPU_SHARE = 0.05  # a look walks the whole file, so larger files are looked at less often


def parse_vmtouch(text: str) -> dict[str, Any] | None:
    """The last bar of `vmtouch -v FILE`; None when there is none (an empty file, an error)."""
    bars = list(_BAR.finditer(text.replace("\r", "\n")))
    if not bars:
        return None
    last = bars[-1]
    return {"resident_pages": int(last["resident"]), "total_pages": int(last["total"]), "bar": last["bar"]}


class Vmtouch:
    """A thread that runs `vmtouch -v DATASET` again and again, and once more at the end."""

    name = "vmtouch"

    def __init__(self, around: Surroundings) -> None:
        self._path = around.directory / "vmtouch.jsonl"
        self._dataset: Path | None = around.dataset
        self._rows: list[dict[str, Any]] = []
        self._error: str | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def start(self) -> None:
        """Begin, unless there is nothing to look at or nothing to look with."""
        if self._dataset and shutil.which("vmtouch"):
            self._thread.start()

    def wait_until_recording(self) -> None:
        """Wait for the first bar: it shows the cache before the workload touched it."""
        deadline = time.monotonic() + 5.0
        while self._thread.is_alive() and not (self._rows or self._error) and time.monotonic() < deadline:
            time.sleep(0.01)

    def stop(self) -> Outcome:
        """End, and write the bars."""
        self._ending.set()
        if not self._thread.ident:
            return Outcome("missing", "vmtouch is not installed" if self._dataset else "the trial has no dataset")
        self._thread.join(10.0)
        self._path.write_text("".join(json.dumps(row) + "\n" for row in self._rows))
        if self._error:
            return Outcome("partial", self._error, files=(self._path,))
        return Outcome("ok", files=(self._path,))

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
        done = run(["vmtouch", "-v", str(self._dataset)], check=False, timeout_seconds=30)
        bar = parse_vmtouch(done.stdout)
        if bar is None:
            self._error = f"vmtouch printed no bar (exit status {done.status})"
        else:
            self._rows.append({"t": t, "wall": wall, **bar})
