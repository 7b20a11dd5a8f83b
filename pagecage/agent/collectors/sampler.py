"""A sampler of a trial's counters, ten times a second, which iostat and sar cannot do.

A sample takes 1 ms of CPU time. Residency is queried less often where a query takes long: 10 GiB of
single pages took 60 ms, half of a CPU if it were done in every sample.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult
from pagecage.agent.collectors.sample_sources import CgroupSource, TreeSource, pick
from pagecage.agent.system.kernel_text import open_text, pread_text
from pagecage.agent.system.page_cache import cachestat_pages
from pagecage.agent.system.procfs import parse_diskstats

_PERIOD_SECONDS = 0.1
_RESIDENCY_SHARE = 0.01
"""Largest share of the time that is spent on queries of residency."""
_DISK_KEYS = ("reads", "sectors_read", "writes", "sectors_written", "io_ticks", "weighted_io_ticks")


class Sampler:
    """A thread that samples the counters of a trial's processes and of its disk.

    Unreadable values are omitted.
    """

    name = "sampler"

    def __init__(self, context: CollectorContext) -> None:
        self._path = context.directory / "sampler.jsonl"
        self._maj_min = context.disk.maj_min
        self._others = {name: disk.maj_min for name, disk in context.disks.items()}
        self._rows: list[dict[str, Any]] = []
        self._late = 0
        self._error: str | None = None
        self._begun, self._ending = threading.Event(), threading.Event()
        cgroup = context.processes.cgroup
        self._source = TreeSource(context.processes) if cgroup is None else CgroupSource(cgroup)
        self._disk = open_text(Path("/proc/diskstats"))
        self._datasets = [open_text(path) for path in context.datasets]
        self._residency_due_at = 0.0
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wait_until_recording(self) -> None:
        """Wait up to 2 s for the first sample."""
        self._begun.wait(2.0)

    def rows(self) -> tuple[dict[str, Any], ...]:
        """Return the samples so far."""
        return tuple(self._rows)

    def stop(self) -> CollectorResult:
        """Take a last sample and write the series.

        The result is partial after a gap of over a second.
        """
        self._ending.set()
        if self._thread.ident:
            self._thread.join(5.0)
        self._source.close()
        for descriptor in (self._disk, *self._datasets):
            if descriptor is not None:
                os.close(descriptor)
        self._path.write_text(
            "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in self._rows)
        )
        if self._error:
            return CollectorResult("failed", self._error, files=(self._path,))
        if self._late:
            return CollectorResult(
                "partial", f"{self._late} gaps of over a second", files=(self._path,)
            )
        return CollectorResult("ok", files=(self._path,))

    def _loop(self) -> None:
        try:
            self._sample_until_end()
        except (OSError, ValueError) as error:
            self._error = f"sampling ended early: {error}"

    def _sample_until_end(self) -> None:
        next_at = time.monotonic()
        while not self._ending.is_set():
            self._rows.append(self._sample())
            self._begun.set()
            next_at += _PERIOD_SECONDS
            now = time.monotonic()
            if now > next_at + 1.0:
                self._late, next_at = self._late + 1, now
            self._ending.wait(max(0.0, next_at - now))
        self._residency_due_at = 0.0
        self._rows.append(self._sample())

    def _sample(self) -> dict[str, Any]:
        row: dict[str, Any] = {"t": time.monotonic(), "wall": time.time()}
        stats = pread_text(self._disk) or ""
        disk = parse_diskstats(stats, self._maj_min) or {}
        row["disk"] = pick(disk, _DISK_KEYS)
        row |= self._source.row(self._maj_min, disk, self._others)
        for name, others_io in row.get("disks", {}).items():
            found = parse_diskstats(stats, self._others[name]) or {}
            others_io["disk"] = pick(found, _DISK_KEYS)
        row["resident_pages"] = self._resident_pages()
        return row

    def _resident_pages(self) -> int | None:
        """Return the sum over all files.

        None if one of them cannot be queried, or if it is too early for the next query.
        """
        begin = time.monotonic()
        if begin < self._residency_due_at:
            return None
        try:
            pages = [None if file is None else cachestat_pages(file) for file in self._datasets]
        except OSError:
            return None
        now = time.monotonic()
        self._residency_due_at = now + (now - begin) * (1 / _RESIDENCY_SHARE - 1)
        known = [count for count in pages if count is not None]
        return sum(known) if pages and len(known) == len(pages) else None
