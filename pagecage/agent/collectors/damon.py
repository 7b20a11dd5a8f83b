"""A collector that has DAMON estimate the working set of a trial's processes.

DAMON samples the accessed bits of page tables (Documentation/admin-guide/mm/damon/usage.rst). It
sees mapped files and anonymous memory, but not what read(2) copies out of the page cache.
"""

from __future__ import annotations

import time
from pathlib import Path

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult, ThreadCollector

ADMIN = Path("/sys/kernel/mm/damon/admin/kdamonds")
INTERVAL_SECONDS = 0.5
"""A page belongs to the working set if it is touched within this time."""
_SAMPLE_SECONDS = 0.02
_MOST_REGIONS = 300
_MOST_BYTES = 2**63 - 1
_MOST_COUNT = 2**32 - 1
_POLL_SECONDS = 0.02
_JOIN_SECONDS = 10.0


def refusal(admin: Path = ADMIN) -> str | None:
    if not admin.is_dir():
        return "the kernel has no DAMON with a sysfs interface (CONFIG_DAMON_SYSFS)"
    number = admin / "nr_kdamonds"
    try:
        states = [path.read_text().strip() for path in admin.glob("*/state")]
        with number.open("r+"):
            pass
        # Only a context reports what it can monitor, so one is made if there is none.
        is_free = number.read_text().strip() == "0"
        if is_free:
            _write(number, 1)
        try:
            if is_free and (admin / "0").is_dir():
                _write(admin / "0/contexts/nr_contexts", 1)
            kinds = [path.read_text() for path in admin.glob("*/contexts/*/avail_operations")]
        finally:
            if is_free:
                _write(number, 0)
    except OSError as error:
        return f"DAMON cannot be used: {error.strerror}"
    if kinds and "vaddr" not in kinds[0].split():
        return "the kernel's DAMON cannot watch single processes (CONFIG_DAMON_VADDR)"
    return "another process uses DAMON" if "on" in states else None


def _write(path: Path, value: object) -> None:
    path.write_text(f"{value}\n")


class Monitor:
    """One kdamond that counts the bytes that some processes touch. Raises OSError."""

    def __init__(self, pids: tuple[int, ...], admin: Path = ADMIN) -> None:
        self.pids, self._admin = pids, admin
        self._kdamond = admin / "0"
        self._scheme = self._kdamond / "contexts/0/schemes/0"

    def start(self) -> None:
        _write(self._admin / "nr_kdamonds", 1)
        context = self._kdamond / "contexts/0"
        _write(self._kdamond / "contexts/nr_contexts", 1)
        _write(context / "operations", "vaddr")
        intervals = context / "monitoring_attrs/intervals"
        _write(intervals / "sample_us", round(_SAMPLE_SECONDS * 1e6))
        for name in ("aggr_us", "update_us"):
            _write(intervals / name, round(INTERVAL_SECONDS * 1e6))
        _write(context / "monitoring_attrs/nr_regions/max", _MOST_REGIONS)
        _write(context / "targets/nr_targets", len(self.pids))
        for number, pid in enumerate(self.pids):
            _write(context / f"targets/{number}/pid_target", pid)
        # The scheme counts the regions with at least one access in an interval, whatever their size
        # and age; its action `stat` does nothing else.
        _write(context / "schemes/nr_schemes", 1)
        _write(self._scheme / "action", "stat")
        ranges = {"sz": (0, _MOST_BYTES), "nr_accesses": (1, _MOST_COUNT), "age": (0, _MOST_COUNT)}
        for name, (least, most) in ranges.items():
            _write(self._scheme / "access_pattern" / name / "max", most)
            _write(self._scheme / "access_pattern" / name / "min", least)
        _write(self._kdamond / "state", "on")

    def touched_bytes(self) -> int:
        """Wait for the end of the present interval, and return the bytes touched in it."""
        _write(self._kdamond / "state", "update_schemes_tried_bytes")
        return int((self._scheme / "tried_regions/total_bytes").read_text())

    def stop(self) -> None:
        if (self._kdamond / "state").read_text().strip() == "on":
            _write(self._kdamond / "state", "off")
        _write(self._admin / "nr_kdamonds", 0)


class Damon(ThreadCollector):
    """A thread that reads DAMON's count of the trial's processes, once per interval."""

    name = "damon"

    def __init__(self, context: CollectorContext, admin: Path = ADMIN) -> None:
        super().__init__(context)
        self._processes, self._admin = context.processes, admin
        self._reason = refusal(admin)

    def start(self) -> None:
        if self._reason is None:
            self._thread.start()

    def stop(self) -> CollectorResult:
        if self._reason is not None:
            return CollectorResult("missing", self._reason)
        self._write(_JOIN_SECONDS)
        if self._rows:
            return CollectorResult("ok", files=(self._path,))
        seconds = f"{INTERVAL_SECONDS:g} s"
        reason = self._error or f"the program ended within DAMON's interval of {seconds}"
        return CollectorResult("partial", reason, files=(self._path,))

    def _loop(self) -> None:
        while not self._ending.is_set():
            if pids := self._pids():
                self._monitor(pids)
            self._ending.wait(_POLL_SECONDS)

    def _pids(self) -> tuple[int, ...]:
        return tuple(sorted(process.pid for process in self._processes.members()))

    def _monitor(self, pids: tuple[int, ...]) -> None:
        """Record until the trial has other processes. An error ends it: a process may be gone."""
        monitor = Monitor(pids, self._admin)
        try:
            try:
                monitor.start()
                while not self._ending.is_set() and self._pids() == pids:
                    touched = monitor.touched_bytes()
                    row = {"t": time.monotonic(), "wall": time.time()}
                    self._rows.append({**row, "bytes": touched, "processes": len(pids)})
            finally:
                monitor.stop()
        except (OSError, ValueError) as error:
            self._error = f"DAMON: {error}"
