"""Samples of the kernel's counters during a trial."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult, ThreadCollector
from pagecage.linux.cgroup import Cgroup, ancestors
from pagecage.linux.cgroup_files import CounterFiles, LimitFiles
from pagecage.linux.page_cache import cachestat_pages
from pagecage.linux.procfs import open_text, parse_diskstats, pread_text
from pagecage.linux.trial_processes import TrialProcesses
from pagecage.model.cage import IO_STAT_KEY
from pagecage.model.json_codec import Json

_MEMORY_KEYS = ("anon", "file", "pgmajfault", "workingset_refault_file", "pgscan", "pgsteal")
_EVENT_KEYS = ("high", "max", "oom", "oom_kill")
_CPU_KEYS = ("usage_usec", "throttled_usec")
_IO_KEYS = tuple(IO_STAT_KEY.values())
_PRESSURES = ("io", "memory", "cpu")
_FILES = (
    *("memory.current", "memory.stat", "memory.events", "io.stat", "cpu.stat"),
    *(f"{kind}.pressure" for kind in _PRESSURES),
)


def pick(counters: Mapping[str, int], keys: tuple[str, ...]) -> dict[str, int]:
    return {key: counters[key] for key in keys if key in counters}


def _totals(rows: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {kind: row["total"] for kind, row in rows.items() if "total" in row}


class CgroupSource:
    """The files of a cgroup, which are opened once.

    A limit is part of the first sample, and of each that finds another text than the one before.
    Those of the ancestors have the cgroup's path before the name.
    """

    def __init__(self, cgroup: Cgroup) -> None:
        self._counters = CounterFiles(cgroup, _FILES)
        above = {f"{one}/": one for one in ancestors(cgroup)}
        self._limits = {prefix: LimitFiles(one) for prefix, one in {"": cgroup, **above}.items()}

    def row(self, maj_min: str, _disk: Mapping[str, int], others: Mapping[str, str]) -> Json:
        """Return one sample of every file; `disks` has the I/O on the other disks by name."""
        found = {name: self._counters.read(name) for name in _FILES}
        io = found["io.stat"] or {}
        disks = {name: {"io": pick(io.get(one, {}), _IO_KEYS)} for name, one in others.items()}
        limits = {
            f"{prefix}{name}": value
            for prefix, files in self._limits.items()
            for name, value in files.read(maj_min, only_changed=True).items()
        }
        return {
            **({"disks": disks} if disks else {}),
            **({"limits": limits} if limits else {}),
            "io": pick(io.get(maj_min, {}), _IO_KEYS),
            "memory_current": found["memory.current"],
            "memory_stat": pick(found["memory.stat"] or {}, _MEMORY_KEYS),
            "memory_events": pick(found["memory.events"] or {}, _EVENT_KEYS),
            "cpu": pick(found["cpu.stat"] or {}, _CPU_KEYS),
            "pressure": {kind: _totals(found[f"{kind}.pressure"] or {}) for kind in _PRESSURES},
        }

    def close(self) -> None:
        self._counters.close()
        for files in self._limits.values():
            files.close()


class TreeSource:
    """The counters of processes without a cgroup.

    Bytes and CPU time are their own. The numbers of I/Os are the disk's, and the pressure is the
    machine's, so they include what other processes do.
    """

    def __init__(self, processes: TrialProcesses) -> None:
        self._processes = processes

    def row(self, _maj_min: str, disk: Mapping[str, int], _others: Mapping[str, str]) -> Json:
        own = self._processes.counters()["processes"] or {"io": {}, "cpu": {}}
        ios = {"rios": disk.get("reads"), "wios": disk.get("writes")}
        return {
            "io": own["io"] | {key: count for key, count in ios.items() if count is not None},
            "memory_current": None,
            "memory_stat": {},
            "memory_events": {},
            "cpu": own["cpu"],
            "pressure": {kind: _totals(rows) for kind, rows in (own.get("pressure") or {}).items()},
        }

    def close(self) -> None:
        """Do nothing: no file is kept open."""


_PERIOD_SECONDS = 0.1
_RESIDENCY_SHARE = 0.01
"""Largest share of the time that is spent on queries of residency."""
_DISK_KEYS = ("reads", "sectors_read", "writes", "sectors_written", "io_ticks", "weighted_io_ticks")


class Sampler(ThreadCollector):
    """A thread that samples the counters of a trial's processes and of its disk."""

    name = "sampler"

    def __init__(self, context: CollectorContext) -> None:
        super().__init__(context)
        self._maj_min = context.disk.maj_min
        self._others = {name: disk.maj_min for name, disk in context.disks.items()}
        self._late = 0
        self._begun = threading.Event()
        cgroup = context.processes.cgroup
        self._source = TreeSource(context.processes) if cgroup is None else CgroupSource(cgroup)
        self._disk = open_text(Path("/proc/diskstats"))
        self._datasets = [open_text(path) for path in context.datasets]
        self._residency_due_at = 0.0

    def wait_until_recording(self) -> None:
        self._begun.wait(2.0)

    def rows(self) -> tuple[Json, ...]:
        return tuple(self._rows)

    def stop(self) -> CollectorResult:
        """Take a last sample. The result is partial after a gap of over a second."""
        self._write(5.0, is_compact=True)
        self._source.close()
        for descriptor in (self._disk, *self._datasets):
            if descriptor is not None:
                os.close(descriptor)
        if self._error:
            return CollectorResult("failed", self._error, files=(self._path,))
        reason = f"{self._late} gaps of over a second" if self._late else None
        return CollectorResult("partial" if reason else "ok", reason, files=(self._path,))

    def _loop(self) -> None:
        next_at = time.monotonic()
        try:
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
        except (OSError, ValueError) as error:
            self._error = f"sampling ended early: {error}"

    def _sample(self) -> Json:
        row: Json = {"t": time.monotonic(), "wall": time.time()}
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
