"""A sampler of the slice's cgroup files, ten times a second, which iostat and sar cannot do.

A sample takes 1 ms of CPU time.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult
from pagecage.agent.system.kernel_text import parse_flat_keyed, parse_nested_keyed, parse_pressure
from pagecage.agent.system.page_cache import cachestat_pages
from pagecage.agent.system.procfs import parse_diskstats
from pagecage.model.cage import IO_STAT_KEY

_PERIOD_SECONDS = 0.1
_MEMORY_KEYS = ("anon", "file", "pgmajfault", "workingset_refault_file", "pgscan", "pgsteal")
_EVENT_KEYS = ("max", "oom", "oom_kill")
_CPU_KEYS = ("usage_usec", "throttled_usec")
_IO_KEYS = tuple(IO_STAT_KEY.values())
_DISK_KEYS = ("reads", "sectors_read", "writes", "sectors_written", "io_ticks", "weighted_io_ticks")
_FILES = (
    "memory.current",
    "memory.stat",
    "memory.events",
    "io.stat",
    "cpu.stat",
    "io.pressure",
    "memory.pressure",
    "cpu.pressure",
)


def _pick(counters: dict[str, int], keys: tuple[str, ...]) -> dict[str, int]:
    return {key: counters[key] for key in keys if key in counters}


def _totals(text: str) -> dict[str, float]:
    return {kind: row["total"] for kind, row in parse_pressure(text).items() if "total" in row}


class Sampler:
    """A thread that samples the slice's files while the slice exists.

    Unreadable values are omitted.
    """

    name = "sampler"

    def __init__(self, context: CollectorContext) -> None:
        self._path = context.directory / "sampler.jsonl"
        self._maj_min = context.disk.maj_min
        self._rows: list[dict[str, Any]] = []
        self._late = 0
        self._error: str | None = None
        self._ending = threading.Event()
        self._files = {name: _open(context.cgroup / name) for name in _FILES}
        self._disk = _open(Path("/proc/diskstats"))
        self._datasets = [_open(path) for path in context.datasets]
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wait_until_recording(self) -> None:
        """Wait up to 2 s for the first sample."""
        deadline = time.monotonic() + 2.0
        while not self._rows and time.monotonic() < deadline:
            time.sleep(0.005)

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
        for descriptor in (*self._files.values(), self._disk, *self._datasets):
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
            next_at += _PERIOD_SECONDS
            now = time.monotonic()
            if now > next_at + 1.0:
                self._late, next_at = self._late + 1, now
            self._ending.wait(max(0.0, next_at - now))
        self._rows.append(self._sample())

    def _sample(self) -> dict[str, Any]:
        row: dict[str, Any] = {"t": time.monotonic(), "wall": time.time()}
        text = {name: _read(descriptor) for name, descriptor in self._files.items()}
        row["io"] = _pick(parse_nested_keyed(text["io.stat"]).get(self._maj_min, {}), _IO_KEYS)
        row["disk"] = _pick(parse_diskstats(_read(self._disk), self._maj_min) or {}, _DISK_KEYS)
        row["memory_current"] = int(text["memory.current"] or 0) if text["memory.current"] else None
        row["memory_stat"] = _pick(parse_flat_keyed(text["memory.stat"]), _MEMORY_KEYS)
        row["memory_events"] = _pick(parse_flat_keyed(text["memory.events"]), _EVENT_KEYS)
        row["cpu"] = _pick(parse_flat_keyed(text["cpu.stat"]), _CPU_KEYS)
        row["pressure"] = {
            kind: _totals(text[f"{kind}.pressure"]) for kind in ("io", "memory", "cpu")
        }
        row["resident_pages"] = self._resident_pages()
        return row

    def _resident_pages(self) -> int | None:
        """Return the sum over all files; None if one of them cannot be queried."""
        try:
            pages = [None if file is None else cachestat_pages(file) for file in self._datasets]
        except OSError:
            return None
        known = [count for count in pages if count is not None]
        return sum(known) if pages and len(known) == len(pages) else None


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _read(descriptor: int | None) -> str:
    if descriptor is None:
        return ""
    try:
        return os.pread(descriptor, 65536, 0).decode()
    except OSError:
        return ""
