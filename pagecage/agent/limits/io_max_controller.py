"""A thread that enforces burst credits and shared read/write limits by rewriting io.max.

io.max itself supports neither. Usage is read from the slice's io.stat, so that all I/O that
blk-throttle admits is charged. io.max is written only if a limit changes by a step, because each
write starts a new throttling slice of 100 ms (tg_conf_updated in block/blk-throttle.c). systemd
rewrites its own values when a scope starts in the slice, so io.max is read back at each tick.
Before Linux 6.1, a rewrite could block throttled I/O forever (commit a880ae93e5b5).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import Any

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult
from pagecage.agent.limits.limit_meters import meters
from pagecage.agent.system.cgroup import Cgroup
from pagecage.agent.system.cgroup_files import read_counters, read_limits, write_io_limits
from pagecage.errors import HostError
from pagecage.model.cage import IO_MAX_KEY, Cage
from pagecage.model.requirements import may_rewrite_io_max

_PERIOD_SECONDS = 0.1
_MOST_REFUSED = 5


def rewrites_io_max(cage: Cage, facts: Mapping[str, Any]) -> bool:
    """Return whether the cage needs a controller and the kernel supports rewriting io.max."""
    return any(meters(cage)) and may_rewrite_io_max(facts)


class IoMaxController:
    """Enforces every meter of a cage from `start` to `stop`.

    It has the interface of a collector.
    """

    def __init__(
        self,
        context: CollectorContext,
        cage: Cage,
        *,
        keeps_series: bool = True,
        name: str = "credits",
    ) -> None:
        self.name, self._keeps_series = name, keeps_series
        self._path = context.directory / f"{name}.jsonl"
        self._cgroup, self._maj_min = _cgroup_of(context), context.disk.maj_min
        self._meters = list(meters(cage))
        self._buckets_at_start = [meter.bucket for meter in self._meters]
        self._lock = threading.Lock()
        self._buckets_json = [meter.to_json() for meter in self._meters]
        self._subject = (
            "burst credits"
            if any(meter.bursts for meter in self._meters)
            else "the split of a shared limit"
        )
        self._rows: list[dict[str, Any]] = []
        self._changes: list[dict[str, float]] = []
        self._overwritten = self._refused = 0
        self._error: str | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def start(self) -> None:
        """Write the first limits and start the thread."""
        self._read, self._since = self._counters(), time.monotonic()
        self._apply_limits()
        self._thread.start()

    def begin(self) -> None:
        """Reset the buckets to the cage's levels: they refill while the scope starts."""
        with self._lock:
            for meter, bucket in zip(self._meters, self._buckets_at_start, strict=True):
                meter.bucket = bucket
            try:
                self._read, self._since = self._counters(), time.monotonic()
                self._apply_limits()
            except (OSError, ValueError, HostError) as error:
                self._error = f"{self._subject} ended early: {error}"

    def wait_until_recording(self) -> None:
        """Return at once: `start` has written the first limits."""

    def stop(self) -> CollectorResult:
        """Stop, and write one row per tick, with the credits and limits of each bucket."""
        self._ending.set()
        if self._thread.ident:
            self._thread.join(5.0)
        self._path.write_text(
            "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in self._rows)
        )
        return CollectorResult("failed" if self._error else "ok", self._error, files=(self._path,))

    def to_json(self) -> dict[str, Any]:
        """Return buckets, changes of io.max, the number of foreign changes, and the error."""
        return {
            "buckets": self._buckets_json,
            "changes": list(self._changes),
            "overwritten": self._overwritten,
            "error": self._error,
        }

    def _loop(self) -> None:
        next_at = self._since
        while not self._error and not self._ending.is_set():
            next_at = max(next_at + _PERIOD_SECONDS, time.monotonic())
            self._ending.wait(max(0.0, next_at - time.monotonic()))
            with self._lock:
                self._tick()

    def _tick(self) -> None:
        """Charge the I/O since the last tick; rewrite io.max if a limit changes."""
        try:
            read, now = self._counters(), time.monotonic()
            for meter in self._meters:
                moved = {
                    key: float(read.get(key, 0) - self._read.get(key, 0))
                    for key in meter.counters.values()
                }
                meter.charge(moved, now - self._since)
            self._detect_foreign_writes()
            self._read, self._since = read, now
            self._apply_limits()
        except (OSError, ValueError, HostError) as error:
            self._error = f"{self._subject} ended early: {error}"

    def _counters(self) -> dict[str, int]:
        """io.stat of the cgroup for the disk; a disk that it has not touched has no line."""
        io: dict[str, dict[str, int]] | None = read_counters(self._cgroup, "io.stat")["io.stat"]
        if io is None:
            raise HostError(f"io.stat of {self._cgroup} cannot be read")
        return io.get(self._maj_min, {})

    def _detect_foreign_writes(self) -> None:
        """Note values that another process has written since the last tick.

        They are overwritten.
        """
        held = read_limits(self._cgroup, self._maj_min)
        for meter in self._meters:
            found = {prop: held.get(f"io.max.{IO_MAX_KEY[prop]}", "max") for prop in meter.counters}
            if any(text != str(meter.caps.get(prop)) for prop, text in found.items()):
                since = max(self._since, self._changes[-1]["t"] if self._changes else self._since)
                self._changes.append(
                    {"t": since, **{p: int(n) for p, n in found.items() if n != "max"}}
                )
                self._overwritten, meter.caps = self._overwritten + 1, {}

    def _apply_limits(self) -> None:
        changed: dict[str, int] = {}
        for meter in self._meters:
            wanted = meter.wanted()
            changed |= {prop: cap for prop, cap in wanted.items() if cap != meter.caps.get(prop)}
            meter.caps = wanted
        if changed:
            self._write(changed)
        if not self._keeps_series:
            return
        buckets = [
            {"credits": round(meter.bucket.credits, 3), "caps": meter.caps}
            for meter in self._meters
        ]
        self._rows.append({"t": self._since, "wall": time.time(), "buckets": buckets})

    def _write(self, changed: dict[str, int]) -> None:
        """Write limits.

        A write that does not read back is repeated at the next tick, up to _MOST_REFUSED times.
        systemd may rewrite the slice's values between the write and the read-back, when a scope
        starts in it.
        """
        try:
            write_io_max(self._cgroup, self._maj_min, changed)
            self._refused = 0
            self._changes.append({"t": time.monotonic(), **changed})
        except HostError:
            self._refused += 1
            if self._refused >= _MOST_REFUSED:
                raise
            for meter in self._meters:
                meter.caps = {} if meter.counters.keys() & changed.keys() else meter.caps


def _cgroup_of(context: CollectorContext) -> Cgroup:
    if context.processes.cgroup is None:
        raise HostError("io.max belongs to a cgroup, and this trial has none", "use HOST=vm")
    return context.processes.cgroup


def write_io_max(cgroup: Cgroup, maj_min: str, caps: dict[str, int]) -> None:
    """Write limits, named by systemd property, and read them back.

    Raises HostError if they differ.
    """
    wanted = {IO_MAX_KEY[prop]: str(cap) for prop, cap in caps.items()}
    write_io_limits(cgroup, maj_min, wanted)
    held = read_limits(cgroup, maj_min)
    wrong = [
        f"{key} is {held.get(f'io.max.{key}')}, not {cap}"
        for key, cap in wanted.items()
        if held.get(f"io.max.{key}") != cap
    ]
    if wrong:
        raise HostError(f"io.max differs from the values written: {'; '.join(wrong)}")
