"""Burst credits and limits that both ways share, which io.max does not know: a thread plays them by rewriting it.

It reads what went through from the slice's io.stat, so that whatever blk-throttle lets pass is charged, and writes only
when the cap changes by a step: every rewriting starts a new slice of 100 ms (tg_conf_updated in block/blk-throttle.c).
systemd writes its own values again when a scope begins in the slice, so that what is in force is looked at each tick.
Before Linux 6.1 a rewriting could keep throttled I/O waiting for ever (commit a880ae93e5b5).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult
from pagecage.agent.limits.limit_meters import meters
from pagecage.agent.system.cgroupfs import read_limits
from pagecage.agent.system.kernel_text import parse_nested_keyed
from pagecage.errors import HostError
from pagecage.model.cage import IO_MAX_KEY, Cage
from pagecage.model.requirements import may_rewrite_io_max

_PERIOD_SECONDS = 0.1
_MOST_REFUSED = 5


def rewrites_io_max(cage: Cage, facts: Mapping[str, Any]) -> bool:
    """Whether the cage has anything to play, on a host whose kernel takes it."""
    return any(meters(cage)) and may_rewrite_io_max(facts)


class IoMaxController:
    """Plays every meter of a cage from `start` to `stop`; started, stopped and recorded like a collector."""

    name = "credits"

    def __init__(self, around: CollectorContext, cage: Cage, *, keeps_series: bool = True) -> None:
        self._keeps_series = keeps_series
        self._path = around.directory / "credits.jsonl"
        self._cgroup, self._maj_min = around.cgroup, around.disk.maj_min
        self._meters = list(meters(cage))
        self._buckets_at_start = [meter.bucket for meter in self._meters]
        self._turn = threading.Lock()
        self._about = [meter.to_json() for meter in self._meters]
        self._what = "burst credits" if any(meter.bursts for meter in self._meters) else "the split of a shared limit"
        self._rows: list[dict[str, Any]] = []
        self._changes: list[dict[str, float]] = []
        self._overwritten = self._refused = 0
        self._error: str | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def start(self) -> None:
        """Put the first caps in force and begin."""
        self._read, self._since = self._counters(), time.monotonic()
        self._put_in_force()
        self._thread.start()

    def begin(self) -> None:
        """Fill the buckets as the cage says: making a scope takes seconds, in which a drained one would refill."""
        with self._turn:
            for meter, bucket in zip(self._meters, self._buckets_at_start, strict=True):
                meter.bucket = bucket
            try:
                self._read, self._since = self._counters(), time.monotonic()
                self._put_in_force()
            except (OSError, ValueError, HostError) as error:
                self._error = f"{self._what} ended early: {error}"

    def wait_until_recording(self) -> None:
        """The first caps are in force when `start` returns."""

    def stop(self) -> CollectorResult:
        """End, and write the series: a row a tick, with the credits and caps of every bucket."""
        self._ending.set()
        if self._thread.ident:
            self._thread.join(5.0)
        self._path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in self._rows))
        return CollectorResult("failed" if self._error else "ok", self._error, files=(self._path,))

    def to_json(self) -> dict[str, Any]:
        """What was played: each bucket, each rewriting of io.max with its moment, and what went wrong."""
        return {
            "buckets": self._about, "changes": list(self._changes), "overwritten": self._overwritten,
            "error": self._error,
        }  # fmt: skip

    def _loop(self) -> None:
        following = self._since
        while not self._error and not self._ending.is_set():
            following = max(following + _PERIOD_SECONDS, time.monotonic())
            self._ending.wait(max(0.0, following - time.monotonic()))
            with self._turn:
                self._tick()

    def _tick(self) -> None:
        """Charge what went through since the last tick, and rewrite io.max where that changes a cap."""
        try:
            read, now = self._counters(), time.monotonic()
            for meter in self._meters:
                moved = {key: float(read.get(key, 0) - self._read.get(key, 0)) for key in meter.counters.values()}
                meter.charge(moved, now - self._since)
            self._notice_others()
            self._read, self._since = read, now
            self._put_in_force()
        except (OSError, ValueError, HostError) as error:
            self._error = f"{self._what} ended early: {error}"

    def _counters(self) -> dict[str, int]:
        """io.stat of the slice for the disk; a disk that it has not touched has no line."""
        text = (self._cgroup / "io.stat").read_text()
        return parse_nested_keyed(text).get(self._maj_min, {})

    def _notice_others(self) -> None:
        """What somebody else wrote since the last tick was in force since then, and is written over now."""
        held = read_limits(self._cgroup, self._maj_min)
        for meter in self._meters:
            found = {prop: held.get(f"io.max.{IO_MAX_KEY[prop]}", "max") for prop in meter.counters}
            if any(text != str(meter.caps.get(prop)) for prop, text in found.items()):
                since = max(self._since, self._changes[-1]["t"] if self._changes else self._since)
                self._changes.append({"t": since, **{p: int(n) for p, n in found.items() if n != "max"}})
                self._overwritten, meter.caps = self._overwritten + 1, {}

    def _put_in_force(self) -> None:
        changed: dict[str, int] = {}
        for meter in self._meters:
            wanted = meter.wanted()
            changed |= {prop: cap for prop, cap in wanted.items() if cap != meter.caps.get(prop)}
            meter.caps = wanted
        if changed:
            self._write(changed)
        if not self._keeps_series:
            return
        buckets = [{"credits": round(meter.bucket.credits, 3), "caps": meter.caps} for meter in self._meters]
        self._rows.append({"t": self._since, "wall": time.time(), "buckets": buckets})

    def _write(self, changed: dict[str, int]) -> None:
        """A write that somebody else's follows at once is seen and made again at the next tick; several are no chance.

        systemd sets a slice's values anew when a scope begins in it, which may fall between writing and reading back.
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


def write_io_max(cgroup: Path, maj_min: str, caps: dict[str, int]) -> None:
    """Set caps by their systemd property and read them back. Raises HostError when the kernel holds something else."""
    wanted = {IO_MAX_KEY[prop]: str(cap) for prop, cap in caps.items()}
    (cgroup / "io.max").write_text(f"{maj_min} {' '.join(f'{key}={cap}' for key, cap in wanted.items())}\n")
    held = read_limits(cgroup, maj_min)
    wrong = [f"{key} is {held.get(f'io.max.{key}')}, not {cap}" for key, cap in wanted.items()
             if held.get(f"io.max.{key}") != cap]  # fmt: skip
    if wrong:
        raise HostError(f"io.max does not hold what was written: {'; '.join(wrong)}")
